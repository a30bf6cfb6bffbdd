/* metrics: the reports of belfryd as Prometheus metrics. Queries belfryd as any client does, keeps only the names of
 * users between queries, and never changes anything. */
#ifndef BELFRY_METRICS_H
#define BELFRY_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

/* The input of metrics_text(). */
struct metrics_source {
	const char *const *reports; /* the bodies of the reports, one per GPU */
	unsigned count;
	const char *account;  /* the body of the reply to PROTOCOL_ACCOUNT */
	const char *hostname; /* for the label of the same name */
	/* The name of a user, or the user ID if there is no name. */
	const char *(*user)(uint32_t uid);
};

/* The text of /metrics, to be freed. NULL on error. */
char *metrics_text(const struct metrics_source *source, struct bf_error *err);
/* Query belfryd, and return the text. */
char *metrics_gather(struct bf_error *err);
/* Names are cached, because a lookup may be slow. For one thread only. */
const char *metrics_user(uint32_t uid);
/* "127.0.0.1:9835", "[::1]:9835". */
int metrics_address(const char *text, struct sockaddr_storage *address, bool *is_local, struct bf_error *err);

#endif

/* metrics: what belfryd reports, in the words of Prometheus. Asks belfryd as any client does, keeps nothing between two
 * questions but the names of users, and never changes anything. */
#ifndef BELFRY_METRICS_H
#define BELFRY_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

/* What the text is made of. */
struct metrics_source {
	const char *const *reports; /* the bodies of the reports on each GPU */
	unsigned count;
	const char *account;  /* the body of belfryd's answer to PROTOCOL_ACCOUNT */
	const char *hostname; /* for the label of the same name */
	/* The name of a user, or the number of one without a name. */
	const char *(*user)(uint32_t uid);
};

/* The text of /metrics, to be freed. NULL and a reason. */
char *metrics_text(const struct metrics_source *source, struct bf_error *err);
/* Ask whoever is there, and make the text of it. */
char *metrics_gather(struct bf_error *err);
/* The names are kept for a while: to look one up may take long. The caller's thread alone. */
const char *metrics_user(uint32_t uid);
/* "127.0.0.1:9835", "[::1]:9835". */
int metrics_address(const char *text, struct sockaddr_storage *address, bool *is_local, struct bf_error *err);

#endif

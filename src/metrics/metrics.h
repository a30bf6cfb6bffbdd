/* metrics: what belfryd reports, in the words of Prometheus. Asks belfryd as any client does, keeps nothing between two
 * questions, and never changes anything. */
#ifndef BELFRY_METRICS_H
#define BELFRY_METRICS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/error.h"

/* The text of /metrics, to be freed, from the bodies of the reports on each GPU. NULL and a reason. */
char *metrics_text(const char *const *reports, unsigned count, struct bf_error *err);
/* Ask whoever is there, and make the text of it. */
char *metrics_gather(struct bf_error *err);
/* "127.0.0.1:9835", "[::1]:9835". */
int metrics_address(const char *text, struct sockaddr_storage *address, bool *is_local, struct bf_error *err);

#endif

/* The HTTP server of belfry-metrics. Private to the module. */
#ifndef BELFRY_METRICS_HTTP_H
#define BELFRY_METRICS_HTTP_H

#include <sys/socket.h>

/* Answer requests for metrics until SIGTERM or SIGINT arrives. `text` is the address, for messages. Returns the exit
 * status. */
int http_serve(const struct sockaddr_storage *address, const char *text);

#endif

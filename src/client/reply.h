/* Answers, as protocol.h has them: a reply, and with it its body in a sealed file. */
#ifndef BELFRY_CLIENT_REPLY_H
#define BELFRY_CLIENT_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "client/protocol.h"

/* Send it without waiting. body: NULL for none; where there is no room for it the reply says so. False: it was not
 * taken; the connection is to be closed. */
bool reply_send(int sock, struct protocol_reply *reply, const char *body, size_t bytes);
struct protocol_reply reply_of(const struct bf_error *err);

#endif

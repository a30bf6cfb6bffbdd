/* Replies as in protocol.h, with their bodies in sealed files. */
#ifndef BELFRY_CLIENT_REPLY_H
#define BELFRY_CLIENT_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "client/protocol.h"

/* Send a reply without waiting. body: NULL for none; if no file can be made for it, the reply becomes an error.
 * False: the reply was not sent, and the connection must be closed. */
bool reply_send(int sock, struct protocol_reply *reply, const char *body, size_t bytes);
struct protocol_reply reply_of(const struct bf_error *err);

#endif

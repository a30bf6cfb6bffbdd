/* The steward accesses the program for the GPU server, where Yama permits that only to ancestors. */
#ifndef BELFRY_CLI_STEWARD_H
#define BELFRY_CLI_STEWARD_H

#include <stdbool.h>
#include <stddef.h>

#include "client/protocol.h"

/* Whether the server at the other end of `sock` needs a steward. */
bool steward_is_wanted(int sock);
/* Answer PROTOCOL_NOTICE_GET_FD or PROTOCOL_NOTICE_OPEN_MEMORY. Returns -errno if the answer cannot be
 * sent. */
int steward_answer(int sock, const struct protocol_notice *notice);
/* Send a message with a descriptor; fd -1: none. */
int steward_send(int sock, const void *data, size_t bytes, int fd);

#endif

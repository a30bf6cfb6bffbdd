/* The steward: does for the GPU server what Yama lets only an ancestor of the program do. */
#ifndef BELFRY_CLI_STEWARD_H
#define BELFRY_CLI_STEWARD_H

#include <stdbool.h>
#include <stddef.h>

#include "client/protocol.h"

/* Whether the server at the other end of `sock` needs one. */
bool steward_is_wanted(int sock);
/* Answer PROTOCOL_NOTICE_GET_FD or PROTOCOL_NOTICE_OPEN_MEMORY. -errno if the server cannot be told. */
int steward_answer(int sock, const struct protocol_notice *notice);
/* A message and a file that goes along; none if it is -1. */
int steward_send(int sock, const void *data, size_t bytes, int fd);

#endif

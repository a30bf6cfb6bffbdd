/* Messages over Unix sockets that may bring one descriptor along. */
#ifndef BELFRY_BASE_MESSAGE_H
#define BELFRY_BASE_MESSAGE_H

#include <stddef.h>
#include <sys/types.h>

/* Send it whole, with `fd` unless that is -1; `flags` as for sendmsg. 0 or -errno. */
int bf_message_send(int sock, const void *data, size_t bytes, int fd, int flags);
/* A message and the descriptor that came with it, or -1. Bytes, 0 at the end, or -errno: -EMSGSIZE if it was longer than
 * `room`. Whoever sends more descriptors than one is left with none of them here. */
ssize_t bf_message_receive(int sock, void *to, size_t room, int *fd, int flags);

#endif

/* Messages over Unix sockets, each with at most one descriptor. */
#ifndef BELFRY_BASE_MESSAGE_H
#define BELFRY_BASE_MESSAGE_H

#include <stddef.h>
#include <sys/types.h>

/* Sends the whole message, with `fd` unless that is -1. `flags` are those of sendmsg. Returns 0 or -errno. */
int bf_message_send(int sock, const void *data, size_t bytes, int fd, int flags);
/* Receives a message and its descriptor (-1: none). Returns the length, 0 at the end of the stream, or
 * -errno: -EMSGSIZE if the message is longer than `room`, unless `flags` have MSG_TRUNC. If a message carries several descriptors, all are
 * closed. */
ssize_t bf_message_receive(int sock, void *to, size_t room, int *fd, int flags);

#endif

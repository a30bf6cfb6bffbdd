/* Descriptors that other processes have sent. To close one can take as long as its sender likes: a TCP socket with
 * SO_LINGER waits for its peer, a FUSE file for its file system. A server does not wait for that. */
#ifndef BELFRY_BASE_HANDED_H
#define BELFRY_BASE_HANDED_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether peers may send descriptors over this Unix socket. A connection inherits it from the socket that listens.
 * Before Linux 6.16 they always may. */
void bf_handing_allow(int sock, bool is_allowed);
/* A memory file: it has no owner that could make a read or a close wait. */
bool bf_is_memory_file(int fd);
/* The listener of a seccomp filter. */
bool bf_is_listener(int fd);
/* Close a descriptor that this user has sent, in a thread unless that cannot wait. *fd becomes -1. */
void bf_close_handed(int *fd, uid_t sender);
/* Close a connection. Descriptors that the peer has sent over it may be in its queue, and are closed with it. */
void bf_close_connection(int *sock);
#define cleanup_connection __attribute__((cleanup(bf_close_connection)))
/* The user has sent as many descriptors that wait to be closed as one may: take no more. */
bool bf_handed_is_full(uid_t sender);

#endif

/* One message with files on a SOCK_SEQPACKET socket, for both sides of the software GPU's interface. */
#ifndef BELFRY_SOFT_WIRE_H
#define BELFRY_SOFT_WIRE_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "soft/abi.h"

enum { WIRE_FILES_MAX = SOFT_FILES_MAX + 1 };

struct wire_files {
	int fd[WIRE_FILES_MAX];
	unsigned count;
};

/* Returns 0 or -errno. `flags` are those of sendmsg; SIGPIPE is never raised. */
int wire_send(int sock, struct iovec *parts, size_t count, const struct wire_files *files, int flags);
/* Returns the length or -errno; -EMSGSIZE for too many bytes or files. The caller closes received files.
 * `from` may be NULL; it needs SO_PASSCRED, and is zero without. */
ssize_t wire_receive(int sock, struct iovec *parts, size_t count, struct wire_files *files,
		     struct ucred *from, int flags);
void wire_close_files(struct wire_files *files);

#endif

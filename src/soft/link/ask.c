/* Every request carries its own socket for the answer. So processes and threads that share a device file
 * never receive each other's answers, and an abandoned request leaves nothing in the file. */
#include "soft/link/ask.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/own.h"
#include "base/retry.h"
#include "soft/link/wire.h"

enum { CONNECT_LIMIT_S = 20 };

static int send_request(int sock, struct ask *a, int reply_to)
{
	struct iovec parts[] = { { &a->request, sizeof(a->request) },
				 { a->arg, a->request.arg_bytes },
				 { a->params, a->request.params_bytes } };
	struct wire_files files = { .fd = { reply_to }, .count = 1 };
	int rc;

	for (unsigned i = 0; i < a->file_count; i++)
		files.fd[files.count++] = a->files[i];
	rc = wire_send(sock, parts, 3, &files, 0);
	return rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN ? -ENODEV : rc;
}

static int take_answer(int sock, struct ask *a)
{
	struct soft_reply reply;
	struct iovec parts[] = { { &reply, sizeof(reply) },
				 { a->arg, a->request.arg_bytes },
				 { a->params, a->request.params_bytes } };
	struct wire_files files;
	ssize_t got = wire_receive(sock, parts, 3, &files, NULL, 0);
	size_t body = (size_t)a->request.arg_bytes + a->request.params_bytes;

	if (got == 0 || got == -ECONNRESET)
		return -ENODEV; /* closed without an answer: the other side has ended */
	if (got < 0)
		return (int)got;
	if (files.count == 1)
		a->reply_file = files.fd[0];
	else
		wire_close_files(&files);
	if ((size_t)got < sizeof(reply) || reply.magic != SOFT_REPLY_MAGIC ||
	    ((size_t)got != sizeof(reply) && (size_t)got != sizeof(reply) + body))
		return -EPROTO;
	return reply.rc;
}

int ask(int sock, struct ask *a)
{
	int pair[2], rc;

	a->reply_file = -1;
	a->request.magic = SOFT_MAGIC;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	rc = send_request(sock, a, pair[1]);
	/* The message holds its own reference. This one would keep the pair open if the other side died. */
	close(pair[1]);
	if (!rc)
		rc = take_answer(pair[0], a);
	close(pair[0]);
	if (rc < 0 && a->reply_file >= 0) {
		close(a->reply_file);
		a->reply_file = -1;
	}
	return rc;
}

int ask_connect(const char *folder)
{
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct timeval limit = { .tv_sec = CONNECT_LIMIT_S };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder), rc;

	if (length < 0 || (size_t)length >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	if (sock < 0)
		return -errno;
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* for a full queue */
	rc = bf_retry(connect(sock, (const struct sockaddr *)&address, sizeof(address)));
	return rc ? -errno : bf_take_fd(&sock);
}

#include "base/message.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/retry.h"

/* SCM_MAX_FD of the kernel (include/net/scm.h). The buffer holds that many, so that each received descriptor
 * can be closed. */
enum { FILES_MAX = 253 };

int bf_message_send(int sock, const void *data, size_t bytes, int fd, int flags)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { (void *)(uintptr_t)data, bytes };
	struct msghdr msg = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t sent;

	if (fd >= 0) {
		struct cmsghdr *head;

		msg.msg_control = control.room;
		msg.msg_controllen = sizeof(control.room);
		head = CMSG_FIRSTHDR(&msg);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(head), &fd, sizeof(int));
	}
	sent = bf_retry(sendmsg(sock, &msg, flags | MSG_NOSIGNAL));
	if (sent < 0)
		return -errno;
	return sent == (ssize_t)bytes ? 0 : -EMSGSIZE;
}

/* Returns the received descriptor, or -1. If there are several, all are closed. */
static int take_file(struct msghdr *msg)
{
	int found = -1;
	unsigned count = 0;

	for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head; head = CMSG_NXTHDR(msg, head)) {
		size_t files = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < files; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
			if (count++ && fd >= 0)
				close(fd);
			else
				found = fd;
		}
	}
	if (count > 1) {
		close(found);
		return -1;
	}
	return found;
}

ssize_t bf_message_receive(int sock, void *to, size_t room, int *fd, int flags)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FILES_MAX * sizeof(int))];
	} control;
	struct iovec part = { to, room };
	struct msghdr msg = { .msg_iov = &part,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	ssize_t got;

	*fd = -1;
	got = bf_retry(recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC));
	if (got < 0)
		return -errno;
	*fd = take_file(&msg);
	if (!(msg.msg_flags & MSG_TRUNC))
		return got;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return -EMSGSIZE;
}

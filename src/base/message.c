#include "base/message.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "base/handed.h"
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

static void close_received(int sock, int *fd)
{
	struct ucred who = { .uid = (uid_t)-1 };
	socklen_t length = sizeof(who);

	getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length);
	bf_close_handed(fd, who.uid);
}

/* Returns the received descriptor, or -1. If there are several, all are closed. */
static int take_file(int sock, struct msghdr *msg)
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
			if (count++)
				close_received(sock, &fd);
			else
				found = fd;
		}
	}
	if (count > 1)
		close_received(sock, &found);
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
	*fd = take_file(sock, &msg);
	if (!(msg.msg_flags & MSG_TRUNC) || flags & MSG_TRUNC)
		return got;
	close_received(sock, fd);
	return -EMSGSIZE;
}

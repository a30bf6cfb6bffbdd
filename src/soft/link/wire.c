#include "soft/link/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/retry.h"

void wire_close_files(struct wire_files *files)
{
	for (unsigned i = 0; i < files->count; i++)
		close(files->fd[i]);
	files->count = 0;
}

int wire_send(int sock, struct iovec *parts, size_t count, const struct wire_files *files, int flags)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(files->fd))];
	} control;
	struct msghdr msg = { .msg_iov = parts, .msg_iovlen = count };
	size_t bytes = files ? sizeof(int) * files->count : 0;
	ssize_t sent;

	if (bytes) {
		struct cmsghdr *head;

		memset(&control, 0, sizeof(control));
		msg.msg_control = control.room;
		msg.msg_controllen = CMSG_SPACE(bytes);
		head = CMSG_FIRSTHDR(&msg);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(head), files->fd, bytes);
	}
	sent = bf_retry(sendmsg(sock, &msg, flags | MSG_NOSIGNAL));
	return sent < 0 ? -errno : 0;
}

/* Reads control messages. The control buffer has space for more files than are allowed, so that excess files
 * are received and closed here. */
static bool take_control(struct msghdr *msg, struct wire_files *files, struct ucred *from)
{
	bool is_too_many = false;

	for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head; head = CMSG_NXTHDR(msg, head)) {
		if (head->cmsg_level != SOL_SOCKET)
			continue;
		if (head->cmsg_type == SCM_CREDENTIALS && from)
			memcpy(from, CMSG_DATA(head), sizeof(*from));
		if (head->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(head) + sizeof(int) * i, sizeof(fd));
			if (files->count < WIRE_FILES_MAX) {
				files->fd[files->count++] = fd;
			} else {
				close(fd);
				is_too_many = true;
			}
		}
	}
	return !is_too_many;
}

ssize_t wire_receive(int sock, struct iovec *parts, size_t count, struct wire_files *files,
		     struct ucred *from, int flags)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(files->fd)) + CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct msghdr msg = { .msg_iov = parts,
			      .msg_iovlen = count,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	bool is_whole;
	ssize_t got;

	files->count = 0;
	if (from)
		memset(from, 0, sizeof(*from));
	got = bf_retry(recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC));
	if (got < 0)
		return -errno;
	is_whole = take_control(&msg, files, from);
	if (is_whole && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return got;
	wire_close_files(files);
	return -EMSGSIZE;
}

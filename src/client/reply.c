#include "client/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/message.h"
#include "base/own.h"

static int body_file(const char *body, size_t bytes)
{
	cleanup_close int fd = memfd_create("belfry-reply", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	for (size_t done = 0; fd >= 0 && done < bytes;) {
		ssize_t wrote = write(fd, body + done, bytes - done);

		if (wrote <= 0)
			return -1;
		done += (size_t)wrote;
	}
	if (fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
		return -1;
	return bf_take_fd(&fd);
}

bool reply_send(int sock, struct protocol_reply *reply, const char *body, size_t bytes)
{
	cleanup_close int file = body ? body_file(body, bytes) : -1;

	if (body && file < 0) {
		reply->code = ENOMEM;
		snprintf(reply->text, sizeof(reply->text),
			 "no file for the answer; see the limits of belfryd");
	}
	return !bf_message_send(sock, reply, sizeof(*reply), file, MSG_DONTWAIT);
}

struct protocol_reply reply_of(const struct bf_error *err)
{
	struct protocol_reply reply = { .magic = PROTOCOL_MAGIC,
					.version = PROTOCOL_VERSION,
					.code = err ? err->code : 0,
					.server_pid = (uint32_t)getpid() };

	if (err)
		snprintf(reply.text, sizeof(reply.text), "%s", err->text);
	return reply;
}

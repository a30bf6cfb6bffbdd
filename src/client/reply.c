#include "client/reply.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/message.h"
#include "base/own.h"
#include "base/sealed.h"

bool reply_send(int sock, struct protocol_reply *reply, const char *body, size_t bytes)
{
	cleanup_close int file = body ? bf_sealed_file("belfry-reply", body, bytes) : -1;

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

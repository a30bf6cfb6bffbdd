/* later_request NAME: each change is asked for on a connection that a GPU server has answered before, where belfryd does not
 * see it. Exit status 0 if all are refused and queries are still answered. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "client/talk.h"

static const enum protocol_op changes[] = { PROTOCOL_CREATE,	   PROTOCOL_REMOVE, PROTOCOL_SET,
					    PROTOCOL_RUN,	   PROTOCOL_HOLD,   PROTOCOL_OPEN,
					    PROTOCOL_STOP,	   PROTOCOL_RESUME, PROTOCOL_POLICY_LOAD,
					    PROTOCOL_POLICY_UNLOAD };

/* A connection of a GPU server. */
static int answered(struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_REPORT, NULL);
	struct protocol_reply reply;
	struct talk_place place;
	int sock = talk_find(&place, err) ? -1 : talk_connect(&place, err);

	if (sock >= 0 && talk_ask(sock, &request, &reply, NULL, err)) {
		close(sock);
		return -1;
	}
	return sock;
}

static int is_refused(enum protocol_op op, const char *name)
{
	struct protocol_request query = talk_request(PROTOCOL_REPORT, NULL), request = talk_request(op, name);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	cleanup_close int sock = answered(&err);

	if (sock < 0) {
		printf("no connection: %s\n", err.text);
		return 0;
	}
	if (!talk_ask(sock, &request, &reply, NULL, &err) || !strstr(err.text, "for one change")) {
		printf("request %u: %s\n", op, err.code ? err.text : "not refused");
		return 0;
	}
	if (talk_ask(sock, &query, &reply, NULL, &err)) {
		printf("after request %u: %s\n", op, err.text);
		return 0;
	}
	return 1;
}

int main(int argc, char **argv)
{
	int failed = argc != 2;

	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes) && argc == 2; i++)
		failed |= !is_refused(changes[i], argv[1]);
	return failed;
}

/* hand_over alive|ended NAME TIME: a child connects to belfryd and hands the connection to its parent, which asks on it as
 * `belfry set NAME --time TIME` does. With "ended" the child has ended and was waited for by then. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "client/talk.h"

static int connect_and_send(int to)
{
	struct talk_place place;
	struct bf_error err = { 0 };
	int sock = talk_find(&place, &err) ? -1 : talk_connect(&place, &err);

	if (sock < 0)
		fprintf(stderr, "hand_over: %s\n", err.text);
	return sock < 0 || bf_send_fd(to, sock);
}

int main(int argc, char **argv)
{
	struct protocol_request request = talk_request(PROTOCOL_SET, argc > 2 ? argv[2] : NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	int pair[2], sock;
	pid_t child;

	if (argc != 4 || spec_parse(&request.spec, &request.parts, "time", argv[3], &err) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return 2;
	child = fork();
	if (!child) {
		int rc = connect_and_send(pair[1]);

		if (!rc && !strcmp(argv[1], "alive"))
			pause();
		_exit(rc);
	}
	close(pair[1]);
	sock = bf_recv_fd(pair[0]);
	if (!strcmp(argv[1], "ended"))
		waitpid(child, NULL, 0);
	if (sock < 0)
		return 2;
	sock = talk_ask(sock, &request, &reply, NULL, &err);
	kill(child, SIGKILL); /* if it has ended, nobody has its number so soon */
	if (sock)
		fprintf(stderr, "hand_over: %s\n", err.text);
	return sock != 0;
}

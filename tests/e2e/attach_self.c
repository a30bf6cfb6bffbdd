/* attach_self [OPTION...] VGPU PROGRAM [ARG...]: attach a program to a vGPU as a container runtime does. The program's
 * process installs the filter, this process sends its listener to belfryd, and the program starts. Prints "attached", or
 * the error and exits with 3. Exits with the status of the program, or with 128 and its signal.
 * Options: --ephemeral: create the vGPU; --id ID; --name NAME; --pid N: the process to name, instead of the program's;
 * --owner UID: for programs of that user; --times N: attach the program so often, as if it were many; --garbage: send a pipe instead of the listener; --leave: exit at once, without
 * waiting for the program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/options.h"
#include "base/own.h"
#include "base/process.h"
#include "client/talk.h"
#include "warden/filter.h"

struct options {
	bool is_ephemeral, is_garbage, leaves;
	const char *id, *name, *pid, *owner, *times;
};

static const struct bf_option table[] = {
	BF_OPTION("ephemeral", 0, NULL, NULL, bf_take_flag, struct options, is_ephemeral),
	BF_OPTION("garbage", 0, NULL, NULL, bf_take_flag, struct options, is_garbage),
	BF_OPTION("leave", 0, NULL, NULL, bf_take_flag, struct options, leaves),
	BF_OPTION("id", 0, "ID", NULL, bf_take_text, struct options, id),
	BF_OPTION("name", 0, "NAME", NULL, bf_take_text, struct options, name),
	BF_OPTION("owner", 0, "UID", NULL, bf_take_text, struct options, owner),
	BF_OPTION("times", 0, "N", NULL, bf_take_text, struct options, times),
	BF_OPTION("pid", 0, "PID", NULL, bf_take_text, struct options, pid),
	BF_OPTIONS_END,
};
static const struct bf_command command = { .name = "attach_self",
					   .about = "",
					   .options = table,
					   .least = 2,
					   .most = -1,
					   .wrong_count = "VGPU PROGRAM [ARG...]",
					   .stops_at_argument = true };

/* The program's process: waits until its listener was taken. */
static void __attribute__((noreturn)) become_program(char **argv, int sock)
{
	struct bf_error err = { 0 };
	int listener = filter_install(&err);
	char byte;

	if (listener < 0 || bf_send_fd(sock, listener)) {
		fprintf(stderr, "attach_self: %s\n", err.text);
		_exit(4);
	}
	close(listener);
	if (read(sock, &byte, 1) != 1)
		_exit(5);
	execvp(argv[0], argv);
	_exit(127);
}

static int attach(const struct options *options, const char *vgpu, pid_t pid, int listener,
		  struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_ATTACH, vgpu);
	struct protocol_attached attached = { .magic = PROTOCOL_MAGIC,
					      .version = PROTOCOL_VERSION,
					      .kind = PROTOCOL_CONTAINER,
					      .pid = options->pid ? atoi(options->pid) : pid };
	struct protocol_reply reply;
	struct talk_place place;
	int rc = talk_find(&place, err);

	snprintf(attached.id, sizeof(attached.id), "%s", options->id ? options->id : "self");
	snprintf(attached.name, sizeof(attached.name), "%s", options->name ? options->name : "");
	if (options->is_ephemeral)
		request.flags |= PROTOCOL_EPHEMERAL;
	if (options->owner) {
		request.flags |= PROTOCOL_OWNER;
		request.owner = (uint32_t)atoi(options->owner);
	}
	if (rc)
		return rc;
	cleanup_close int sock = talk_connect(&place, err);
	if (sock < 0)
		return sock;
	rc = talk_ask(sock, &request, &reply, NULL, err);
	return rc ? rc : talk_give_listener(sock, &attached, listener, &reply, err);
}

static int attach_all(const struct options *options, const char *vgpu, pid_t pid, int listener,
		      struct bf_error *err)
{
	int times = options->times ? atoi(options->times) : 1, rc = 0;

	for (int i = 0; !rc && i < times; i++)
		rc = attach(options, vgpu, pid, listener, err);
	return rc;
}

static int run(const struct options *options, char **argv)
{
	struct bf_error err = { 0 };
	int pair[2], ends[2], status;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) || pipe(ends))
		return 2;
	pid = fork();
	if (!pid) {
		close(pair[0]); /* so that it ends if this process does */
		become_program(argv + 1, pair[1]);
	}
	close(pair[1]);
	cleanup_close int listener = bf_recv_fd(pair[0]);
	if (attach_all(options, argv[0], pid, options->is_garbage ? ends[0] : listener, &err)) {
		fprintf(stderr, "attach_self: %s\n", err.text);
		return 3;
	}
	close(bf_take_fd(&listener)); /* otherwise nobody is told that the program has ended */
	puts("attached");
	fflush(stdout);
	if (write(pair[0], "g", 1) != 1)
		return 6;
	if (options->leaves)
		return 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	struct options options = { 0 };
	struct bf_error err = { 0 };
	int first = bf_command_parse(&command, argc, argv, &options, &err);

	if (first <= 0) {
		fprintf(stderr, "attach_self: %s\n", err.text);
		return 2;
	}
	return run(&options, argv + first);
}

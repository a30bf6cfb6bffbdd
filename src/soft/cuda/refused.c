/* Print one line on stderr for a module that is refused: a program of the CUDA runtime gets only an error
 * code. errno, pending signals and stdout are unchanged. The line is omitted if the write could block, or if
 * the program asked for the log. BELFRY_SOFT_QUIET=1 turns it off. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soft/cuda/refused.h"

static bool is_quiet(void)
{
	const char *quiet = getenv("BELFRY_SOFT_QUIET");

	return quiet && *quiet && strcmp(quiet, "0") != 0;
}

/* A write to a closed pipe must not end the program: SIGPIPE is blocked, and consumed if this write raised
 * it. */
static void write_quietly(const char *line, size_t length)
{
	struct pollfd poll_fd = { .fd = STDERR_FILENO, .events = POLLOUT };
	const struct timespec now = { 0 };
	sigset_t pipe_only, before, pending;

	if (poll(&poll_fd, 1, 0) != 1 || !(poll_fd.revents & POLLOUT))
		return;
	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	sigemptyset(&pending);
	sigpending(&pending);
	if (pthread_sigmask(SIG_BLOCK, &pipe_only, &before))
		return;
	if (write(STDERR_FILENO, line, length) < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
		sigtimedwait(&pipe_only, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void refused_tell(const char *path, const struct bf_error *err)
{
	char line[sizeof(err->text) + 512];
	int saved = errno, length;

	if (!err->code || is_quiet())
		return;
	length = snprintf(line, sizeof(line),
			  "belfry: %.200s: the software GPU refused device code%s%.200s: %s; see docs/ptx.md "
			  "(BELFRY_SOFT_QUIET=1 hides this line)\n",
			  program_invocation_short_name, path ? " of " : "", path ? path : "", err->text);
	if (length > 0)
		write_quietly(line, (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1);
	errno = saved;
}

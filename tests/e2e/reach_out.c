/* reach_out PID...: try to signal and to trace these processes. 0 if each attempt fails with EPERM; says which does not. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include "base/process.h"

static int tell(const char *pid, const char *what, int code)
{
	if (code == EPERM)
		return 0;
	fprintf(stderr, "reach_out: process %s: %s: %s\n", pid, what, code ? strerror(code) : "done");
	return 1;
}

int main(int argc, char **argv)
{
	int reached = 0;

	for (int i = 1; i < argc; i++) {
		pid_t pid = atoi(argv[i]);
		int pidfd = bf_pidfd_open(pid);
		union sigval none = { 0 };

		reached |= tell(argv[i], "kill", kill(pid, 0) ? errno : 0);
		reached |= tell(argv[i], "SIGSTOP", kill(pid, SIGSTOP) ? errno : 0);
		kill(pid, SIGCONT);
		reached |= tell(argv[i], "sigqueue", sigqueue(pid, 0, none) ? errno : 0);
		reached |= tell(argv[i], "pidfd", -bf_pidfd_kill(pidfd, 0));
		reached |= tell(argv[i], "trace", ptrace(PTRACE_SEIZE, pid, 0, 0) ? errno : 0);
		close(pidfd);
	}
	return reached;
}

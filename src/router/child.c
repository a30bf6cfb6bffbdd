/* A child of belfryd's that was just started. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/process.h"
#include "router/internal.h"

int router_child_open(pid_t pid, struct bf_error *err)
{
	int pidfd = bf_pidfd_open(pid);

	if (pidfd >= 0)
		return pidfd;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return bf_fail(err, -pidfd, "process %d: no descriptor to watch it: %s", (int)pid, strerror(-pidfd));
}

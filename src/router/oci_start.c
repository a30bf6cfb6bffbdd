/* Starts belfry-oci-listener. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/folder.h"
#include "router/config.h"
#include "router/router.h"

/* In the child: the signals that belfryd blocks, and no descriptor of it. */
static void __attribute__((noreturn))
become_listener(const char *program, const struct config *config, const char *path, pid_t parent)
{
	static const char *const levels[] = { "error", "warn", "info", "debug" };
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (!syscall(SYS_close_range, 3u, ~0u, 0u) && getppid() == parent)
		execl(program, "belfry-oci-listener", "--socket", path, "--log", levels[config->log & 3],
		      (char *)NULL);
	_exit(127);
}

pid_t router_start_oci(void *context, const struct config *config, const char *path, const char *sock,
		       struct bf_error *err)
{
	static const char *const candidates[] = { "belfry-oci-listener",
						  "../libexec/belfry/belfry-oci-listener", NULL };
	char program[PATH_MAX];
	pid_t parent = getpid(), pid;

	(void)context;
	if (bf_find_beside("BELFRY_OCI_LISTENER", candidates, program, sizeof(program)))
		return bf_fail(err, ENOENT,
			       "belfry-oci-listener is not installed; it belongs beside belfryd or in "
			       "libexec/belfry");
	pid = fork();
	if (pid < 0)
		return bf_fail(err, errno, "belfry-oci-listener cannot be started: %s", strerror(errno));
	if (pid)
		return pid;
	setenv("BELFRY_SOCKET", sock, 1);
	become_listener(program, config, path, parent);
}

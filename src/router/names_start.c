/* Starts the helper that looks up names: this program with --look-up-names. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/own.h"
#include "router/names.h"

/* A memory file, so that belfryd does not wait for its reader. */
static int file_of(const char *text)
{
	cleanup_close int fd = memfd_create("belfry-names", MFD_CLOEXEC);
	size_t bytes = strlen(text);

	if (fd < 0 || write(fd, text, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET))
		return -1;
	return bf_take_fd(&fd);
}

/* In the child. It has no descriptors of belfryd: a helper that hangs must not keep connections open. */
static void __attribute__((noreturn)) become_helper(int input, int output, const sigset_t *mask, pid_t parent)
{
	struct sigaction plain = { .sa_handler = SIG_DFL };

	sigaction(SIGPIPE, &plain, NULL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent && dup2(input, 0) == 0 && dup2(output, 1) == 1 &&
	    !syscall(SYS_close_range, 3u, ~0u, 0u))
		execl("/proc/self/exe", "belfryd", "--look-up-names", (char *)NULL);
	_exit(127);
}

int names_start(const char *names, const sigset_t *mask, pid_t *pid, struct bf_error *err)
{
	cleanup_close int input = file_of(names), output = -1, answers = -1;
	pid_t parent = getpid();
	int ends[2];

	*pid = 0;
	if (input < 0 || pipe2(ends, O_CLOEXEC))
		return bf_fail(err, EMFILE, "names of users: no descriptors to look them up; try again");
	answers = ends[0];
	output = ends[1];
	if (fcntl(answers, F_SETFL, O_NONBLOCK))
		return bf_fail(err, errno, "names of users: %s", strerror(errno));
	*pid = fork();
	if (!*pid)
		become_helper(input, output, mask, parent);
	if (*pid > 0)
		return bf_take_fd(&answers);
	*pid = 0;
	return bf_fail(err, EAGAIN, "names of users: no more processes to look them up; try again");
}

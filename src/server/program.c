#include "server/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"
#include "server/signals.h"
#include "warden/filter.h"

/* No device file crosses over from before supervision: what it was used for is not in any ledger. They are closed by
 * exec and not here: one of them is the device's own, and without it the others could not be told from other files. */
static void close_inherited(struct device *device)
{
	DIR *files = opendir("/proc/self/fd");

	for (struct dirent *entry; files && (entry = readdir(files));) {
		int fd = atoi(entry->d_name);
		struct stat st;

		if (entry->d_name[0] != '.' && fd != dirfd(files) && !fstat(fd, &st) &&
		    device->ops->classify(device, &st) != DEVICE_FILE_NONE)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	}
	if (files)
		closedir(files);
}

/* In the child: report failures of our own through `report` as errno values of -1 and a text; exec's as is. */
static void __attribute__((noreturn))
child(char *const *argv, pid_t group, struct device *device, pid_t parent, int sock, int go, int report)
{
	struct bf_error err = { 0 };
	int listener;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(125);
	setpgid(0, group);
	close_inherited(device);
	listener = filter_install(&err);
	if (listener < 0) {
		if (write(report, &err, sizeof(err)) < 0)
			_exit(125);
		_exit(125);
	}
	if (bf_send_fd(sock, listener))
		_exit(125);
	close(listener);
	close(sock);
	if (read(go, &byte, 1) != 1)
		_exit(125);
	signals_give_back();
	execvp(argv[0], argv);
	if (write(report, &errno, sizeof(errno)) < 0)
		_exit(125);
	_exit(125);
}

int program_prepare(char *const *argv, pid_t group, struct device *device, struct program *program,
		    struct bf_error *err)
{
	int socks[2] = { -1, -1 }, go[2] = { -1, -1 }, report[2] = { -1, -1 };
	struct bf_error theirs;
	pid_t parent = getpid();

	*program = (struct program){ .pid = -1, .listener = -1, .go_fd = -1, .exec_fd = -1 };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) || pipe2(go, O_CLOEXEC) ||
	    pipe2(report, O_CLOEXEC))
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	program->pid = fork();
	if (program->pid < 0)
		return bf_fail(err, errno, "cannot start a process: %s", strerror(errno));
	if (!program->pid) {
		close(socks[0]);
		close(go[1]);
		close(report[0]);
		child(argv, group, device, parent, socks[1], go[0], report[1]);
	}
	close(socks[1]);
	close(go[0]);
	close(report[1]);
	program->go_fd = go[1];
	program->exec_fd = report[0];
	program->listener = bf_recv_fd(socks[0]);
	close(socks[0]);
	if (program->listener >= 0)
		return 0;
	if (read(program->exec_fd, &theirs, sizeof(theirs)) == (ssize_t)sizeof(theirs)) {
		theirs.text[sizeof(theirs.text) - 1] = 0;
		return bf_fail(err, theirs.code, "%s", theirs.text);
	}
	return bf_fail(err, ECHILD, "the program's process ended before it was supervised");
}

int program_go(struct program *program)
{
	int why = 0;
	ssize_t got;

	if (write(program->go_fd, "g", 1) != 1)
		return EPIPE;
	close(program->go_fd);
	program->go_fd = -1;
	do
		got = read(program->exec_fd, &why, sizeof(why));
	while (got < 0 && errno == EINTR);
	close(program->exec_fd);
	program->exec_fd = -1;
	return got == (ssize_t)sizeof(why) ? why : 0;
}

#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/message.h"
#include "base/own.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int result(long rc)
{
	return rc < 0 ? -errno : (int)rc;
}

int bf_pidfd_open(pid_t pid)
{
	return result(syscall(SYS_pidfd_open, pid, 0));
}

int bf_pidfd_open_thread(pid_t tid)
{
	return result(syscall(SYS_pidfd_open, tid, PIDFD_THREAD));
}

int bf_pidfd_open_peer(int sock, pid_t pid)
{
	socklen_t length = sizeof(int);
	int fd = -1;

	if (pid <= 0)
		return -ESRCH; /* in a PID namespace that is not visible here */
	if (!getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &length))
		return fd;
	return errno == ENOPROTOOPT ? bf_pidfd_open(pid) : -errno;
}

bool bf_pidfd_has_ended(int pidfd)
{
	struct pollfd fd = { pidfd, POLLIN, 0 };

	return poll(&fd, 1, 0) != 0;
}

int bf_pidfd_getfd(int pidfd, int fd)
{
	return result(syscall(SYS_pidfd_getfd, pidfd, fd, 0));
}

int bf_pidfd_kill(int pidfd, int signal)
{
	return result(syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0));
}

/* Reads the numbers of one line of /proc/PID/status. */
static int read_status(pid_t pid, const char *name, unsigned numbers[2])
{
	char path[48], line[128];
	size_t length = strlen(name);
	cleanup_file FILE *status = NULL;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	status = fopen(path, "re");
	if (!status)
		return -errno;
	while (fgets(line, sizeof(line), status))
		if (!strncmp(line, name, length) &&
		    sscanf(line + length, "%u %u", &numbers[0], &numbers[1]) >= 1)
			return 0;
	return -ESRCH;
}

pid_t bf_tgid_of(pid_t tid)
{
	unsigned tgid[2] = { 0 };
	int rc = read_status(tid, "Tgid:", tgid);

	return rc ? rc : (pid_t)tgid[0];
}

int64_t bf_euid_of(pid_t pid)
{
	unsigned real_and_effective[2] = { 0 };
	int rc = read_status(pid, "Uid:", real_and_effective);

	return rc ? rc : (int64_t)real_and_effective[1];
}

/* One bit for each field that was found. */
enum { HAS_STATE = 1, HAS_PARENT = 2, HAS_PRIVS = 4, HAS_MODE = 8, HAS_MOST = 15, HAS_FILTERS = 16 };

/* NSpid: the process ID in each PID namespace, from that of /proc down to its own. */
static bool take_namespaces(const char *line, struct bf_status *status)
{
	const char *last;

	if (strncmp(line, "NSpid:", 6) != 0)
		return false;
	last = strrchr(line, '\t');
	status->is_nested = last && strchr(line, '\t') != last;
	status->is_init = last && atoi(last) == 1;
	return true;
}

static unsigned take_status_line(const char *line, struct bf_status *status, unsigned *mode)
{
	unsigned number;

	if (sscanf(line, "Name: %63s", status->name) == 1)
		return 0; /* the name may be empty */
	if (take_namespaces(line, status))
		return 0;
	if (sscanf(line, "State: %c", &status->state) == 1)
		return HAS_STATE;
	if (sscanf(line, "PPid: %d", &status->parent) == 1)
		return HAS_PARENT;
	if (sscanf(line, "Seccomp: %u", mode) == 1)
		return HAS_MODE;
	if (sscanf(line, "Seccomp_filters: %u", &status->filters) == 1)
		return HAS_FILTERS;
	if (sscanf(line, "NoNewPrivs: %u", &number) != 1)
		return 0;
	status->has_no_new_privs = number != 0;
	return HAS_PRIVS;
}

int bf_status_read(pid_t pid, struct bf_status *status)
{
	char path[48], line[256];
	cleanup_file FILE *file = NULL;
	unsigned found = 0, mode = 0;
	bool is_start = true; /* of a line: a line may be longer than the buffer */

	*status = (struct bf_status){ 0 };
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		if (is_start)
			found |= take_status_line(line, status, &mode);
		is_start = strchr(line, '\n') != NULL;
	}
	if ((found & HAS_MOST) != HAS_MOST)
		return -ESRCH;
	if (!(found & HAS_FILTERS)) /* Linux before 5.9 has no such line */
		status->filters = mode != 0;
	return 0;
}

bool bf_is_hidden(pid_t pid)
{
	char path[32], byte;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid); /* needs the same permission as /proc/PID/fd */
	return readlink(path, &byte, 1) < 0 && errno == EACCES;
}

int bf_same_files(pid_t a, pid_t b)
{
	long rc = syscall(SYS_kcmp, a, b, KCMP_FILES, 0, 0);

	return rc < 0 ? -errno : rc == 0;
}

bool bf_same_memory(pid_t a, pid_t b)
{
	return syscall(SYS_kcmp, a, b, KCMP_VM, 0, 0) == 0;
}

int bf_same_file(pid_t pid, int fd_a, int fd_b)
{
	return syscall(SYS_kcmp, pid, pid, KCMP_FILE, (unsigned long)fd_a, (unsigned long)fd_b) == 0;
}

bool bf_same_file_as(pid_t pid, int theirs, int ours)
{
	return syscall(SYS_kcmp, pid, getpid(), KCMP_FILE, (unsigned long)theirs, (unsigned long)ours) == 0;
}

/* Kills the children of one thread of this process, and returns their number. */
static int end_children(const char *tid)
{
	char path[64];
	cleanup_file FILE *children = NULL;
	int count = 0, child;

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/children", tid);
	children = fopen(path, "re");
	for (; children && fscanf(children, "%d", &child) == 1; count++)
		kill(child, SIGKILL);
	return count;
}

void bf_end_descendants(void)
{
	/* Only children are killed: a child's PID is not reused before this process waits for it. The
	 * children of a dead child become children of this process, and the next round finds them. */
	for (int round = 0; round < 2000; round++) {
		DIR *tasks = opendir("/proc/self/task");
		int count = 0;

		for (struct dirent *entry; tasks && (entry = readdir(tasks));)
			if (entry->d_name[0] != '.')
				count += end_children(entry->d_name);
		if (tasks)
			closedir(tasks);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (!count)
			return;
		usleep(1000);
	}
}

void bf_hold_standard_files(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) < 0)
			_exit(1);
}

int bf_drop_capabilities(uint32_t kept)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct had[2] = { { 0 } }, left[2] = { { 0 } };

	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); /* fails on kernels that have none */
	if (syscall(SYS_capget, &head, had))
		return -errno;
	left[0].permitted = left[0].effective = had[0].permitted & kept;
	/* With no_new_privs, not even root gains capabilities by execve. */
	if (syscall(SYS_capset, &head, left) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return 0;
}

bool bf_is_admin(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

void bf_raise_file_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

int bf_send_fd(int sock, int fd)
{
	return bf_message_send(sock, "f", 1, fd, 0);
}

int bf_recv_fd(int sock)
{
	char byte;
	int fd;
	ssize_t got = bf_message_receive(sock, &byte, 1, &fd, 0);

	return got < 0 ? (int)got : fd < 0 ? -EPIPE : fd;
}

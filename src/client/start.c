/* Start a private belfryd. Separate from talk.c, so that the client library contains no fork(). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"
#include "base/process.h"
#include "client/talk.h"

enum { START_TIMEOUT_S = 20 };

/* Open or create a file beside the socket. */
static int open_beside(const char *path, int flags, struct bf_error *err)
{
	cleanup_close int fd = open(path, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return bf_fail(err, errno, "%s: %s; set BELFRY_RUNTIME_DIR to another folder", path,
			       strerror(errno));
	return bf_take_fd(&fd);
}

/* The lock is held while a private belfryd is started. */
static int take_lock(const struct talk_place *place, struct bf_error *err)
{
	char path[sizeof(place->path) + 16];
	cleanup_close int fd = -1;

	snprintf(path, sizeof(path), "%s.start.lock", place->path);
	fd = open_beside(path, O_RDWR, err);
	if (fd < 0)
		return fd;
	while (flock(fd, LOCK_EX))
		if (errno != EINTR)
			return bf_fail(err, errno, "%s: cannot be locked: %s", path, strerror(errno));
	return bf_take_fd(&fd);
}

static void log_path(const struct talk_place *place, char *to, size_t room)
{
	const char *slash = strrchr(place->path, '/');

	snprintf(to, room, "%.*sbelfryd.log", slash ? (int)(slash + 1 - place->path) : 0, place->path);
}

/* The last line of the log after the offset `start`. */
static void last_line(const char *path, long start, char *line, size_t room)
{
	cleanup_file FILE *file = fopen(path, "re");
	char read[320];

	snprintf(line, room, "it ended without a word; see %s", path);
	if (file && fseek(file, start, SEEK_SET))
		return;
	while (file && fgets(read, sizeof(read), file)) {
		read[strcspn(read, "\n")] = 0;
		if (*read)
			snprintf(line, room, "%s", read);
	}
}

/* In the process that becomes belfryd: it keeps only the environment. */
static void __attribute__((noreturn))
become_daemon(const struct talk_place *place, const char *daemon, int log)
{
	struct sigaction plain = { .sa_handler = SIG_DFL };
	int null = open("/dev/null", O_RDWR);
	sigset_t none;

	sigemptyset(&none);
	for (int i = 1; i < NSIG; i++)
		sigaction(i, &plain, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	unsetenv("LD_PRELOAD"); /* set for the program of the run */
	unsetenv("LD_AUDIT");
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log, 2) < 0)
		_exit(1);
	if (syscall(SYS_close_range, 3u, ~0u, 0u))
		for (int fd = 3; fd < 4096; fd++)
			close(fd);
	if (place->path[0] == '/' && chdir("/"))
		_exit(1);
	execl(daemon, "belfryd", "--private", "--socket", place->path, (char *)NULL);
	dprintf(2, "%s: cannot be started: %s\n", daemon, strerror(errno));
	_exit(1);
}

/* Two forks and a session: belfryd is not a child of the caller, and has no terminal. Returns its PID, or -errno. */
static pid_t spawn(const struct talk_place *place, const char *daemon, int log)
{
	pid_t middle, pid = -1;
	int ends[2];
	ssize_t got;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	middle = fork();
	if (!middle) {
		setsid();
		pid = fork();
		if (!pid)
			become_daemon(place, daemon, log);
		_exit(write(ends[1], &pid, sizeof(pid)) != (ssize_t)sizeof(pid));
	}
	close(ends[1]);
	do
		got = middle < 0 ? 0 : read(ends[0], &pid, sizeof(pid));
	while (got < 0 && errno == EINTR);
	close(ends[0]);
	/* ECHILD: this process inherited an ignored SIGCHLD. */
	while (middle > 0 && waitpid(middle, NULL, 0) < 0 && errno == EINTR)
		;
	return got == (ssize_t)sizeof(pid) && pid > 0 ? pid : -EAGAIN;
}

/* 0 once belfryd answers; -ECHILD if it has ended before. */
static int wait_answer(const struct talk_place *place, pid_t pid)
{
	enum { STEP_MS = 10 };
	uint64_t until_ns = bf_now_ns() + START_TIMEOUT_S * 1000000000ull;
	cleanup_close int pidfd = bf_pidfd_open(pid);
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };

	while (bf_now_ns() < until_ns) {
		/* Checked before connecting: a belfryd that answers and then exits has started. */
		bool has_ended = pidfd == -ESRCH || poll(&ended, 1, 0) > 0;
		cleanup_close int sock = talk_connect(place, NULL);

		if (sock >= 0)
			return 0;
		if (!talk_is_absent(sock) && sock != -ETIMEDOUT)
			return sock;
		if (has_ended)
			return -ECHILD;
		poll(&ended, 1, STEP_MS);
	}
	return -ETIMEDOUT;
}

static int start_locked(const struct talk_place *place, const char *daemon, struct bf_error *err)
{
	char path[sizeof(place->path) + 16], line[320];
	cleanup_close int log = -1;
	struct stat st = { 0 };
	pid_t pid;
	int rc;

	log_path(place, path, sizeof(path));
	log = open_beside(path, O_WRONLY | O_APPEND, err);
	if (log < 0)
		return log;
	fstat(log, &st);
	pid = spawn(place, daemon, log);
	if (pid < 0)
		return bf_fail(err, -pid, "%s: cannot be started: no more processes", daemon);
	rc = wait_answer(place, pid);
	if (!rc)
		return 0;
	last_line(path, (long)st.st_size, line, sizeof(line));
	if (rc == -ECHILD)
		return bf_fail(err, EIO, "%s", line);
	return bf_fail(err, -rc, "belfryd does not answer at %s: %s; see %s", place->path, strerror(-rc),
		       path);
}

int talk_start(const struct talk_place *place, const char *daemon, struct bf_error *err)
{
	cleanup_close int lock = take_lock(place, err);

	if (lock < 0)
		return lock;
	cleanup_close int other = talk_connect(place, err);
	if (other >= 0)
		return 0; /* another process was faster */
	return talk_is_absent(other) ? start_locked(place, daemon, err) : other;
}

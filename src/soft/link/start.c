/* Finds or starts the server of the software GPU. There is one for each name and user, and it is no child of
 * the programs that use it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"
#include "base/retry.h"
#include "soft/link/link.h"

extern char **environ;

enum { START_LIMIT_MS = 5000, LOCK_LIMIT_MS = 10000, LOCK_STEP_US = 5000, READY_FD = 3, CONFIG_MAX = 256 };

/* Held while a process looks for the server and starts it. The server takes it before it ends, so that it
 * does not end while a process is looking for it. */
static int lock_folder(const char *folder, struct bf_error *err)
{
	char path[128];
	cleanup_close int fd = -1;
	uint64_t until_ns = bf_now_ns() + LOCK_LIMIT_MS * 1000000ull;

	snprintf(path, sizeof(path), "%s/lock", folder);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return bf_fail(err, errno, "%s: %s", path, strerror(errno));
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || bf_now_ns() > until_ns)
			return bf_fail(err, errno, "%s: cannot be locked: %s", path, strerror(errno));
		usleep(LOCK_STEP_US);
	}
	return bf_take_fd(&fd);
}

static bool is_like(const struct soft_status *status, const struct link_config *config)
{
	return status->gpu_count == config->gpus && status->sm_count == config->sms &&
	       status->mem_bytes == config->mem_bytes && status->rate == config->rate &&
	       !status->is_paced == !config->is_paced && status->cores == config->cores;
}

static int check_running(const struct soft_status *status, const struct link_config *config,
			 struct bf_error *err)
{
	struct link_config running = *config;
	char text[CONFIG_MAX];

	if (!config->is_given || is_like(status, config))
		return 0;
	running.gpus = status->gpu_count;
	running.sms = status->sm_count;
	running.mem_bytes = status->mem_bytes;
	running.rate = status->rate;
	running.is_paced = status->is_paced;
	running.cores = status->cores;
	link_config_format(&running, text, sizeof(text));
	return bf_fail(
		err, EBUSY,
		"software GPU '%s': one with another configuration is running (%s); stop it with `belfry soft stop "
		"--soft name=%s`, or use another name",
		config->name, text, config->name);
}

/* Variables that preload libraries into the program must not affect the server. */
static char **make_environment(void)
{
	size_t count = 0, kept = 0;
	char **copy;

	while (environ && environ[count])
		count++;
	copy = calloc(count + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < count; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "LD_AUDIT=", 9))
			copy[kept++] = environ[i];
	return copy;
}

/* Default signals, a session of its own, output to the log. The server closes all other inherited files
 * itself. */
static int prepare(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr, const char *log, int ready)
{
	sigset_t all, none;
	int rc;

	sigfillset(&all);
	sigemptyset(&none);
	rc = posix_spawnattr_setflags(attr,
				      POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
	if (!rc)
		rc = posix_spawnattr_setsigdefault(attr, &all);
	if (!rc)
		rc = posix_spawnattr_setsigmask(attr, &none);
	if (!rc) /* first, because the pipe may have one of the numbers below */
		rc = posix_spawn_file_actions_adddup2(actions, ready, READY_FD);
	if (!rc)
		rc = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_addopen(
			actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW, 0600);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(actions, 1, 2);
	return rc;
}

/* The started process forks and ends at once. It is waited for here by its PID, and its child is no child of
 * this process. */
static int spawn(const char *server, const char *config, const char *folder, const char *log, int ready)
{
	const char *const argv[] = { server, "--daemon",   "--config", config, "--folder",
				     folder, "--ready-fd", "3",	       NULL };
	cleanup_free char **environment = make_environment();
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	pid_t pid;
	int rc;

	if (!environment)
		return ENOMEM;
	rc = posix_spawn_file_actions_init(&actions);
	if (rc)
		return rc;
	rc = posix_spawnattr_init(&attr);
	if (!rc) {
		rc = prepare(&actions, &attr, log, ready);
		if (!rc)
			rc = posix_spawn(&pid, server, &actions, &attr, (char *const *)(uintptr_t)argv,
					 environment);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&actions);
	if (rc)
		return rc;
	/* ECHILD: the program waits for all its children, or ignores SIGCHLD. */
	(void)bf_retry(waitpid(pid, NULL, 0));
	return 0;
}

static void last_line(const char *log, char *line, size_t room)
{
	cleanup_file FILE *file = fopen(log, "re");
	char read[256];

	snprintf(line, room, "see %s", log);
	while (file && fgets(read, sizeof(read), file)) {
		read[strcspn(read, "\n")] = 0;
		if (*read)
			snprintf(line, room, "%s", read);
	}
}

/* One byte means that the server answers. End of file without it means that the server has ended. */
static int wait_ready(int pipe_end)
{
	uint64_t until_ns = bf_now_ns() + START_LIMIT_MS * 1000000ull;
	struct pollfd poll_for = { .fd = pipe_end, .events = POLLIN };
	char byte;

	for (uint64_t now_ns; (now_ns = bf_now_ns()) < until_ns;) {
		int rc = poll(&poll_for, 1, (int)((until_ns - now_ns) / 1000000 + 1));

		if (rc > 0)
			return read(pipe_end, &byte, 1) == 1 ? 0 : -ECHILD;
		if (rc < 0 && errno != EINTR)
			return -errno;
	}
	return -ETIMEDOUT;
}

/* Above the numbers that the child uses, also if the program has closed those. */
static int make_pipe(int ends[2])
{
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	for (int i = 0; i < 2; i++) {
		int higher = fcntl(ends[i], F_DUPFD_CLOEXEC, READY_FD + 1);

		if (higher < 0) {
			int why = errno;

			close(ends[0]);
			close(ends[1]);
			return -why;
		}
		close(ends[i]);
		ends[i] = higher;
	}
	return 0;
}

static int start(const char *server, const struct link_config *config, const char *folder,
		 struct bf_error *err)
{
	char log[128], text[CONFIG_MAX], line[256];
	int ends[2], rc;

	snprintf(log, sizeof(log), "%s/log", folder);
	if (link_config_format(config, text, sizeof(text)))
		return bf_fail(err, EINVAL, "software GPU: the configuration is too long");
	rc = make_pipe(ends);
	if (rc)
		return bf_fail(err, -rc, "software GPU: %s", strerror(-rc));
	rc = -spawn(server, text, folder, log, ends[1]);
	close(ends[1]);
	if (rc) {
		close(ends[0]);
		return bf_fail(err, -rc, "%s: cannot be started: %s", server, strerror(-rc));
	}
	rc = wait_ready(ends[0]);
	close(ends[0]);
	if (!rc)
		return 0;
	last_line(log, line, sizeof(line));
	return bf_fail(err, rc == -ECHILD ? EIO : -rc, "software GPU: %s: %s",
		       rc == -ETIMEDOUT ? "it did not start within 5 seconds" : "it did not start", line);
}

int link_start(const char *server, const struct link_config *config, char *folder, size_t room,
	       struct bf_error *err)
{
	int rc = link_folder(config->name, folder, room, err);
	struct soft_status status;

	if (rc)
		return rc;
	cleanup_close int lock = lock_folder(folder, err);
	if (lock < 0)
		return lock;
	rc = link_status(folder, &status, err);
	if (rc == -EPERM)
		return 0; /* the server runs, and only the warden of this process may talk to it */
	if (!rc)
		return check_running(&status, config, err);
	if (rc != -ENOENT && rc != -ECONNREFUSED && rc != -ENODEV)
		return rc;
	rc = start(server, config, folder, err);
	if (rc)
		return rc;
	rc = link_status(folder, &status, err);
	return rc ? rc : check_running(&status, config, err);
}

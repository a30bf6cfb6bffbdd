/* SPDX-License-Identifier: MIT */
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"

enum { CLEANUP_MAX = 8 };

static char created[128];
static pid_t running[CLEANUP_MAX], owner;

/* First politely, so that `belfry run` can end its program; what is left after 2 s is killed. */
static void clean_up(void)
{
	if (getpid() != owner)
		return;
	for (int i = 0; i < CLEANUP_MAX; i++)
		if (running[i] && waitpid(running[i], NULL, WNOHANG) == 0) {
			kill(running[i], SIGTERM);
			wait_for(running[i], 2000);
		}
	if (*created)
		unlink(created);
}

static void clean_up_later(void)
{
	if (owner == getpid())
		return;
	owner = getpid();
	atexit(clean_up);
}

void kill_at_exit(pid_t pid)
{
	clean_up_later();
	for (int i = 0; i < CLEANUP_MAX; i++)
		if (!running[i]) {
			running[i] = pid;
			return;
		}
	fail("more than %d processes to clean up", CLEANUP_MAX);
}

static void *map(int fd, const char *path, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		fail("%s: %s", path, strerror(errno));
	close(fd);
	return at;
}

void *shared_create(char *path, size_t path_size, const char *name, size_t bytes)
{
	int fd;

	clean_up_later();
	snprintf(path, path_size, "/dev/shm/belfry-%s-%d", name, (int)getpid());
	snprintf(created, sizeof(created), "%s", path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		fail("%s: %s", path, strerror(errno));
	return map(fd, path, bytes);
}

void *shared_open(const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		fail("%s: %s", path, strerror(errno));
	return map(fd, path, bytes);
}

void wait_flag(_Atomic uint32_t *flag, pid_t pid, uint64_t timeout_ms, const char *what)
{
	uint64_t end = now_ns() + timeout_ms * 1000000;

	while (!atomic_load(flag)) {
		siginfo_t info = { 0 };

		/* not reaped here: the caller asks for its status later */
		if (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid == pid) {
			if (info.si_code == CLD_EXITED && info.si_status == 77)
				exit(77);
			/* it may have set the flag as its last act */
			if (!atomic_load(flag))
				fail("%s: the program ended first (status %d)", what, info.si_status);
			return;
		}
		if (now_ns() > end)
			fail("%s: nothing within %llu ms", what, (unsigned long long)timeout_ms);
		sleep_us(1000);
	}
}

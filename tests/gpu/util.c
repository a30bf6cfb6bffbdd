/* SPDX-License-Identifier: MIT */
#include "util.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "json.h"

extern char **environ;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void sleep_us(uint64_t us)
{
	struct timespec t = { .tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

void fail(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

const char *option_text(int argc, char **argv, const char *name, const char *fallback)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strncmp(argv[i], "--", 2) && !strcmp(argv[i] + 2, name))
			return argv[i + 1];
	return fallback;
}

static int unit_shift(const char *unit)
{
	if (!*unit)
		return 0;
	if (unit[1])
		return -1;
	switch (*unit) {
	case 'K':
		return 10;
	case 'M':
		return 20;
	case 'G':
		return 30;
	}
	return -1;
}

uint64_t option_number(int argc, char **argv, const char *name, uint64_t fallback)
{
	const char *text = option_text(argc, argv, name, NULL);
	char *end;
	uint64_t value;
	int shift;

	if (!text)
		return fallback;
	value = strtoull(text, &end, 10);
	shift = unit_shift(end);
	if (end == text || shift < 0) {
		fprintf(stderr, "--%s %s: not a number\n", name, text);
		exit(2);
	}
	return value << shift;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double percentile(double *values, size_t count, double percent)
{
	size_t at;

	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), compare);
	at = (size_t)((double)count * percent / 100);
	return values[at < count ? at : count - 1];
}

void sibling_path(char *path, size_t size, const char *name)
{
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (length < 0)
		fail("/proc/self/exe: %s", strerror(errno));
	self[length] = 0;
	slash = strrchr(self, '/');
	if (slash)
		*slash = 0;
	if (snprintf(path, size, "%s/%s", self, name) >= (int)size)
		fail("%s/%s: the path is too long", self, name);
}

pid_t spawn(const char *const argv[], int *out)
{
	posix_spawn_file_actions_t actions;
	int ends[2] = { -1, -1 }, rc;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	if (out) {
		if (pipe(ends))
			fail("pipe: %s", strerror(errno));
		posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
		posix_spawn_file_actions_addclose(&actions, ends[0]);
		posix_spawn_file_actions_addclose(&actions, ends[1]);
	}
	rc = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (rc)
		fail("%s: %s", argv[0], strerror(rc));
	if (out) {
		close(ends[1]);
		*out = ends[0];
	}
	return pid;
}

static int status_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int wait_for(pid_t pid, uint64_t timeout_ms)
{
	uint64_t end = now_ns() + timeout_ms * 1000000;
	int status;

	while (now_ns() < end) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			return status_of(status);
		if (got < 0 && errno != EINTR)
			return -1; /* no such child any more: its number may be another's by now */
		sleep_us(2000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1;
}

static size_t read_all(int fd, char *out, size_t size)
{
	size_t used = 0;
	ssize_t n;
	char rest[512];

	/* what does not fit is read and dropped, so that the writer never blocks */
	while ((n = used + 1 < size ? read(fd, out + used, size - 1 - used) : read(fd, rest, sizeof(rest))) >
	       0)
		if (used + 1 < size)
			used += (size_t)n;
	out[used] = 0;
	return used;
}

int belfry(char *out, size_t size, const char *const args[])
{
	const char *path = getenv("BELFRY"), *argv[8] = { path && *path ? path : "belfry" };
	char nothing[2];
	int fd, status;
	pid_t pid;

	for (int i = 0; i < 6 && args[i]; i++)
		argv[i + 1] = args[i];
	pid = spawn(argv, &fd);
	read_all(fd, out ? out : nothing, out ? size : sizeof(nothing));
	close(fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status_of(status);
}

double belfry_us(const char *verb, const char *name)
{
	const char *args[] = { verb, name, "--json", NULL };
	char out[512];
	int status = belfry(out, sizeof(out), args);

	if (status)
		fail("belfry %s %s: exit status %d", verb, name, status);
	return json_number(json_member(out, "us"), -1);
}

#include "soft/driver/family.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"

enum { KNOWN = 1024, SUPERVISORS_MAX = 256, GENERATIONS_MAX = 4096 };

/* Ancestry is looked up once a process: it only ever changes towards init or a subreaper, which are ancestors too. A
 * supervisor is its descendants' subreaper, so none of them gets away from it by losing its parent. */
struct known {
	pid_t pid;
	uint64_t start;	     /* a number is used again, the time it was given at is not */
	uint64_t generation; /* of the supervisors */
	pid_t under;	     /* the nearest supervisor above it, or 0 */
};

struct family {
	pthread_mutex_t lock;
	pid_t supervisors[SUPERVISORS_MAX];
	unsigned count;
	uint64_t generation;
	struct known known[KNOWN];
};

struct family *family_new(void)
{
	struct family *family = calloc(1, sizeof(*family));

	if (family)
		pthread_mutex_init(&family->lock, NULL);
	return family;
}

void family_free(struct family *family)
{
	if (!family)
		return;
	pthread_mutex_destroy(&family->lock);
	free(family);
}

int family_add(struct family *family, pid_t supervisor)
{
	int rc = 0;

	pthread_mutex_lock(&family->lock);
	if (family->count == SUPERVISORS_MAX)
		rc = -ENOMEM;
	else
		family->supervisors[family->count++] = supervisor;
	family->generation++;
	pthread_mutex_unlock(&family->lock);
	return rc;
}

void family_remove(struct family *family, pid_t supervisor)
{
	pthread_mutex_lock(&family->lock);
	for (unsigned i = 0; i < family->count; i++)
		if (family->supervisors[i] == supervisor) {
			family->supervisors[i] = family->supervisors[--family->count];
			break;
		}
	family->generation++;
	pthread_mutex_unlock(&family->lock);
}

/* The fourth and the twenty-second field of /proc/PID/stat; the second may contain anything but ends with the last
 * parenthesis. */
static int look_up(pid_t pid, pid_t *parent, uint64_t *start)
{
	char path[32], text[512];
	const char *rest;
	unsigned long long began;
	ssize_t got;
	int above;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -ESRCH;
	got = read(fd, text, sizeof(text) - 1);
	if (got <= 0)
		return -ESRCH;
	text[got] = 0;
	rest = strrchr(text, ')');
	if (!rest ||
	    sscanf(rest, ") %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
		   &above, &began) != 2)
		return -ESRCH;
	*parent = above;
	*start = began;
	return 0;
}

static bool is_supervisor(const struct family *family, pid_t pid)
{
	for (unsigned i = 0; i < family->count; i++)
		if (family->supervisors[i] == pid)
			return true;
	return false;
}

/* The nearest supervisor above a process, 0 if there is none, or -ESRCH if it cannot be told any more. */
static pid_t find_above(const struct family *family, pid_t pid)
{
	for (unsigned i = 0; i < GENERATIONS_MAX && pid > 1; i++) {
		uint64_t start;

		if (look_up(pid, &pid, &start))
			return -ESRCH;
		if (is_supervisor(family, pid))
			return pid;
	}
	return 0;
}

static pid_t supervisor_of(struct family *family, pid_t pid)
{
	struct known *known = &family->known[(unsigned)pid % KNOWN];
	pid_t parent, under;
	uint64_t start;

	if (look_up(pid, &parent, &start))
		return -ESRCH;
	if (known->pid == pid && known->start == start && known->generation == family->generation)
		return known->under;
	under = find_above(family, pid);
	if (under >= 0)
		*known = (struct known){ pid, start, family->generation, under };
	return under;
}

bool family_is_empty(struct family *family)
{
	bool is_empty;

	pthread_mutex_lock(&family->lock);
	is_empty = !family->count;
	pthread_mutex_unlock(&family->lock);
	return is_empty;
}

int family_check(struct family *family, pid_t sender, pid_t on_behalf)
{
	int rc = 0;

	pthread_mutex_lock(&family->lock);
	/* Not known is a no: it has ended, and nobody waits for the answer. */
	if (family->count && supervisor_of(family, sender))
		rc = -EPERM;
	else if (on_behalf && (!is_supervisor(family, sender) || supervisor_of(family, on_behalf) != sender))
		rc = -EPERM;
	pthread_mutex_unlock(&family->lock);
	return rc;
}

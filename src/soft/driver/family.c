#include "soft/driver/family.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"

enum { KNOWN = 1024, ROOTS_MAX = 4096, GENERATIONS_MAX = 4096, CLIMBS_MAX = 64 };

/* A PID can be reused, but not together with its start time. */
struct root {
	pid_t pid;
	uint64_t start;
	pid_t supervisor;
	const void *owner;
};

/* Ancestry is looked up once per process: it changes only towards init or a subreaper, which are ancestors
 * too. So no process comes below a root later, and none leaves a root that is its descendants' subreaper. */
struct known {
	pid_t pid;
	uint64_t start;
	uint64_t generation; /* of the roots */
	pid_t under;	     /* the supervisor of the nearest root above it, or 0 */
};

struct family {
	pthread_mutex_t lock;
	struct root roots[ROOTS_MAX];
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

/* Fields 4 and 22 of /proc/PID/stat. Field 2 may contain any character, but ends with the last
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

static void drop_root(struct family *family, unsigned at)
{
	family->roots[at] = family->roots[--family->count];
	family->generation++;
}

/* The supervisor of the descendants of this process, or 0. */
static pid_t supervisor_below(struct family *family, pid_t pid)
{
	pid_t parent;
	uint64_t start;

	for (unsigned i = 0; i < family->count;) {
		if (family->roots[i].pid != pid) {
			i++;
			continue;
		}
		if (!look_up(pid, &parent, &start) && start == family->roots[i].start)
			return family->roots[i].supervisor;
		drop_root(family, i); /* it has died, and the PID was reused */
	}
	return 0;
}

/* Goes up the ancestors once. Returns the supervisor of the nearest root, 0 if there is none, -EAGAIN if an
 * ancestor has died in the meantime. */
static pid_t climb(struct family *family, pid_t pid)
{
	for (unsigned i = 0; i < GENERATIONS_MAX && pid > 1; i++) {
		uint64_t start;
		pid_t found;

		if (look_up(pid, &pid, &start))
			return -EAGAIN;
		found = supervisor_below(family, pid);
		if (found)
			return found;
	}
	return 0;
}

/* A process that loses its parent gets another ancestor as parent, so the search starts again as long as the
 * process itself exists. -ESRCH if its ancestry is unknown. */
static pid_t find_above(struct family *family, pid_t pid)
{
	pid_t found = -EAGAIN, parent;
	uint64_t start;

	for (unsigned i = 0; i < CLIMBS_MAX && found == -EAGAIN && !look_up(pid, &parent, &start); i++)
		found = climb(family, pid);
	return found == -EAGAIN ? -ESRCH : found;
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

static bool is_below(pid_t pid, pid_t root)
{
	uint64_t start;

	for (unsigned i = 0; i < GENERATIONS_MAX && pid > 1; i++)
		if (look_up(pid, &pid, &start) || pid == root)
			return true; /* if unknown, assume the worst */
	return false;
}

static void drop_dead(struct family *family)
{
	pid_t parent;
	uint64_t start;

	for (unsigned i = 0; i < family->count;)
		if (look_up(family->roots[i].pid, &parent, &start) || start != family->roots[i].start)
			drop_root(family, i);
		else
			i++;
}

/* Whether this supervisor may have the root. 1: it already has it, for this owner. */
static int check_root(struct family *family, const struct root *root)
{
	pid_t below = supervisor_below(family, root->pid), above = supervisor_of(family, root->pid);

	if (supervisor_of(family, root->supervisor))
		return -EPERM;
	if (above < 0)
		return above;
	if (root->supervisor != root->pid && is_below(root->supervisor, root->pid))
		return -EINVAL;
	if ((below && below != root->supervisor) || (above && above != root->supervisor))
		return -EBUSY;
	for (unsigned i = 0; i < family->count; i++)
		if (family->roots[i].pid == root->pid && family->roots[i].owner == root->owner)
			return 1;
	return 0;
}

/* With hidepid=2, /proc hides processes that the user may not trace. */
static bool is_hidden(pid_t pid)
{
	return !kill(pid, 0) || errno == EPERM;
}

int family_add(struct family *family, const void *owner, pid_t supervisor, pid_t root_pid)
{
	struct root root = { .pid = root_pid, .supervisor = supervisor, .owner = owner };
	pid_t parent;
	int rc;

	if (root_pid <= 1) /* every process would be below it */
		return -EINVAL;
	if (look_up(root_pid, &parent, &root.start))
		return is_hidden(root_pid) ? -EACCES : -ESRCH;
	pthread_mutex_lock(&family->lock);
	rc = check_root(family, &root);
	if (!rc && family->count == ROOTS_MAX)
		drop_dead(family);
	if (!rc && family->count == ROOTS_MAX)
		rc = -ENOMEM;
	if (!rc) {
		family->roots[family->count++] = root;
		family->generation++;
	}
	pthread_mutex_unlock(&family->lock);
	return rc < 0 ? rc : 0;
}

void family_remove(struct family *family, const void *owner)
{
	pthread_mutex_lock(&family->lock);
	for (unsigned i = 0; i < family->count;)
		if (family->roots[i].owner == owner)
			drop_root(family, i);
		else
			i++;
	pthread_mutex_unlock(&family->lock);
}

bool family_is_empty(struct family *family)
{
	bool is_empty;

	pthread_mutex_lock(&family->lock);
	is_empty = !family->count;
	pthread_mutex_unlock(&family->lock);
	return is_empty;
}

bool family_has_supervisor(struct family *family, pid_t pid)
{
	bool has = false;

	pthread_mutex_lock(&family->lock);
	for (unsigned i = 0; i < family->count; i++)
		has |= family->roots[i].supervisor == pid;
	pthread_mutex_unlock(&family->lock);
	return has;
}

/* Whether `pid` is a helper process of the supervisor, for which clients of programs are created: a child of
 * the supervisor, and no root. */
static bool is_proxy_of(const struct family *family, pid_t pid, pid_t sender)
{
	bool is_supervisor = false;
	pid_t parent;
	uint64_t start;

	for (unsigned i = 0; i < family->count; i++) {
		if (family->roots[i].pid == pid)
			return false;
		is_supervisor |= family->roots[i].supervisor == sender;
	}
	return is_supervisor && !look_up(pid, &parent, &start) && parent == sender;
}

int family_check(struct family *family, pid_t sender, pid_t on_behalf)
{
	int rc = 0;

	pthread_mutex_lock(&family->lock);
	/* Unknown counts as supervised: the sender has ended, and does not read the answer. */
	if (family->count && supervisor_of(family, sender))
		rc = -EPERM;
	else if (on_behalf && supervisor_of(family, on_behalf) != sender &&
		 !is_proxy_of(family, on_behalf, sender))
		rc = -EPERM;
	pthread_mutex_unlock(&family->lock);
	return rc;
}

#include "base/handed.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* include/uapi/asm-generic/socket.h, Linux 6.16 */
#endif

enum {
	OF_ONE_USER = 16,
	OF_ALL = 256,
	STACK_BYTES = 64 << 10,
};

/* A descriptor, and the thread that closes it. */
struct closing {
	LIST_ENTRY(closing) next; /* closings.list */
	int fd;
	uid_t sender;
};

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, closing) list;
} closings = { .lock = PTHREAD_MUTEX_INITIALIZER };

void bf_handing_allow(int sock, bool is_allowed)
{
	int value = is_allowed;

	setsockopt(sock, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value));
}

bool bf_is_memory_file(int fd)
{
	return fcntl(fd, F_GET_SEALS) >= 0;
}

/* The kernel names it like this. */
bool bf_is_listener(int fd)
{
	char path[32], target[64];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return false;
	target[length] = 0;
	return !strcmp(target, "anon_inode:seccomp notify");
}

static void *close_it(void *context)
{
	struct closing *closing = context;

	close(closing->fd);
	pthread_mutex_lock(&closings.lock);
	LIST_REMOVE(closing, next);
	pthread_mutex_unlock(&closings.lock);
	free(closing);
	return NULL;
}

static bool start(struct closing *closing)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int rc;

	if (pthread_attr_init(&attributes))
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	rc = pthread_create(&thread, &attributes, close_it, closing);
	pthread_attr_destroy(&attributes);
	return !rc;
}

void bf_close_handed(int *fd, uid_t sender)
{
	struct closing *closing = *fd < 0 || bf_is_memory_file(*fd) ? NULL : malloc(sizeof(*closing));

	if (closing) {
		*closing = (struct closing){ .fd = *fd, .sender = sender };
		pthread_mutex_lock(&closings.lock);
		LIST_INSERT_HEAD(&closings.list, closing, next);
		pthread_mutex_unlock(&closings.lock);
		if (!start(closing))
			close_it(closing);
	} else if (*fd >= 0) {
		close(*fd);
	}
	*fd = -1;
}

void bf_close_connection(int *sock)
{
	struct ucred peer = { .uid = (uid_t)-1 };
	socklen_t peer_length = sizeof(peer), length = sizeof(int);
	int is_allowed = 1;

	if (*sock >= 0 && !getsockopt(*sock, SOL_SOCKET, SO_PASSRIGHTS, &is_allowed, &length) &&
	    !is_allowed) {
		close(*sock);
		*sock = -1;
		return;
	}
	getsockopt(*sock, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length);
	bf_close_handed(sock, peer.uid);
}

bool bf_handed_is_full(uid_t sender)
{
	const struct closing *closing;
	unsigned of_one = 0, of_all = 0;

	pthread_mutex_lock(&closings.lock);
	LIST_FOREACH(closing, &closings.list, next) {
		of_all++;
		of_one += closing->sender == sender;
	}
	pthread_mutex_unlock(&closings.lock);
	return of_one >= OF_ONE_USER || of_all >= OF_ALL;
}

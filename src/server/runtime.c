#include "server/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/own.h"

enum { ANSWER_TIMEOUT_S = 20 };
static const char suffix[] = ".sock";

int runtime_check_name(const char *name, struct bf_error *err)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	static const char rest[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t length = strlen(name);

	if (!length || length > RUNTIME_NAME_MAX || !strchr(first, name[0]) || strspn(name, rest) != length)
		return bf_fail(err, EINVAL,
			       "name '%s': not a name; use 1 to 63 of a-z 0-9 . _ -, a letter or digit first",
			       name);
	return 0;
}

int runtime_folder(char *to, size_t room, struct bf_error *err)
{
	return bf_runtime_folder(to, room, err);
}

static int socket_address(const char *name, struct sockaddr_un *address, struct bf_error *err)
{
	char folder[sizeof(address->sun_path)];
	int rc = runtime_folder(folder, sizeof(folder), err), length;

	if (rc)
		return rc;
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	length = snprintf(address->sun_path, sizeof(address->sun_path), "%s/%s%s", folder, name, suffix);
	if (length < 0 || (size_t)length >= sizeof(address->sun_path))
		return bf_fail(err, ENAMETOOLONG,
			       "%s: the path of its socket is too long; set BELFRY_RUNTIME_DIR", name);
	return 0;
}

/* Connected, or -errno: -ECONNREFUSED if nobody is behind the socket, -ENOENT if there is none. */
static int socket_connect(const struct sockaddr_un *address)
{
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct timeval limit = { .tv_sec = ANSWER_TIMEOUT_S };

	if (sock < 0)
		return -errno;
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(sock, (const struct sockaddr *)address, sizeof(*address)))
		return -errno;
	return bf_take_fd(&sock);
}

/* Held while one looks for others of its name and takes it: -1 if it cannot be had, which only loses the guard. */
static int lock_folder(void)
{
	char folder[108];
	cleanup_close int fd = runtime_folder(folder, sizeof(folder), NULL)
				       ? -1
				       : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX))
		return -1;
	return bf_take_fd(&fd);
}

int runtime_listen(const char *name, char *path, size_t room, struct bf_error *err)
{
	cleanup_close int sock = -1;
	struct sockaddr_un address;
	int rc = socket_address(name, &address, err);

	if (rc)
		return rc;
	cleanup_close int lock = lock_folder();
	(void)lock;
	cleanup_close int other = socket_connect(&address);
	if (other >= 0 || other == -EAGAIN)
		return bf_fail(err, EEXIST, "name '%s': a vGPU of this name is running; choose another",
			       name);
	if (other == -ECONNREFUSED)
		unlink(address.sun_path); /* left by a supervisor that was killed */
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t mask = umask(0177);
	rc = sock < 0 || bind(sock, (struct sockaddr *)&address, sizeof(address)) || listen(sock, 16) ? -errno
												      : 0;
	umask(mask);
	if (rc == -EADDRINUSE)
		return bf_fail(err, EEXIST, "name '%s': a vGPU of this name is starting; choose another",
			       name);
	if (rc)
		return bf_fail(err, -rc, "%s: %s", address.sun_path, strerror(-rc));
	snprintf(path, room, "%s", address.sun_path);
	return bf_take_fd(&sock);
}

int runtime_ask(const char *name, const struct protocol_request *request, struct protocol_reply *reply,
		struct bf_error *err)
{
	struct sockaddr_un address;
	cleanup_close int sock = -1;
	ssize_t got;
	int rc = runtime_check_name(name, err);

	if (!rc)
		rc = socket_address(name, &address, err);
	if (rc)
		return rc;
	sock = socket_connect(&address);
	if (sock == -ENOENT || sock == -ECONNREFUSED)
		return bf_fail(err, ENOENT,
			       "%s: no vGPU of this name is running; belfry ls lists those that are", name);
	if (sock < 0)
		return bf_fail(err, -sock, "%s: cannot be reached: %s", name, strerror(-sock));
	if (send(sock, request, sizeof(*request), MSG_NOSIGNAL) != (ssize_t)sizeof(*request))
		return bf_fail(err, errno, "%s: cannot be asked: %s", name, strerror(errno));
	got = recv(sock, reply, sizeof(*reply), 0);
	if (got < 0)
		return bf_fail(err, errno, "%s: no answer: %s", name, strerror(errno));
	if (got != (ssize_t)sizeof(*reply) || reply->magic != PROTOCOL_MAGIC ||
	    reply->version != PROTOCOL_VERSION)
		return bf_fail(err, EPROTO,
			       "%s: its supervisor is of another version; use the belfry that started it",
			       name);
	reply->text[sizeof(reply->text) - 1] = reply->name[sizeof(reply->name) - 1] = 0;
	if (reply->code)
		return bf_fail(err, reply->code, "%s: %s", name, reply->text);
	return 0;
}

int runtime_each(void (*visit)(void *context, const char *name), void *context, struct bf_error *err)
{
	char folder[108], name[RUNTIME_NAME_MAX + 1];
	struct dirent **entries;
	int rc = runtime_folder(folder, sizeof(folder), err), count;

	if (rc)
		return rc;
	count = scandir(folder, &entries, NULL, alphasort);
	if (count < 0)
		return bf_fail(err, errno, "%s: %s", folder, strerror(errno));
	for (int i = 0; i < count; i++) {
		size_t length = strlen(entries[i]->d_name), tail = sizeof(suffix) - 1;
		struct sockaddr_un address;

		if (length > tail && length - tail <= RUNTIME_NAME_MAX &&
		    !strcmp(entries[i]->d_name + length - tail, suffix)) {
			snprintf(name, sizeof(name), "%.*s", (int)(length - tail), entries[i]->d_name);
			cleanup_close int sock = -1;
			if (!runtime_check_name(name, NULL) && !socket_address(name, &address, NULL)) {
				sock = socket_connect(&address);
				if (sock == -ECONNREFUSED)
					unlink(address.sun_path);
				else if (sock >= 0)
					visit(context, name);
			}
		}
		free(entries[i]);
	}
	free(entries);
	return 0;
}

/* The public socket: only one belfryd can have it, and no other user can replace it. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/handed.h"
#include "base/own.h"
#include "router/internal.h"

/* A belfryd that is ending may wait for its servers. Its successor waits for it. */
enum { LOCK_WAIT_S = 15, LOCK_STEP_US = 20000, BACKLOG = 128, SUFFIX_MAX = sizeof(".soft-00000000") };

static int check_folder(const char *path, struct bf_error *err)
{
	char copy[108], *folder;
	struct stat st;

	snprintf(copy, sizeof(copy), "%s", path);
	folder = dirname(copy);
	if (stat(folder, &st))
		return bf_fail(err, errno, "%s: %s; make it, or use another --socket", folder,
			       strerror(errno));
	if ((st.st_uid != geteuid() && st.st_uid) || st.st_mode & 022)
		return bf_fail(
			err, EPERM,
			"%s: others can write there and could take the socket's place; use a --socket in "
			"a folder of your own",
			folder);
	return 0;
}

static bool is_listening(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return sock >= 0 && (!connect(sock, (struct sockaddr *)&address, sizeof(address)) || errno == EAGAIN);
}

static int fail_locked(const char *path, int lock_fd, struct bf_error *err)
{
	char pid[16] = "";
	ssize_t got = pread(lock_fd, pid, sizeof(pid) - 1, 0);

	pid[got > 0 ? got : 0] = 0;
	pid[strspn(pid, "0123456789")] = 0;
	return bf_fail(err, EADDRINUSE, "%s: belfryd already runs here (process %s)", path,
		       *pid ? pid : "unknown");
}

static int take_lock(struct router *router, struct bf_error *err)
{
	uint64_t until_ns = bf_now_ns() + LOCK_WAIT_S * ROUTER_S;
	char path[128], text[16];
	struct stat st;
	int length;

	snprintf(path, sizeof(path), "%s.lock", router->socket);
	router->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (router->lock_fd < 0 || fstat(router->lock_fd, &st))
		return bf_fail(err, errno, "%s: cannot be opened: %s; use another --socket", path,
			       strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return bf_fail(err, EPERM, "%s: not a file of this user's; use another --socket", path);
	while (flock(router->lock_fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return bf_fail(err, errno, "%s: cannot be locked: %s", path, strerror(errno));
		if (is_listening(router->socket) || bf_now_ns() > until_ns)
			return fail_locked(router->socket, router->lock_fd, err);
		usleep(LOCK_STEP_US);
	}
	length = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(router->lock_fd, 0) || pwrite(router->lock_fd, text, (size_t)length, 0) != length)
		bf_log(BF_LOG_WARN, "%s: cannot be written: %s", path, strerror(errno));
	return 0;
}

/* With the lock held: what is at the path is left over, or never was of a belfryd. */
static int clear_path(const char *path, struct bf_error *err)
{
	struct stat st;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : bf_fail(err, errno, "%s: %s", path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return bf_fail(err, EEXIST,
			       "%s: there is something that is no socket; move it away, or use "
			       "another --socket",
			       path);
	if (st.st_uid != geteuid())
		return bf_fail(err, EPERM,
			       "%s: a socket of user %u is there; remove it, or use another --socket", path,
			       st.st_uid);
	return unlink(path) ? bf_fail(err, errno, "%s: cannot be replaced: %s", path, strerror(errno)) : 0;
}

static const mode_t modes[] = { [CONFIG_OWNER] = 0600, [CONFIG_EVERYONE] = 0666, [CONFIG_GROUP] = 0660 };

static gid_t group_of(const struct router *router)
{
	return router->config.access == CONFIG_GROUP ? router->config.group : (gid_t)-1;
}

static int chmod_above(const char *folder, mode_t mode)
{
	char copy[sizeof(((struct protocol_gpu *)0)->folder)];

	snprintf(copy, sizeof(copy), "%s", folder);
	return chmod(dirname(copy), mode) ? -errno : 0;
}

/* The parent is the runtime folder, which only its user may be able to enter. */
static int let_through(struct router_server *server)
{
	const char *folder = server->gpu.folder;
	char copy[sizeof(server->gpu.folder)];
	struct stat st;

	snprintf(copy, sizeof(copy), "%s", folder);
	if (chmod(folder, 0711) || stat(dirname(copy), &st))
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & 0111) == 0111)
		return 0;
	server->mode_above = st.st_mode & 07777;
	return chmod_above(folder, server->mode_above | 0111);
}

static int keep_out(struct router_server *server)
{
	mode_t mode = server->mode_above;

	server->mode_above = 0;
	if (chmod(server->gpu.folder, 0700))
		return -errno;
	return mode ? chmod_above(server->gpu.folder, mode) : 0;
}

void router_soft_access(const struct router *router, struct router_server *server)
{
	/* Tasks of Slurm's jobs are other users' programs, and reach the socket for attached programs, which is below the
	 * folder. No other file there is theirs. */
	bool is_shared = router->config.access != CONFIG_OWNER || geteuid() == 0;
	char path[sizeof(server->gpu.folder) + sizeof("/socket")];
	int rc;

	if (!server->has_soft || !server->gpu.folder[0])
		return;
	snprintf(path, sizeof(path), "%s/socket", server->gpu.folder);
	rc = chmod(path, 0600) || lchown(path, (uid_t)-1, group_of(router)) ||
			     chmod(path, modes[router->config.access])
		     ? -errno
		     : 0;
	if (!rc)
		rc = is_shared ? let_through(server) : keep_out(server);
	if (rc)
		bf_log(BF_LOG_WARN, "%s: access to it cannot be set: %s", path, strerror(-rc));
}

int router_socket_access(const struct router *router, struct bf_error *err)
{
	gid_t group = group_of(router);

	for (struct router_server *server = router->servers; server; server = server->next)
		router_soft_access(router, server);

	/* The group before the mode: no other user gets access in between. */
	if (chmod(router->socket, 0600) || lchown(router->socket, (uid_t)-1, group) ||
	    chmod(router->socket, modes[router->config.access]))
		return bf_fail(err, errno,
			       "%s: access cannot be set: %s; belfryd has to be in that group, or root",
			       router->socket, strerror(errno));
	return 0;
}

static int listen_at(struct router *router, struct bf_error *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	mode_t mask;
	int rc;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", router->socket);
	router->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (router->listen_fd < 0)
		return bf_fail(err, errno, "%s: no socket: %s", router->socket, strerror(errno));
	mask = umask(0177);
	rc = bind(router->listen_fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	umask(mask);
	if (rc)
		return bf_fail(err, -rc, "%s: %s; use another --socket", router->socket, strerror(-rc));
	rc = router_socket_access(router, err);
	if (rc)
		return rc;
	bf_handing_allow(router->listen_fd, false);
	if (listen(router->listen_fd, BACKLOG) || !router_clients_listen(router))
		return bf_fail(err, errno, "%s: %s", router->socket, strerror(errno));
	return 0;
}

int router_socket_name(struct router *router, struct bf_error *err)
{
	const char *path = router->options.socket;

	if (strlen(path) + SUFFIX_MAX > sizeof(router->socket))
		return bf_fail(err, ENAMETOOLONG,
			       "%s: too long a path, the most is %zu bytes; use another --socket, or set "
			       "BELFRY_RUNTIME_DIR",
			       path, sizeof(router->socket) - SUFFIX_MAX);
	snprintf(router->socket, sizeof(router->socket), "%s", path);
	snprintf(router->state_path, sizeof(router->state_path), "%s.state", path);
	return 0;
}

int router_socket_take(struct router *router, struct bf_error *err)
{
	int rc = check_folder(router->socket, err);

	if (!rc)
		rc = take_lock(router, err);
	if (!rc)
		rc = clear_path(router->socket, err);
	return rc ? rc : listen_at(router, err);
}

void router_socket_close(struct router *router)
{
	int fd;

	if (router->listen_fd < 0)
		return;
	unlink(router->socket);
	/* From here on connect() is refused. Clients that connected before are in the queue. */
	shutdown(router->listen_fd, SHUT_RDWR);
	while ((fd = accept4(router->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		router_client_part(router, fd, EAGAIN, "belfryd is ending; try again");
	loop_remove(router->loop, router->listen_source);
	router->listen_source = NULL;
	router->accept_after_ns = 0;
	close(router->listen_fd);
	router->listen_fd = -1;
}

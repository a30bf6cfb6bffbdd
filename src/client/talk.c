#include "client/talk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/message.h"
#include "base/own.h"
#include "base/process.h"

enum { ANSWER_TIMEOUT_S = 20, START_TIMEOUT_S = 20, BODY_MAX = 256 << 20 };
static const char system_path[] = "/run/belfry/belfryd.sock";

/* Connected, or -errno: -ECONNREFUSED if nobody is behind the socket, -ENOENT if there is none. */
static int socket_connect(const char *path)
{
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct timeval limit = { .tv_sec = ANSWER_TIMEOUT_S };
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (sock < 0)
		return -errno;
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(sock, (const struct sockaddr *)&address, sizeof(address)))
		return -errno;
	return bf_take_fd(&sock);
}

static bool nobody_is_there(int rc)
{
	return rc == -ENOENT || rc == -ECONNREFUSED;
}

static bool system_answers(void)
{
	cleanup_close int sock = socket_connect(system_path);

	return sock >= 0;
}

int talk_find(struct talk_place *place, struct bf_error *err)
{
	const char *given = getenv("BELFRY_SOCKET"), *folder = getenv("BELFRY_RUNTIME_DIR");
	char above[sizeof(place->path)];
	int rc, length;

	*place = (struct talk_place){ .is_private = false };
	if (given && *given) {
		length = snprintf(place->path, sizeof(place->path), "%s", given);
		if (length < 0 || (size_t)length >= sizeof(place->path))
			return bf_fail(err, ENAMETOOLONG,
				       "BELFRY_SOCKET: its path is too long; the most is 107 characters");
		return 0;
	}
	if ((!folder || !*folder) && system_answers()) {
		snprintf(place->path, sizeof(place->path), "%s", system_path);
		return 0;
	}
	rc = bf_runtime_folder(above, sizeof(above), err);
	if (rc)
		return rc;
	length = snprintf(place->path, sizeof(place->path), "%s/belfryd.sock", above);
	/* root's own folder is the system's: a private belfryd there must not be taken for that of the system. */
	if (!strcmp(place->path, system_path))
		length = snprintf(place->path, sizeof(place->path), "%s/private.sock", above);
	if (length < 0 || (size_t)length >= sizeof(place->path))
		return bf_fail(err, ENAMETOOLONG,
			       "%s: the path of belfryd's socket is too long; set BELFRY_RUNTIME_DIR", above);
	place->is_private = true;
	return 0;
}

/* What we tell it, and what it has us do, only root and we ourselves may know and say. */
static int check_peer(const struct talk_place *place, int sock, struct bf_error *err)
{
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length))
		return bf_fail(err, errno, "%s: cannot tell whose it is: %s", place->path, strerror(errno));
	if (who.uid && who.uid != geteuid())
		return bf_fail(err, EPERM, "%s: served by user %u, whom you have no reason to trust",
			       place->path, who.uid);
	return 0;
}

int talk_connect(const struct talk_place *place, struct bf_error *err)
{
	cleanup_close int sock = socket_connect(place->path);
	int rc;

	if (nobody_is_there(sock))
		return bf_fail(err, -sock, "%s: no belfryd answers there; start it, or set BELFRY_SOCKET",
			       place->path);
	if (sock < 0)
		return bf_fail(err, -sock, "%s: cannot be reached: %s", place->path, strerror(-sock));
	rc = check_peer(place, sock, err);
	return rc ? rc : bf_take_fd(&sock);
}

/* A file of that name beside the socket, or one named after it. */
static int open_beside(const char *path, int flags, struct bf_error *err)
{
	cleanup_close int fd = open(path, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return bf_fail(err, errno, "%s: %s; set BELFRY_RUNTIME_DIR to another folder", path,
			       strerror(errno));
	return bf_take_fd(&fd);
}

/* Whoever starts it holds this meanwhile. */
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

/* What has been said last, from `start` of the log on. */
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

/* In the process that becomes belfryd: nothing of ours but the environment. */
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
	unsetenv("LD_PRELOAD"); /* meant for the program */
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

/* Two forks and a session: it is nobody's child, and no terminal's. Returns its number, or -errno. */
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
	/* ECHILD: our parent had us ignore our children. */
	while (middle > 0 && waitpid(middle, NULL, 0) < 0 && errno == EINTR)
		;
	return got == (ssize_t)sizeof(pid) && pid > 0 ? pid : -EAGAIN;
}

/* 0 once it answers; -ECHILD if it has ended instead. */
static int wait_answer(const struct talk_place *place, pid_t pid)
{
	enum { STEP_MS = 10 };
	uint64_t until_ns = bf_now_ns() + START_TIMEOUT_S * 1000000000ull;
	cleanup_close int pidfd = bf_pidfd_open(pid);
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };

	while (bf_now_ns() < until_ns) {
		/* Looked at first: one that ended after it had answered did so of its own. */
		bool has_ended = pidfd == -ESRCH || poll(&ended, 1, 0) > 0;
		cleanup_close int sock = socket_connect(place->path);

		if (sock >= 0)
			return 0;
		if (!nobody_is_there(sock) && sock != -EAGAIN)
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
	cleanup_close int other = socket_connect(place->path);
	if (other >= 0)
		return 0; /* somebody was faster */
	if (!nobody_is_there(other))
		return bf_fail(err, -other, "%s: cannot be reached: %s", place->path, strerror(-other));
	return start_locked(place, daemon, err);
}

/* The whole of a sealed file, with a NUL after it. Not mapped: in a supervised process that would be a call to the
 * warden. */
static int read_body(int file, char **body, struct bf_error *err)
{
	enum { SEALS = F_SEAL_WRITE | F_SEAL_SHRINK };
	cleanup_free char *text = NULL;
	int seals = fcntl(file, F_GET_SEALS);
	size_t done = 0, bytes;
	struct stat st;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(file, &st))
		return bf_fail(err, EPROTO, "belfryd's answer could still be changed; restart it");
	if (st.st_size < 0 || st.st_size > BODY_MAX)
		return bf_fail(err, EFBIG, "belfryd's answer has %lld bytes; the most is 256 MiB",
			       (long long)st.st_size);
	bytes = (size_t)st.st_size;
	text = malloc(bytes + 1);
	if (!text)
		return bf_fail(err, ENOMEM, "belfryd's answer has %zu bytes: no memory for it", bytes);
	while (done < bytes) {
		ssize_t got = pread(file, text + done, bytes - done, (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return bf_fail(err, got ? errno : EPROTO, "belfryd's answer cannot be read");
		done += (size_t)got;
	}
	text[bytes] = 0;
	*body = text;
	text = NULL;
	return 0;
}

static int check_reply(struct protocol_reply *reply, ssize_t got, struct bf_error *err)
{
	if (got == -EAGAIN)
		return bf_fail(
			err, ETIMEDOUT,
			"belfryd, or the GPU server it has asked, does not answer; see its log, or restart it");
	if (got == 0 || got == -ECONNRESET)
		return bf_fail(err, ECONNRESET,
			       "belfryd closed the connection without an answer; see its log, or try again");
	if (got < 0 && got != -EMSGSIZE)
		return bf_fail(err, (int)-got, "belfryd's answer did not arrive: %s", strerror((int)-got));
	if ((got == -EMSGSIZE || got >= 8) && reply->magic == PROTOCOL_MAGIC &&
	    reply->version != PROTOCOL_VERSION)
		return bf_fail(err, EPROTO,
			       "belfryd is of another version (it speaks %u, this belfry %u); restart it",
			       reply->version, PROTOCOL_VERSION);
	if (got != (ssize_t)sizeof(*reply) || reply->magic != PROTOCOL_MAGIC)
		return bf_fail(err, EPROTO, "what answered is not belfryd, or not whole; restart it");
	reply->text[sizeof(reply->text) - 1] = reply->name[sizeof(reply->name) - 1] = 0;
	reply->gpu.folder[sizeof(reply->gpu.folder) - 1] = 0;
	if (reply->code)
		return bf_fail(err, reply->code > 0 ? reply->code : EPROTO, "%s",
			       reply->text[0] ? reply->text : "belfryd refused, and did not say why");
	return 0;
}

/* What is to be said, and the reply to it. A refusal, too, may have a body. */
static int exchange(int sock, const void *message, size_t bytes, int with, struct protocol_reply *reply,
		    char **body, struct bf_error *err)
{
	cleanup_close int file = -1;
	int rc;

	if (body)
		*body = NULL;
	memset(reply, 0, sizeof(*reply));
	/* One that has gone may have said why before: that is still to be read. */
	rc = bf_message_send(sock, message, bytes, with, 0);
	if (rc && rc != -EPIPE)
		return bf_fail(err, -rc, "belfryd cannot be asked: %s", strerror(-rc));
	rc = check_reply(reply, bf_message_receive(sock, reply, sizeof(*reply), &file, 0), err);
	if (!body || file < 0)
		return rc;
	return rc ? (read_body(file, body, NULL), rc) : read_body(file, body, err);
}

int talk_ask(int sock, const struct protocol_request *request, struct protocol_reply *reply, char **body,
	     struct bf_error *err)
{
	return exchange(sock, request, sizeof(*request), -1, reply, body, err);
}

int talk_give_policy(int sock, const struct protocol_policy *policy, int file, struct protocol_reply *reply,
		     char **body, struct bf_error *err)
{
	return exchange(sock, policy, sizeof(*policy), file, reply, body, err);
}

static int ask_place(const struct talk_place *place, const struct protocol_request *request,
		     struct protocol_reply *reply, char **body, struct bf_error *err)
{
	cleanup_close int sock = talk_connect(place, err);

	if (nobody_is_there(sock) && request->name[0])
		return bf_fail(err, ENOENT, "%s: no vGPU of this name; belfry ls lists those that are",
			       request->name);
	return sock < 0 ? sock : talk_ask(sock, request, reply, body, err);
}

int talk_once(const struct protocol_request *request, struct protocol_reply *reply, char **body,
	      struct bf_error *err)
{
	enum { TIMES = 5 };
	struct talk_place place;
	int rc;

	if (body)
		*body = NULL;
	rc = talk_find(&place, err);
	if (rc)
		return rc;
	/* A private one that is just about to end says so; then nobody is there, or the next one. */
	rc = ask_place(&place, request, reply, body, err);
	for (int i = 1; i < TIMES && rc == -EAGAIN && place.is_private; i++)
		rc = ask_place(&place, request, reply, body, err);
	return rc;
}

struct protocol_request talk_request(enum protocol_op op, const char *name)
{
	struct protocol_request request = {
		.magic = PROTOCOL_MAGIC, .version = PROTOCOL_VERSION, .op = op, .spec = spec_default
	};

	if (name)
		snprintf(request.name, sizeof(request.name), "%s", name);
	return request;
}

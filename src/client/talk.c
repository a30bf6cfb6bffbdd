#include "client/talk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/message.h"
#include "base/own.h"

enum { DEFAULT_LIMIT_MS = 20000, BODY_MAX = 256 << 20 };
static const char system_path[] = "/run/belfry/belfryd.sock";

static uint64_t until_of(unsigned limit_ms)
{
	return bf_now_ns() + (limit_ms ? limit_ms : DEFAULT_LIMIT_MS) * 1000000ull;
}

/* Milliseconds until then, rounded up; 0: the time has passed. */
static int left_ms(uint64_t until_ns)
{
	uint64_t now_ns = bf_now_ns();
	uint64_t ms = until_ns > now_ns ? (until_ns - now_ns + 999999) / 1000000 : 0;

	return ms < INT_MAX ? (int)ms : INT_MAX;
}

/* The time limit is stored in the socket, where talk_ask() reads it. */
static void set_limit(int sock, int ms)
{
	struct timeval limit = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000L };

	if (!ms)
		limit.tv_usec = 1; /* 0 would be no limit */
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static uint64_t until_of_socket(int sock)
{
	struct timeval limit = { 0 };
	socklen_t length = sizeof(limit);

	if (getsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, &length) || (!limit.tv_sec && !limit.tv_usec))
		return until_of(0);
	return bf_now_ns() + (uint64_t)limit.tv_sec * 1000000000u + (uint64_t)limit.tv_usec * 1000u;
}

/* A connected socket, or -errno: -ECONNREFUSED if no process listens on the socket, -ENOENT if there is no socket,
 * -ETIMEDOUT if its backlog stays full. A signal does not extend the wait. */
static int socket_connect(const char *path, uint64_t until_ns)
{
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int rc;

	if (sock < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	do {
		set_limit(sock, left_ms(until_ns));
		rc = connect(sock, (const struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	} while (rc == -EINTR && left_ms(until_ns));
	if (rc)
		return rc == -EAGAIN || rc == -EINTR ? -ETIMEDOUT : rc;
	set_limit(sock, left_ms(until_ns));
	return bf_take_fd(&sock);
}

bool talk_is_absent(int rc)
{
	return rc == -ENOENT || rc == -ECONNREFUSED;
}

/* A belfryd whose backlog stays full is running. */
static bool system_answers(struct talk_place *place, uint64_t until_ns)
{
	cleanup_close int sock = socket_connect(system_path, until_ns);

	place->is_barred = talk_is_barred(system_path, sock, &place->barred_by);
	return sock >= 0 || sock == -ETIMEDOUT;
}

static int set_path(struct talk_place *place, const char *what, const char *path, struct bf_error *err)
{
	int length = snprintf(place->path, sizeof(place->path), "%s", path);

	if (length < 0 || (size_t)length >= sizeof(place->path))
		return bf_fail(err, ENAMETOOLONG, "%s: its path is too long; the most is 107 characters",
			       what);
	return 0;
}

static int find(struct talk_place *place, const char *socket, uint64_t until_ns, struct bf_error *err)
{
	const char *given = getenv("BELFRY_SOCKET"), *folder = getenv("BELFRY_RUNTIME_DIR");
	char above[sizeof(place->path)];
	int rc, length;

	*place = (struct talk_place){ .is_private = false };
	if (socket)
		return set_path(place, "socket", socket, err);
	if (given && *given)
		return set_path(place, "BELFRY_SOCKET", given, err);
	if ((!folder || !*folder) && system_answers(place, until_ns))
		return set_path(place, "socket", system_path, err);
	rc = bf_runtime_folder(above, sizeof(above), err);
	if (rc)
		return rc;
	length = snprintf(place->path, sizeof(place->path), "%s/belfryd.sock", above);
	/* root's own folder is the system's: a private belfryd there must not be mistaken for the system's. */
	if (!strcmp(place->path, system_path))
		length = snprintf(place->path, sizeof(place->path), "%s/private.sock", above);
	if (length < 0 || (size_t)length >= sizeof(place->path))
		return bf_fail(err, ENAMETOOLONG,
			       "%s: the path of belfryd's socket is too long; set BELFRY_RUNTIME_DIR", above);
	place->is_private = true;
	return 0;
}

int talk_find(struct talk_place *place, struct bf_error *err)
{
	return find(place, NULL, until_of(0), err);
}

int talk_find_way(const struct talk_way *way, struct talk_place *place, struct bf_error *err)
{
	return find(place, way->socket, until_of(way->limit_ms), err);
}

/* A client trusts only a belfryd of root or of its own user. */
static int check_peer(const struct talk_place *place, int sock, struct bf_error *err)
{
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length))
		return bf_fail(err, errno, "%s: cannot tell whose it is: %s", place->path, strerror(errno));
	if (who.uid && who.uid != geteuid())
		return bf_fail(
			err, EPERM,
			"%s: served by user %u; belfry trusts only a belfryd of root or of its own user",
			place->path, who.uid);
	return 0;
}

/* A private belfryd is started on demand by the commands that need it. */
static int fail_absent(const struct talk_place *place, int why, struct bf_error *err)
{
	if (place->is_barred)
		return bf_fail(err, why,
			       "no belfryd of this user runs, and the system's, of user %u, " TALK_BARRED,
			       place->barred_by);
	if (place->is_private)
		return bf_fail(err, why, "no belfryd runs; belfry create and belfry run start one");
	return bf_fail(
		err, why,
		"%s: no belfryd answers there; start it with belfryd --socket %s, or unset BELFRY_SOCKET",
		place->path, place->path);
}

static int connect_until(const struct talk_place *place, uint64_t until_ns, struct bf_error *err)
{
	cleanup_close int sock = socket_connect(place->path, until_ns);
	uid_t by;
	int rc;

	if (talk_is_absent(sock))
		return fail_absent(place, -sock, err);
	if (talk_is_barred(place->path, sock, &by))
		return bf_fail(err, EACCES, "%s: its belfryd, of user %u, " TALK_BARRED, place->path, by);
	if (sock < 0)
		return bf_fail(err, -sock, "%s: cannot be reached: %s", place->path, strerror(-sock));
	rc = check_peer(place, sock, err);
	return rc ? rc : bf_take_fd(&sock);
}

int talk_connect(const struct talk_place *place, struct bf_error *err)
{
	return connect_until(place, until_of(0), err);
}

/* Read a whole sealed file, with a NUL after it. It is not mapped: in a supervised process that would be a call to
 * the warden. */
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

/* Like bf_message_receive(); -EAGAIN if no message arrives by until_ns. A signal does not extend the wait. */
static ssize_t receive(int sock, struct protocol_reply *reply, int *file, uint64_t until_ns)
{
	struct pollfd fd = { .fd = sock, .events = POLLIN };
	ssize_t got = -EAGAIN;
	int left;

	do {
		left = left_ms(until_ns);
		if (poll(&fd, 1, left) < 0 && errno != EINTR)
			return -errno;
		got = bf_message_receive(sock, reply, sizeof(*reply), file, MSG_DONTWAIT);
	} while (got == -EAGAIN && left);
	return got;
}

/* Send a message and receive its reply. A refusal may also have a body. */
static int exchange(int sock, const void *message, size_t bytes, int with, struct protocol_reply *reply,
		    char **body, struct bf_error *err)
{
	uint64_t until_ns = until_of_socket(sock);
	cleanup_close int file = -1;
	int rc;

	if (body)
		*body = NULL;
	memset(reply, 0, sizeof(*reply));
	/* A belfryd that is gone may have sent a reply before, which is still read. */
	rc = bf_message_send(sock, message, bytes, with, 0);
	if (rc && rc != -EPIPE)
		return bf_fail(err, -rc, "belfryd cannot be asked: %s", strerror(-rc));
	rc = check_reply(reply, receive(sock, reply, &file, until_ns), err);
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

int talk_give_probe(int sock, const struct protocol_probe *probe, int file, struct protocol_reply *reply,
		    char **body, struct bf_error *err)
{
	return exchange(sock, probe, sizeof(*probe), file, reply, body, err);
}

int talk_give_listener(int sock, const struct protocol_attached *attached, int listener,
		       struct protocol_reply *reply, struct bf_error *err)
{
	return exchange(sock, attached, sizeof(*attached), listener, reply, NULL, err);
}

int talk_fail_unknown(const struct talk_place *place, const char *name, struct bf_error *err)
{
	if (place->is_barred)
		return bf_fail(
			err, ENOENT,
			"%s: no vGPU of this name, as no belfryd of this user runs, and the system's, of user "
			"%u, " TALK_BARRED,
			name, place->barred_by);
	return bf_fail(err, ENOENT,
		       "%s: no vGPU of this name, as no belfryd runs; belfry create and belfry run start one",
		       name);
}

/* A private belfryd exits once it has no vGPU. So if it does not run, the vGPU does not exist. */
static int ask_place(const struct talk_place *place, const struct protocol_request *request,
		     struct protocol_reply *reply, char **body, uint64_t until_ns, struct bf_error *err)
{
	cleanup_close int sock = connect_until(place, until_ns, err);

	if (sock >= 0)
		return talk_ask(sock, request, reply, body, err);
	if (!talk_is_absent(sock))
		return sock;
	if (place->is_private && request->name[0] && request->op != PROTOCOL_CREATE)
		return talk_fail_unknown(place, request->name, err);
	if (err)
		err->code = ECONNREFUSED;
	return -ECONNREFUSED;
}

int talk_by(const struct talk_way *way, const struct protocol_request *request, struct protocol_reply *reply,
	    char **body, struct bf_error *err)
{
	enum { TIMES = 5 };
	uint64_t until_ns = until_of(way->limit_ms);
	struct talk_place place;
	int rc;

	if (body)
		*body = NULL;
	rc = find(&place, way->socket, until_ns, err);
	if (rc)
		return rc;
	/* A private belfryd that is about to exit refuses with EAGAIN. Then none runs, or the next one. */
	rc = ask_place(&place, request, reply, body, until_ns, err);
	for (int i = 1; i < TIMES && rc == -EAGAIN && place.is_private; i++)
		rc = ask_place(&place, request, reply, body, until_ns, err);
	return rc;
}

int talk_once(const struct protocol_request *request, struct protocol_reply *reply, char **body,
	      struct bf_error *err)
{
	const struct talk_way usual = { .socket = NULL };

	return talk_by(&usual, request, reply, body, err);
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

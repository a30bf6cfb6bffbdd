/* The GPU servers: find or start them, receive their messages, and start them again. */
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/message.h"
#include "base/own.h"
#include "base/process.h"
#include "router/internal.h"

enum {
	FIND_S = 5,   /* until a server that was left running sends HALL_READY */
	START_S = 60, /* until a new server sends HALL_READY */
	HEAR_S = 2,   /* until a server that was left running has reported its vGPUs */
	LEAVE_S = 10, /* from the end of its connection to the end of its process */
	RETRY_S = 30, /* after a failure */
	FAILED_FRESH_S = 1,
	MINUTE_S = 60,
	MESSAGES_AT_ONCE = 256,
};

static void name_server(const struct router *router, struct router_server *server)
{
	const struct protocol_gpu *gpu = &server->gpu;
	uint32_t hash;

	if (gpu->kind != PROTOCOL_GPU_SOFT) {
		snprintf(server->label, sizeof(server->label), "GPU %" PRIu32, gpu->index);
		snprintf(server->path, sizeof(server->path), "%.90s.gpu%" PRIu32, router->socket, gpu->index);
		return;
	}
	hash = (bf_hash(gpu->folder) ^ gpu->index) * 16777619u;
	snprintf(server->label, sizeof(server->label), "GPU soft:%" PRIu32, gpu->index);
	snprintf(server->path, sizeof(server->path), "%.90s.soft-%08" PRIx32, router->socket, hash);
}

bool router_server_is_of(const struct router_server *server, const struct protocol_gpu *gpu)
{
	return server->gpu.kind == gpu->kind && server->gpu.index == gpu->index &&
	       (gpu->kind != PROTOCOL_GPU_SOFT || !gpu->folder[0] ||
		!strcmp(gpu->folder, server->gpu.folder));
}

struct router_server *router_server_find(struct router *router, const struct protocol_gpu *gpu)
{
	struct router_server *found = NULL;

	/* Without a folder several software GPUs may match. One that runs takes precedence over one that is only
	 * listed. */
	for (struct router_server *server = router->servers; server; server = server->next)
		if (router_server_is_of(server, gpu) &&
		    (!found || (found->phase == ROUTER_OFF && server->phase != ROUTER_OFF)))
			found = server;
	return found;
}

struct router_server *router_server_add(struct router *router, const struct protocol_gpu *gpu,
					struct bf_error *err)
{
	struct router_server **at = &router->servers, *server = NULL;
	unsigned count = 0;

	for (; *at; at = &(*at)->next)
		count++;
	if (count < ROUTER_SERVERS_MAX)
		server = calloc(1, sizeof(*server));
	if (!server) {
		bf_fail(err, ENOSPC, "there are %u GPU servers already, the most is %d", count,
			ROUTER_SERVERS_MAX);
		return NULL;
	}
	*server = (struct router_server){ .gpu = *gpu,
					  .sock = -1,
					  .pidfd = -1,
					  .deadline_ns = ROUTER_NEVER,
					  .retry_ns = ROUTER_NEVER,
					  .has_soft = gpu->kind == PROTOCOL_GPU_SOFT && !gpu->folder[0] };
	server->last = &server->first;
	name_server(router, server);
	*at = server;
	return server;
}

bool router_server_is_coming(const struct router_server *server)
{
	return server->phase == ROUTER_FINDING || server->phase == ROUTER_STARTING ||
	       server->phase == ROUTER_HEARING ||
	       (server->phase == ROUTER_LEAVING && server->was_ready && !server->has_failed);
}

bool router_may_start(struct router_starts *starts, uint64_t now_ns, uint64_t *again_ns)
{
	uint64_t *oldest = &starts->at_ns[starts->next];

	if (*oldest && now_ns - *oldest < MINUTE_S * ROUTER_S) {
		*again_ns = *oldest + MINUTE_S * ROUTER_S;
		return false;
	}
	*oldest = now_ns;
	starts->next = (starts->next + 1) % ROUTER_STARTS;
	return true;
}

struct hall_message router_message(const struct router *router, enum hall_kind kind)
{
	return (struct hall_message){ .magic = HALL_MAGIC,
				      .version = PROTOCOL_VERSION,
				      .kind = kind,
				      .uid = geteuid(),
				      .gid = getegid(),
				      .pid = getpid(),
				      .flags = (uint32_t)router->config.log << 8 |
					       (router->options.any_driver ? PROTOCOL_ANY_DRIVER : 0) |
					       (router->options.is_private ? HALL_PRIVATE : 0),
				      .settings = router->config.sharing };
}

/* Send a message, and the connection that belongs to it. Returns 0 or -errno. */
static int send_message(int sock, const struct hall_message *message, int fd)
{
	return bf_message_send(sock, message, sizeof(*message), fd, MSG_DONTWAIT);
}

int router_server_send(struct router_server *server, const struct hall_message *message)
{
	int rc = server->sock < 0 ? -ENOTCONN : send_message(server->sock, message, -1);

	if (rc)
		bf_log(BF_LOG_WARN, "%s: its server cannot be told: %s", server->label, strerror(-rc));
	return rc;
}

static struct router_ask *take_first(struct router_server *server)
{
	struct router_ask *ask = server->first;

	server->first = ask->next;
	if (!server->first)
		server->last = &server->first;
	ask->next = NULL;
	server->asks--;
	return ask;
}

static void handed_over(struct router *router, struct router_server *server, struct router_ask *ask)
{
	struct router_vgpu *vgpu = ask->holds_name ? router_vgpu_find(router, ask->message.request.name)
						   : NULL;

	if (vgpu && vgpu->phase == ROUTER_RESERVED)
		vgpu->until_ns = bf_now_ns() + ROUTER_RESERVE_S * ROUTER_S;
	if (ask->fd >= 0)
		close(ask->fd);
	else if (ask->message.kind == HALL_REQUEST)
		server->own_asks++;
	free(ask);
}

/* Send as much of the queue as the server accepts. */
static void flush(struct router *router, struct router_server *server)
{
	while (server->first && server->phase == ROUTER_READY) {
		struct router_ask *ask = server->first;
		int rc;

		if (ask->is_awaiting) {
			ask = take_first(server);
			ask->is_awaiting = false;
			router_dispatch(router, ask);
			continue;
		}
		rc = send_message(server->sock, &ask->message, ask->fd);
		if (rc == -EAGAIN || rc == -ETOOMANYREFS || rc == -ENOBUFS || rc == -ENOMEM)
			return;
		if (rc) /* the server is exiting: the queue waits for the next one */
			return;
		handed_over(router, server, take_first(server));
	}
}

static void enqueue(struct router *router, struct router_server *server, struct router_ask *ask)
{
	struct bf_error err;

	/* belfryd's own requests are at most as many as the vGPUs. */
	if (server->asks >= ROUTER_ASKS_MAX && ask->fd >= 0) {
		bf_fail(&err, EAGAIN,
			"%s: %d requests wait for its server, the most it takes; try again later",
			server->label, ROUTER_ASKS_MAX);
		router_refuse(router, ask, &err);
		return;
	}
	*server->last = ask;
	server->last = &ask->next;
	server->asks++;
}

void router_server_ask(struct router *router, struct router_server *server, struct router_ask *ask)
{
	ask->is_awaiting = false;
	enqueue(router, server, ask);
	flush(router, server);
}

void router_server_await(struct router *router, struct router_server *server, struct router_ask *ask)
{
	ask->is_awaiting = true;
	enqueue(router, server, ask);
}

/* Refuse all waiting requests, or dispatch them again. */
static void fail_queue(struct router *router, struct router_server *server)
{
	struct router_ask *all = server->first, *next;
	struct bf_error err;

	server->first = NULL;
	server->last = &server->first;
	server->asks = 0;
	bf_fail(&err, ENODEV, "%s", server->failure);
	for (; all; all = next) {
		next = all->next;
		all->next = NULL;
		if (all->is_awaiting && !router->is_ending)
			router_dispatch(router, all);
		else
			router_refuse(router, all, &err);
	}
}

static int connect_to(const char *path, pid_t *pid)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);

	if (sock < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(sock, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length))
		return -errno;
	if (who.uid != geteuid())
		return -EPERM;
	*pid = who.pid;
	return bf_take_fd(&sock);
}

/* Connect to a server that an earlier belfryd has left running. */
static bool find_running(struct router *router, struct router_server *server)
{
	struct hall_message message = router_message(router, HALL_SETTINGS);
	pid_t pid = 0;
	int sock = connect_to(server->path, &pid);

	if (sock == -ECONNREFUSED)
		unlink(server->path);
	if (sock == -EPERM)
		bf_log(BF_LOG_WARN, "%s: a server of another user's is there; it is left alone",
		       server->path);
	if (sock < 0)
		return false;
	server->sock = sock;
	server->pid = 0;
	/* There is no process to wait for if the server runs in this one. */
	server->pidfd = pid > 0 && pid != getpid() ? bf_pidfd_open(pid) : -1;
	server->phase = ROUTER_FINDING;
	server->deadline_ns = bf_now_ns() + FIND_S * ROUTER_S;
	router_server_send(server, &message);
	return true;
}

static bool is_served_twice(const struct router *router, const struct router_server *server)
{
	for (const struct router_server *other = router->servers; other; other = other->next)
		if (other != server && !strcmp(other->path, server->path))
			return true;
	return false;
}

static int start_new(struct router *router, struct router_server *server, struct bf_error *err)
{
	const struct router_options *options = &router->options;
	struct hall_message message;
	int rc = 0;

	if (server->has_soft) {
		rc = options->start_soft ? options->start_soft(options->context, server->gpu.folder,
							       sizeof(server->gpu.folder), err)
					 : bf_fail(err, ENODEV, "there is no software GPU here");
		name_server(router, server);
		if (!rc)
			router_soft_access(router, server);
		if (!rc && is_served_twice(router, server))
			rc = bf_fail(err, EEXIST, "it has a server already");
		/* Only now the path is known of a server that was left running. */
		if (!rc && find_running(router, server))
			return 0;
	}
	if (rc)
		return rc;
	server->sock = options->start_server(options->context, &server->gpu, &server->pid, err);
	if (server->sock < 0) {
		rc = server->sock;
		server->sock = -1;
		return rc;
	}
	server->pidfd = server->pid > 0 ? bf_pidfd_open(server->pid) : -1;
	server->phase = ROUTER_STARTING;
	server->deadline_ns = bf_now_ns() + START_S * ROUTER_S;
	message = router_message(router, HALL_START);
	message.gpu.gpu = message.request.gpu = server->gpu;
	if (server->any_driver)
		message.flags |= PROTOCOL_ANY_DRIVER;
	memcpy(message.socket, server->path, sizeof(message.socket));
	router_server_send(server, &message);
	return 0;
}

static void note_failure(struct router *router, struct router_server *server, const char *text)
{
	char whole[sizeof(server->failure)];

	snprintf(whole, sizeof(whole), "%s: %.440s", server->label, text);
	if (strcmp(whole, server->failure)) {
		bf_log(BF_LOG_ERROR, "%s", whole);
		router_event_server(router, EVENT_SERVER_FAILED, server, text);
	}
	memcpy(server->failure, whole, sizeof(server->failure));
	server->failed_ns = bf_now_ns();
	server->has_failed = true;
}

bool router_server_begin(struct router *router, struct router_server *server)
{
	uint64_t now_ns = bf_now_ns(), again_ns;
	struct bf_error err = { 0 };
	char text[128];

	if (server->phase != ROUTER_OFF)
		return true;
	if (router->is_ending ||
	    (server->failure[0] && now_ns - server->failed_ns < FAILED_FRESH_S * ROUTER_S))
		return false;
	server->was_ready = server->has_failed = false;
	server->retry_ns = ROUTER_NEVER;
	if (!server->has_soft || server->gpu.folder[0])
		if (find_running(router, server))
			return true;
	if (!router_may_start(&server->starts, now_ns, &again_ns)) {
		server->retry_ns = again_ns;
		snprintf(text, sizeof(text),
			 "its server was started %d times within a minute; the next time is in %u s",
			 ROUTER_STARTS, (unsigned)((again_ns - now_ns) / ROUTER_S + 1));
		note_failure(router, server, text);
		return false;
	}
	if (!start_new(router, server, &err))
		return true;
	note_failure(router, server, err.text);
	server->retry_ns = now_ns + RETRY_S * ROUTER_S;
	return false;
}

static bool is_needed(const struct router *router, const struct router_server *server)
{
	return (server->is_listed && !router->options.is_private) || router_vgpus_wait(router, server);
}

static bool has_asks_of_its_own(const struct router_server *server)
{
	for (const struct router_ask *ask = server->first; ask; ask = ask->next)
		if (!ask->is_awaiting)
			return true;
	return false;
}

/* The process has ended. */
static void went_off(struct router *router, struct router_server *server)
{
	bool has_died = server->was_ready && !server->has_failed;

	server->phase = ROUTER_OFF;
	server->deadline_ns = ROUTER_NEVER;
	server->use = (struct hall_gpu){ 0 };
	server->own_asks = server->ticket_count = 0;
	unlink(server->path); /* a killed server has left it */
	if (router->is_ending)
		return;
	router_vgpus_lost(router, server);
	if (has_died) {
		server->failure[0] = 0;
		if ((is_needed(router, server) || has_asks_of_its_own(server)) &&
		    router_server_begin(router, server))
			return;
	} else if (is_needed(router, server)) {
		server->retry_ns = bf_now_ns() + RETRY_S * ROUTER_S;
	}
	router_check_settled(router);
	if (server->phase == ROUTER_OFF)
		fail_queue(router, server);
}

static void tell_death(struct router *router, const struct router_server *server)
{
	char text[96];

	bf_log(BF_LOG_ERROR, "%s: its server has died", server->label);
	snprintf(text, sizeof(text), "process %d, with %u vGPUs and %u runs", server->use.server_pid,
		 server->use.vgpus, server->use.runs);
	router_event_server(router, EVENT_SERVER_DIED, server, text);
}

/* The connection is closed. */
static void lost(struct router *router, struct router_server *server)
{
	bool was_found = server->phase == ROUTER_FINDING;

	close(server->sock);
	server->sock = -1;
	if (was_found) {
		/* It cannot be used: start a new one. */
		if (server->pidfd >= 0)
			close(server->pidfd);
		server->pidfd = -1;
		server->phase = ROUTER_OFF;
		bf_log(BF_LOG_WARN, "%s: what was found at %s is no server of this version", server->label,
		       server->path);
		unlink(server->path);
		if (server->gpu.kind == PROTOCOL_GPU_ANY || !router_server_begin(router, server))
			went_off(router, server);
		return;
	}
	if (!server->was_ready && !server->has_failed)
		note_failure(router, server, "its server ended as it started; see the log");
	else if (server->was_ready && !router->is_ending)
		tell_death(router, server);
	server->phase = ROUTER_LEAVING;
	server->deadline_ns = bf_now_ns() + LEAVE_S * ROUTER_S;
	if (server->pidfd < 0)
		went_off(router, server);
}

void router_server_exited(struct router *router, struct router_server *server)
{
	int status;

	if (server->pid > 0 && waitpid(server->pid, &status, WNOHANG) == 0)
		return;
	close(server->pidfd);
	server->pidfd = -1;
	server->pid = 0;
	if (server->sock >= 0)
		router_server_hear(router, server); /* its last messages, then the end of the connection */
	if (server->phase == ROUTER_LEAVING)
		went_off(router, server);
}

/* A server that was found running has had its event already. */
static void tell_ready(struct router *router, const struct router_server *server)
{
	char text[64];

	bf_log(BF_LOG_INFO, "%s: its server is ready (process %d)", server->label, server->use.server_pid);
	snprintf(text, sizeof(text), "process %d, driver %s", server->use.server_pid, server->use.driver);
	if (server->phase == ROUTER_STARTING)
		router_event_server(router, EVENT_SERVER_STARTED, server, text);
}

static void ready(struct router *router, struct router_server *server)
{
	struct router_ask *waiting, **last;

	tell_ready(router, server);
	server->phase = ROUTER_READY;
	server->deadline_ns = ROUTER_NEVER;
	server->was_ready = true;
	server->failure[0] = 0;
	/* Its vGPUs are created again before the waiting requests are sent. */
	waiting = server->first;
	last = server->last;
	server->first = NULL;
	server->last = &server->first;
	router_vgpus_remake(router, server);
	if (waiting) {
		*server->last = waiting;
		server->last = last;
	}
	router_check_settled(router);
	flush(router, server);
}

static void heard_ready(struct router *router, struct router_server *server,
			const struct hall_message *message)
{
	bool is_found = server->phase == ROUTER_FINDING;

	if (!is_found && server->phase != ROUTER_STARTING)
		return;
	server->use = message->gpu;
	server->use.driver[sizeof(server->use.driver) - 1] = 0;
	if (server->gpu.kind == PROTOCOL_GPU_ANY) { /* only its socket was known */
		char path[sizeof(server->path)];

		memcpy(path, server->path, sizeof(path));
		server->gpu = message->gpu.gpu;
		server->gpu.folder[sizeof(server->gpu.folder) - 1] = 0;
		name_server(router, server);
		memcpy(server->path, path, sizeof(path));
	}
	server->to_hear = is_found ? message->gpu.vgpus : 0;
	if (is_found) {
		char text[64];

		bf_log(BF_LOG_INFO, "%s: its server was found running, with %u vGPUs", server->label,
		       server->to_hear);
		snprintf(text, sizeof(text), "process %d, with %u vGPUs and %u runs", server->use.server_pid,
			 server->use.vgpus, server->use.runs);
		router_event_server(router, EVENT_SERVER_ADOPTED, server, text);
	}
	if (!server->to_hear) {
		ready(router, server);
		return;
	}
	server->phase = ROUTER_HEARING;
	server->deadline_ns = bf_now_ns() + HEAR_S * ROUTER_S;
}

static void note_ticket(struct router_server *server, uint32_t ticket)
{
	if (server->ticket_count == server->ticket_room) {
		unsigned room = server->ticket_room ? 2 * server->ticket_room : 16;
		uint32_t *more = reallocarray(server->tickets, room, sizeof(*more));

		if (!more)
			return; /* the client's request times out */
		server->tickets = more;
		server->ticket_room = room;
	}
	server->tickets[server->ticket_count++] = ticket;
}

static void heard(struct router *router, struct router_server *server, struct hall_message *message)
{
	message->text[sizeof(message->text) - 1] = 0;
	message->request.name[SPEC_NAME_MAX] = 0;
	message->request.spec.domain[SPEC_NAME_MAX] = 0;
	switch (message->kind) {
	case HALL_READY:
		heard_ready(router, server, message);
		return;
	case HALL_FAILED:
		note_failure(router, server, message->text);
		return;
	case HALL_VGPU:
		if (!router->is_ending)
			router_vgpu_told(router, server, message);
		if (server->phase == ROUTER_HEARING && !--server->to_hear)
			ready(router, server);
		return;
	case HALL_GONE:
		router_account(router, server, message);
		router_event_gone(router, server, message);
		if (!router->is_ending)
			router_vgpu_gone(router, server, message->request.name);
		return;
	case HALL_REFUSED:
		server->own_asks -= !(message->flags & HALL_CLIENTS) && server->own_asks;
		router_vgpu_refused(router, server, message);
		return;
	case HALL_DONE:
		server->own_asks -= server->own_asks > 0;
		return;
	case HALL_EVENT:
		router_event(router, &message->event);
		return;
	case HALL_SAVE:
		note_ticket(server, message->ticket);
		return;
	case HALL_USE:
		server->use.mem_reserved_bytes = message->gpu.mem_reserved_bytes;
		server->use.request_ppm = message->gpu.request_ppm;
		server->use.vgpus = message->gpu.vgpus;
		server->use.runs = message->gpu.runs;
		return;
	default:
		bf_log(BF_LOG_WARN, "%s: its server says something unknown (%u)", server->label,
		       message->kind);
	}
}

void router_server_hear(struct router *router, struct router_server *server)
{
	struct hall_message message;

	for (unsigned i = 0; i < MESSAGES_AT_ONCE && server->sock >= 0; i++) {
		ssize_t got = recv(server->sock, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (got != (ssize_t)sizeof(message) || message.magic != HALL_MAGIC ||
		    message.version != PROTOCOL_VERSION) {
			if (got > 0)
				bf_log(BF_LOG_ERROR, "%s: its server is of another version", server->label);
			lost(router, server);
			return;
		}
		heard(router, server, &message);
	}
	flush(router, server);
}

void router_server_tick(struct router *router, struct router_server *server, uint64_t now_ns)
{
	if (server->retry_ns <= now_ns) {
		server->retry_ns = ROUTER_NEVER;
		if (server->phase == ROUTER_OFF && !router_server_begin(router, server))
			fail_queue(router, server);
	}
	if (server->phase == ROUTER_READY && server->first)
		flush(router, server);
	if (server->deadline_ns > now_ns)
		return;
	server->deadline_ns = ROUTER_NEVER;
	if (server->phase == ROUTER_HEARING) {
		bf_log(BF_LOG_WARN, "%s: %u vGPUs of its server were not heard of", server->label,
		       server->to_hear);
		ready(router, server);
	} else if (server->phase == ROUTER_FINDING) {
		lost(router, server);
	} else if (server->phase == ROUTER_STARTING) {
		note_failure(router, server, "its server does not become ready");
		if (server->pidfd >= 0)
			bf_pidfd_kill(server->pidfd, SIGKILL);
		lost(router, server);
	} else if (server->phase == ROUTER_LEAVING && server->pidfd >= 0) {
		bf_log(BF_LOG_WARN, "%s: its server does not end; it is killed", server->label);
		bf_pidfd_kill(server->pidfd, SIGKILL);
	}
}

uint64_t router_server_due(const struct router_server *server)
{
	uint64_t due_ns = server->deadline_ns < server->retry_ns ? server->deadline_ns : server->retry_ns;

	/* The socket is full: try again in a millisecond. */
	if (server->phase == ROUTER_READY && server->first && due_ns > bf_now_ns() + ROUTER_MS)
		due_ns = bf_now_ns() + ROUTER_MS;
	return due_ns;
}

static void adopt_path(struct router *router, const char *path)
{
	struct protocol_gpu unknown = { .kind = PROTOCOL_GPU_ANY };
	struct router_server *server;

	for (server = router->servers; server; server = server->next)
		if (!strcmp(server->path, path))
			return;
	if (strlen(path) >= sizeof(server->path))
		return;
	server = router_server_add(router, &unknown, NULL);
	if (!server)
		return;
	snprintf(server->path, sizeof(server->path), "%s", path);
	snprintf(server->label, sizeof(server->label), "GPU ?");
	if (!find_running(router, server))
		router_server_free(router, server);
}

void router_servers_adopt(struct router *router)
{
	static const char *const suffixes[] = { ".gpu*", ".soft-*" };
	char pattern[sizeof(router->socket) + 16];
	glob_t found;

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		snprintf(pattern, sizeof(pattern), "%s%s", router->socket, suffixes[i]);
		if (glob(pattern, 0, NULL, &found))
			continue;
		for (size_t j = 0; j < found.gl_pathc; j++)
			adopt_path(router, found.gl_pathv[j]);
		globfree(&found);
	}
}

void router_server_free(struct router *router, struct router_server *server)
{
	struct router_server **at = &router->servers;

	while (*at != server)
		at = &(*at)->next;
	*at = server->next;
	snprintf(server->failure, sizeof(server->failure), "belfryd is ending; try again");
	fail_queue(router, server);
	if (server->sock >= 0)
		close(server->sock);
	if (server->pidfd >= 0)
		close(server->pidfd);
	free(server->tickets);
	free(server);
}

void router_servers_sweep(struct router *router, uint64_t now_ns)
{
	struct router_server *next;

	for (struct router_server *server = router->servers; server; server = next) {
		next = server->next;
		if (server->is_listed || server->phase != ROUTER_OFF || server->first || server->pidfd >= 0 ||
		    (server->failure[0] && now_ns - server->failed_ns < MINUTE_S * ROUTER_S) ||
		    router_vgpus_any(router, server))
			continue;
		router_server_free(router, server);
	}
}

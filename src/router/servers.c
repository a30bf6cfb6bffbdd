/* The GPU servers: find or start them, and start them again. */
#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/number.h"
#include "base/own.h"
#include "base/process.h"
#include "router/internal.h"

enum {
	FIND_S = 5,   /* until a server that was left running sends HALL_READY */
	START_S = 60, /* until a new server sends HALL_READY */
	LEAVE_S = 10, /* from the end of its connection to the end of its process */
	RETRY_S = 30, /* after a failure */
	FAILED_FRESH_S = 1,
	MINUTE_S = 60,
};

bool router_server_is_coming(const struct router_server *server)
{
	return !server->has_failed &&
	       (server->phase == ROUTER_FINDING || server->phase == ROUTER_STARTING ||
		server->phase == ROUTER_HEARING ||
		(server->phase == ROUTER_LEAVING && (server->was_ready || server->was_found)));
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

void router_server_hang_up(struct router_server *server)
{
	loop_remove(server->router->loop, server->sock_source);
	server->sock_source = NULL;
	if (server->sock >= 0)
		close(server->sock);
	server->sock = -1;
	server->is_blocked = false;
}

void router_server_forget_process(struct router_server *server)
{
	loop_remove(server->router->loop, server->pidfd_source);
	server->pidfd_source = NULL;
	if (server->pidfd >= 0)
		close(server->pidfd);
	server->pidfd = -1;
	server->pid = 0;
}

static void sock_ready(void *context, uint32_t events)
{
	struct router_server *server = context;

	if (events & EPOLLOUT)
		router_server_unblock(server);
	router_server_hear(server->router, server);
}

static void exited(void *context, uint32_t events);

/* Called for a new connection or process, and by each tick, in case there was no memory. */
static void watch(struct router_server *server)
{
	struct loop *loop = server->router->loop;

	if (server->sock >= 0 && !server->sock_source)
		server->sock_source = loop_add(loop, server->sock, EPOLLIN, LOOP_FIRST, sock_ready, server);
	if (server->pidfd >= 0 && !server->pidfd_source)
		server->pidfd_source = loop_add(loop, server->pidfd, EPOLLIN, LOOP_FIRST, exited, server);
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
	watch(server);
	server->was_found = true;
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
		router_server_name(router, server);
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
	server->pidfd = server->pid > 0 ? router_child_open(server->pid, err) : -1;
	if (server->pid > 0 && server->pidfd < 0) {
		server->pid = 0;
		router_server_hang_up(server);
		return -err->code;
	}
	watch(server);
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

void router_server_failed(struct router *router, struct router_server *server, const char *text)
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
		return !server->has_failed;
	if (router->is_ending ||
	    (server->failure[0] && now_ns - server->failed_ns < FAILED_FRESH_S * ROUTER_S))
		return false;
	server->was_ready = server->was_found = server->has_failed = false;
	server->retry_ns = ROUTER_NEVER;
	if (!server->has_soft || server->gpu.folder[0])
		if (find_running(router, server))
			return true;
	if (!router_may_start(&server->starts, now_ns, &again_ns)) {
		server->retry_ns = again_ns;
		snprintf(text, sizeof(text),
			 "its server was started %d times within a minute; the next time is in %u s",
			 ROUTER_STARTS, (unsigned)((again_ns - now_ns) / ROUTER_S + 1));
		router_server_failed(router, server, text);
		return false;
	}
	if (!start_new(router, server, &err))
		return true;
	router_server_failed(router, server, err.text);
	server->retry_ns = now_ns + RETRY_S * ROUTER_S;
	return false;
}

static bool is_needed(const struct router *router, const struct router_server *server)
{
	return (server->is_listed && !router->options.is_private) || router_vgpus_wait(router, server);
}

static bool has_asks_of_its_own(const struct router_server *server)
{
	const struct router_ask *ask;

	TAILQ_FOREACH(ask, &server->asks, next)
		if (!ask->is_awaiting)
			return true;
	return false;
}

/* The process has ended. */
static void went_off(struct router *router, struct router_server *server)
{
	server->phase = ROUTER_OFF;
	server->deadline_ns = ROUTER_NEVER;
	server->use = (struct hall_gpu){ 0 };
	server->ticket_count = 0;
	unlink(server->path); /* a killed server has left it */
	if (router->is_ending)
		return;
	router_vgpus_lost(router, server);
	router_sent_lost(router, server);
	if (server->was_ready || server->was_found) { /* it has died */
		server->failure[0] = 0;
		if ((is_needed(router, server) || has_asks_of_its_own(server)) &&
		    router_server_begin(router, server))
			return;
	} else if (is_needed(router, server)) {
		server->retry_ns = bf_now_ns() + RETRY_S * ROUTER_S;
	}
	router_check_settled(router);
	if (server->phase == ROUTER_OFF)
		router_server_fail_asks(router, server);
}

static void tell_death(struct router *router, const struct router_server *server)
{
	char text[96];

	bf_log(BF_LOG_ERROR, "%s: its server has died", server->label);
	snprintf(text, sizeof(text), "process %d, with %u vGPUs and %u runs", server->use.server_pid,
		 server->use.vgpus, server->use.runs);
	router_event_server(router, EVENT_SERVER_DIED, server, text);
}

/* A server of another version keeps running with its programs. */
static void replace(struct router *router, struct router_server *server)
{
	router_server_forget_process(server);
	server->phase = ROUTER_OFF;
	bf_log(BF_LOG_WARN, "%s: the process at %s did not answer as a GPU server of this version",
	       server->label, server->path);
	unlink(server->path);
	if (server->gpu.kind == PROTOCOL_GPU_ANY || !router_server_begin(router, server))
		went_off(router, server);
}

void router_server_lost(struct router *router, struct router_server *server, bool is_other_version)
{
	router_server_hang_up(server);
	if (server->phase == ROUTER_FINDING && is_other_version) {
		replace(router, server);
		return;
	}
	if (server->was_found)
		bf_log(BF_LOG_WARN, "%s: its server, which was left running, ends", server->label);
	else if (!server->was_ready && !server->has_failed)
		router_server_failed(router, server, "its server ended as it started; see the log");
	else if (server->was_ready && !router->is_ending)
		tell_death(router, server);
	server->phase = ROUTER_LEAVING;
	server->deadline_ns = bf_now_ns() + LEAVE_S * ROUTER_S;
	if (server->pidfd < 0)
		went_off(router, server);
}

static void exited(void *context, uint32_t events)
{
	struct router_server *server = context;
	struct router *router = server->router;
	int status;

	(void)events;
	if (server->pid > 0 && waitpid(server->pid, &status, WNOHANG) == 0)
		return;
	router_server_forget_process(server);
	if (server->sock >= 0)
		router_server_hear(router, server); /* its last messages, then the end of the connection */
	if (server->phase == ROUTER_LEAVING)
		went_off(router, server);
}

/* Requests do not wait for the server any longer. It may still end, or become ready. */
static void give_up(struct router *router, struct router_server *server, const char *why)
{
	router_server_failed(router, server, why);
	router_check_settled(router);
	router_server_fail_asks(router, server);
}

/* The phase has taken too long. */
static void phase_late(struct router *router, struct router_server *server)
{
	char text[192];

	if (server->phase == ROUTER_HEARING) {
		bf_log(BF_LOG_WARN, "%s: %u vGPUs of its server were not heard of", server->label,
		       server->to_hear);
		router_server_ready(router, server);
	} else if (server->phase == ROUTER_FINDING) {
		/* It has the GPU, and may have programs: a second server must not be started. */
		snprintf(text, sizeof(text), "its server, which was left running at %s, does not answer",
			 server->path);
		give_up(router, server, text);
	} else if (server->phase == ROUTER_STARTING) {
		router_server_failed(router, server, "its server does not become ready");
		if (server->pidfd >= 0)
			bf_pidfd_kill(server->pidfd, SIGKILL);
		router_server_lost(router, server, false);
		if (server->phase == ROUTER_LEAVING) /* the driver may keep it from ending */
			give_up(router, server, "its server does not become ready");
	} else if (server->phase == ROUTER_LEAVING && server->pidfd >= 0) {
		/* A process that was never heard of is left alone. */
		if (!server->was_found)
			bf_pidfd_kill(server->pidfd, SIGKILL);
		give_up(router, server, "its server has closed the connection and does not end");
	}
}

void router_server_tick(struct router *router, struct router_server *server, uint64_t now_ns)
{
	watch(server);
	if (server->retry_ns <= now_ns) {
		server->retry_ns = ROUTER_NEVER;
		if (server->phase == ROUTER_OFF && is_needed(router, server) &&
		    !router_server_begin(router, server))
			router_server_fail_asks(router, server);
	}
	if (server->is_blocked && server->unblock_ns <= now_ns)
		router_server_unblock(server);
	router_server_flush(router, server);
	router_asks_expire(router, server, now_ns);
	if (server->deadline_ns <= now_ns) {
		server->deadline_ns = ROUTER_NEVER;
		phase_late(router, server);
	}
}

uint64_t router_server_due(const struct router_server *server)
{
	uint64_t due_ns = bf_min(bf_min(server->deadline_ns, server->retry_ns), router_asks_due(server));

	return server->is_blocked ? bf_min(due_ns, server->unblock_ns) : due_ns;
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

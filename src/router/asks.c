/* The requests that wait for a GPU server, and messages to it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/message.h"
#include "router/internal.h"

enum {
	TAKE_S = 30,	/* until a server that is ready has taken a request */
	UNBLOCK_MS = 10 /* until the next try, after an error that the socket does not report the end of */
};

bool router_server_is_asking(const struct router_server *server)
{
	return server->own_queued || server->own_sent;
}

bool router_is_asking(const struct router *router)
{
	for (const struct router_server *server = router->servers; server; server = server->next)
		if (router_server_is_asking(server))
			return true;
	return false;
}

void router_note_asking(struct router *router)
{
	for (struct router_server *server = router->servers; server; server = server->next)
		server->was_asking = router_server_is_asking(server);
}

void router_server_unblock(struct router_server *server)
{
	if (server->is_blocked && server->sock_source)
		loop_change(server->router->loop, server->sock_source, EPOLLIN);
	server->is_blocked = false;
}

/* EPOLLOUT reports room in the socket only. With EPIPE the server is exiting: the queue waits for the next one. */
static void block(struct router_server *server, int rc)
{
	server->is_blocked = true;
	server->unblock_ns = bf_now_ns() + UNBLOCK_MS * ROUTER_MS;
	if (rc != -EAGAIN || !server->sock_source)
		return;
	server->unblock_ns = ROUTER_NEVER;
	loop_change(server->router->loop, server->sock_source, EPOLLIN | EPOLLOUT);
}

/* Send a message, and the connection that belongs to it. Returns 0 or -errno. */
static int send_message(struct router_server *server, const struct hall_message *message, int fd)
{
	int rc = bf_message_send(server->sock, message, sizeof(*message), fd, MSG_DONTWAIT);

	if (rc)
		block(server, rc);
	return rc;
}

int router_server_send(struct router_server *server, const struct hall_message *message)
{
	int rc = server->sock < 0 ? -ENOTCONN : send_message(server, message, -1);

	if (rc)
		bf_log(BF_LOG_WARN, "%s: its server cannot be told: %s", server->label, strerror(-rc));
	return rc;
}

static void take(struct router_server *server, struct router_ask *ask)
{
	TAILQ_REMOVE(&server->asks, ask, next);
	server->ask_count--;
	server->own_queued -= ask->fd < 0;
	loop_remove(server->router->loop, ask->source);
	ask->source = NULL;
	ask->server = NULL;
}

static void client_gone(void *context, uint32_t events)
{
	struct router_ask *ask = context;
	struct router_server *server = ask->server;
	struct bf_error err;

	(void)events;
	take(server, ask);
	bf_fail(&err, ECONNRESET, "the client has closed its connection");
	router_refuse(server->router, ask, &err);
}

static void handed_over(struct router *router, struct router_server *server, struct router_ask *ask)
{
	const struct protocol_request *request = &ask->message.request;
	struct router_vgpu *vgpu = ask->holds_name ? router_vgpu_find(router, request->name) : NULL;

	if (vgpu)
		vgpu->is_sent = true;
	if (ask->fd >= 0)
		close(ask->fd);
	ask->fd = -1;
	if (ask->is_own || request->op == PROTOCOL_SET) {
		TAILQ_INSERT_TAIL(&server->sent, ask, next);
		server->own_sent += ask->is_own;
	} else {
		free(ask);
	}
}

static void forget_sent(struct router *router, struct router_server *server, struct router_ask *ask)
{
	TAILQ_REMOVE(&server->sent, ask, next);
	server->own_sent -= ask->is_own;
	router_quota_settled(router, ask);
	free(ask);
}

/* A server answers in order. */
void router_sent_answered(struct router *router, struct router_server *server,
			  const struct hall_message *message)
{
	bool is_own = !(message->flags & HALL_CLIENTS);
	struct router_ask *ask;

	TAILQ_FOREACH(ask, &server->sent, next)
		if (ask->is_own == is_own && ask->message.request.op == message->request.op &&
		    !strcmp(ask->message.request.name, message->request.name)) {
			forget_sent(router, server, ask);
			return;
		}
}

void router_sent_lost(struct router *router, struct router_server *server)
{
	struct router_ask *ask;

	while ((ask = TAILQ_FIRST(&server->sent))) {
		const struct protocol_request *request = &ask->message.request;

		/* A vGPU that was to be created is created again. */
		if (ask->is_own && request->op != PROTOCOL_CREATE && !router->is_ending)
			router_pending_refused(router, request, server->label, "its server has died");
		forget_sent(router, server, ask);
	}
}

/* A request that is dispatched here may come to the same server, and is then sent by the same loop. */
void router_server_flush(struct router *router, struct router_server *server)
{
	struct router_ask *ask;

	if (server->is_flushing)
		return;
	server->is_flushing = true;
	while ((ask = TAILQ_FIRST(&server->asks)) && server->phase == ROUTER_READY && !server->is_blocked) {
		if (ask->is_awaiting) {
			take(server, ask);
			ask->is_awaiting = false;
			router_dispatch(router, ask);
		} else if (!send_message(server, &ask->message, ask->fd)) {
			take(server, ask);
			handed_over(router, server, ask);
		}
	}
	server->is_flushing = false;
}

static void enqueue(struct router *router, struct router_server *server, struct router_ask *ask)
{
	struct bf_error err;

	/* belfryd's own requests are at most as many as the vGPUs. */
	if (server->ask_count >= ROUTER_ASKS_MAX && ask->fd >= 0) {
		bf_fail(&err, EAGAIN,
			"%s: %d requests wait for its server, the most it takes; try again later",
			server->label, ROUTER_ASKS_MAX);
		router_refuse(router, ask, &err);
		return;
	}
	TAILQ_INSERT_TAIL(&server->asks, ask, next);
	ask->server = server;
	ask->asked_ns = bf_now_ns();
	server->ask_count++;
	server->own_queued += ask->fd < 0;
	/* No event but the end of the connection. Without memory, it is noticed when the request is answered. */
	if (ask->fd >= 0)
		ask->source = loop_add(router->loop, ask->fd, 0, LOOP_MIDDLE, client_gone, ask);
}

void router_server_ask(struct router *router, struct router_server *server, struct router_ask *ask)
{
	ask->is_awaiting = false;
	enqueue(router, server, ask);
	router_server_flush(router, server);
}

void router_server_await(struct router *router, struct router_server *server, struct router_ask *ask)
{
	ask->is_awaiting = true;
	enqueue(router, server, ask);
}

void router_server_fail_asks(struct router *router, struct router_server *server)
{
	struct router_asks all = TAILQ_HEAD_INITIALIZER(all);
	struct router_ask *ask;
	struct bf_error err;

	bf_fail(&err, ENODEV, "%s", server->failure);
	while ((ask = TAILQ_FIRST(&server->asks))) {
		take(server, ask);
		TAILQ_INSERT_TAIL(&all, ask, next);
	}
	while ((ask = TAILQ_FIRST(&all))) {
		TAILQ_REMOVE(&all, ask, next);
		if (ask->is_awaiting && !router->is_ending)
			router_dispatch(router, ask);
		else
			router_refuse(router, ask, &err);
	}
}

/* The oldest request of a client. belfryd's own requests wait as long as the server runs. */
static struct router_ask *oldest(const struct router_server *server)
{
	struct router_ask *ask;

	TAILQ_FOREACH(ask, &server->asks, next)
		if (ask->fd >= 0)
			return ask;
	return NULL;
}

/* The other phases of a server have limits of their own. */
uint64_t router_asks_due(const struct router_server *server)
{
	const struct router_ask *ask = server->phase == ROUTER_READY ? oldest(server) : NULL;

	if (!ask)
		return ROUTER_NEVER;
	return (ask->asked_ns > server->ready_ns ? ask->asked_ns : server->ready_ns) + TAKE_S * ROUTER_S;
}

void router_asks_expire(struct router *router, struct router_server *server, uint64_t now_ns)
{
	struct bf_error err;

	while (router_asks_due(server) <= now_ns) {
		struct router_ask *ask = oldest(server);

		take(server, ask);
		bf_fail(&err, ETIMEDOUT,
			"%s: its server has not taken the request within %d s; try again later",
			server->label, TAKE_S);
		router_refuse(router, ask, &err);
	}
}

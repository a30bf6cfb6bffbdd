/* Clients that are connected and not yet handed to a GPU server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/handed.h"
#include "base/message.h"
#include "base/number.h"
#include "base/own.h"
#include "base/process.h"
#include "client/inside.h"
#include "client/reply.h"
#include "router/internal.h"

enum { REQUEST_S = 10, PART_S = 1, PART_ALL_MS = 200, ACCEPT_PAUSE_MS = 100, ACCEPTS_AT_ONCE = 64 };

void router_reply(int fd, int code, const char *text, const char *name, const char *body)
{
	struct bf_error err = { .code = code };
	struct protocol_reply reply;

	snprintf(err.text, sizeof(err.text), "%s", text);
	reply = reply_of(&err);
	snprintf(reply.name, sizeof(reply.name), "%s", name);
	/* A client that does not read its replies loses them. */
	if (!reply_send(fd, &reply, body, body ? strlen(body) : 0))
		bf_log(BF_LOG_DEBUG, "a client does not take its reply");
}

static void client_ready(void *context, uint32_t events);

/* Takes the descriptor. NULL: there is no room or no memory for another client, and it was closed. */
static struct router_client *client_add(struct router *router, int fd, const struct ucred *who)
{
	struct router_client *client = NULL;

	if (router->client_count < ROUTER_CLIENTS_MAX + ROUTER_PARTING_MAX)
		client = calloc(1, sizeof(*client));
	if (client) {
		*client = (struct router_client){ .router = router,
						  .fd = fd,
						  .who = *who,
						  .deadline_ns = bf_now_ns() + REQUEST_S * ROUTER_S };
		client->source = loop_add(router->loop, fd, EPOLLIN, LOOP_MIDDLE, client_ready, client);
	}
	if (!client || !client->source) {
		free(client);
		bf_close_connection(&fd);
		return NULL;
	}
	LIST_INSERT_HEAD(&router->clients, client, next);
	router->client_count++;
	return client;
}

/* Free the client. Returns its descriptor. */
static int client_release(struct router_client *client)
{
	int fd = client->fd;

	loop_remove(client->router->loop, client->source);
	LIST_REMOVE(client, next);
	client->router->client_count--;
	free(client);
	return fd;
}

static void client_close(struct router_client *client)
{
	int fd = client_release(client);

	bf_close_connection(&fd);
}

/* Otherwise one user could fill the list with connections that are refused. When belfryd ends, it accepts no more. */
static bool may_part(const struct router *router, uid_t uid)
{
	const struct router_client *client;
	unsigned all = 0, of_user = 0;

	LIST_FOREACH(client, &router->clients, next) {
		all += client->is_parting;
		of_user += client->is_parting && client->who.uid == uid;
	}
	return router->is_ending ||
	       (all < ROUTER_PARTING_MAX && (bf_is_admin(uid) || of_user < ROUTER_PARTING_OF_ONE));
}

void router_client_part(struct router *router, int fd, int code, const char *text)
{
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);
	struct router_client *client;

	router_reply(fd, code, text, "", NULL);
	shutdown(fd, SHUT_WR);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) || !may_part(router, who.uid)) {
		bf_close_connection(&fd);
		return;
	}
	client = client_add(router, fd, &who);
	if (!client)
		return;
	client->is_parting = true;
	client->deadline_ns = bf_now_ns() + PART_S * ROUTER_S;
}

/* Keep the connection of a request that was answered here, for the next request. */
static void give_back(struct router *router, struct router_ask *ask)
{
	struct ucred who = { ask->message.pid, ask->message.uid, ask->message.gid };

	if (ask->fd >= 0 && !router->is_ending)
		client_add(router, ask->fd, &who);
	else
		bf_close_connection(&ask->fd);
	free(ask);
}

void router_refuse(struct router *router, struct router_ask *ask, const struct bf_error *why)
{
	const char *name = ask->message.request.name;
	struct router_vgpu *vgpu = ask->holds_name ? router_vgpu_find(router, name) : NULL;

	if (ask->fd >= 0)
		router_reply(ask->fd, why->code, why->text, name, NULL);
	else if (ask->is_own)
		router_pending_refused(router, &ask->message.request, "", why->text);
	router_quota_settled(router, ask);
	if (vgpu && vgpu->phase == ROUTER_RESERVED && vgpu->is_kept && vgpu->server)
		vgpu->phase = ROUTER_LOST;
	else if (vgpu && vgpu->phase == ROUTER_RESERVED)
		router_vgpu_drop(router, vgpu);
	else if (vgpu)
		vgpu->is_claimed = false;
	if (why->code == EPROTO) /* the client has another protocol */
		bf_close_connection(&ask->fd);
	give_back(router, ask);
}

void router_answer(struct router *router, struct router_ask *ask, const char *body)
{
	if (ask->fd >= 0)
		router_reply(ask->fd, 0, "", ask->message.request.name, body);
	give_back(router, ask);
}

static unsigned count_clients(const struct router *router, uid_t uid, bool is_all)
{
	const struct router_client *client;
	const struct router_ask *ask;
	unsigned count = 0;

	LIST_FOREACH(client, &router->clients, next)
		count += !client->is_parting && (is_all || client->who.uid == uid);
	for (const struct router_server *server = router->servers; server; server = server->next)
		TAILQ_FOREACH(ask, &server->asks, next)
			count += ask->fd >= 0 && (is_all || ask->message.uid == uid);
	return count;
}

static int check_welcome(const struct router *router, const struct ucred *who, struct bf_error *err)
{
	if (count_clients(router, 0, true) >= ROUTER_CLIENTS_MAX)
		return bf_fail(err, EAGAIN, "belfryd has %d connections, the most it takes; try again later",
			       ROUTER_CLIENTS_MAX);
	if (!bf_is_admin(who->uid) && count_clients(router, who->uid, false) >= ROUTER_CLIENTS_OF_ONE)
		return bf_fail(err, EAGAIN,
			       "you have %d connections to belfryd, the most one user may have; "
			       "close some",
			       ROUTER_CLIENTS_OF_ONE);
	return 0;
}

static void welcome(struct router *router, int fd)
{
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);
	struct bf_error err = { 0 };

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length)) {
		bf_close_connection(&fd);
		return;
	}
	if (!check_welcome(router, &who, &err)) {
		client_add(router, fd, &who);
		return;
	}
	router_client_part(router, fd, err.code, err.text);
}

static void accept_clients(void *context, uint32_t events)
{
	struct router *router = context;

	(void)events;
	for (unsigned i = 0; i < ACCEPTS_AT_ONCE; i++) {
		int fd = accept4(router->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			welcome(router, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			bf_log(BF_LOG_WARN, "%s: cannot accept connections: %s", router->socket,
			       strerror(errno));
			router->accept_after_ns = bf_now_ns() + ACCEPT_PAUSE_MS * ROUTER_MS;
			loop_change(router->loop, router->listen_source, 0);
		}
		return;
	}
}

bool router_clients_listen(struct router *router)
{
	router->listen_source =
		loop_add(router->loop, router->listen_fd, EPOLLIN, LOOP_LAST, accept_clients, router);
	return router->listen_source;
}

static int check_request(struct protocol_request *request, ssize_t got, struct bf_error *err)
{
	if (got < 8 || request->magic != PROTOCOL_MAGIC)
		return bf_fail(err, EPROTO, "not a request; belfryd speaks version %u of its protocol",
			       PROTOCOL_VERSION);
	if (request->version != PROTOCOL_VERSION || got != (ssize_t)sizeof(*request))
		return bf_fail(
			err, EPROTO,
			"a request of version %u and %zd bytes; belfryd speaks version %u, with %zu bytes: "
			"use a belfry and a belfryd of one release",
			request->version, got, PROTOCOL_VERSION, sizeof(*request));
	if (!memchr(request->name, 0, sizeof(request->name)) ||
	    !memchr(request->gpu.folder, 0, sizeof(request->gpu.folder)) ||
	    !memchr(request->spec.domain, 0, sizeof(request->spec.domain)))
		return bf_fail(err, EPROTO, "a request with text that does not end; use belfry to ask");
	return 0;
}

/* One request a turn. */
static void client_ready(void *context, uint32_t events)
{
	struct router_client *client = context;
	struct router *router = client->router;
	struct ucred who = client->who;
	struct protocol_request request = { 0 };
	struct router_ask *ask = NULL;
	struct bf_error err = { 0 };
	int fd, file;
	ssize_t got =
		bf_message_receive(client->fd, &request, sizeof(request), &file, MSG_TRUNC | MSG_DONTWAIT);

	(void)events;
	bf_close_handed(&file, who.uid);
	if (got == -EAGAIN || got == -EINTR)
		return;
	if (got > 0 && client->is_parting)
		return;
	fd = client_release(client);
	if (got > 0 && check_request(&request, got, &err))
		router_reply(fd, err.code, err.text, "", NULL);
	else if (got > 0)
		ask = router_ask_new(&request, &who, fd);
	if (!ask) {
		bf_close_connection(&fd);
		return;
	}
	router->was_asked = true;
	if (request.op == PROTOCOL_ATTACH && router_oci_is_parent(router, who.pid))
		ask->message.flags |= HALL_OWN;
	else if (inside_check(fd, &request, router->filters_floor, &err)) {
		bf_log(BF_LOG_INFO, "user %u: %s", who.uid, err.text);
		router_refuse(router, ask, &err);
		return;
	}
	/* Process what the servers sent before this request first. */
	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->sock >= 0)
			router_server_hear(router, server);
	router_dispatch(router, ask);
}

uint64_t router_clients_due(const struct router *router)
{
	uint64_t due_ns = router->accept_after_ns ? router->accept_after_ns : ROUTER_NEVER;
	const struct router_client *client;

	LIST_FOREACH(client, &router->clients, next)
		due_ns = bf_min(due_ns, client->deadline_ns);
	return due_ns;
}

void router_clients_sweep(struct router *router, uint64_t now_ns)
{
	struct router_client *client, *after;

	LIST_FOREACH_SAFE(client, &router->clients, next, after)
		if (client->deadline_ns <= now_ns)
			client_close(client);
	if (router->accept_after_ns && router->accept_after_ns <= now_ns) {
		router->accept_after_ns = 0;
		loop_change(router->loop, router->listen_source, EPOLLIN);
	}
}

void router_clients_end(struct router *router)
{
	uint64_t until_ns = bf_now_ns() + PART_ALL_MS * ROUTER_MS;
	struct router_client *client, *after;

	/* New entries come to the head of the list, which this loop has passed. */
	LIST_FOREACH_SAFE(client, &router->clients, next, after)
		if (!client->is_parting)
			router_client_part(router, client_release(client), EAGAIN,
					   "belfryd is ending; try again");
	while (router->client_count && bf_now_ns() < until_ns)
		loop_wait(router->loop, until_ns);
	router_clients_sweep(router, ROUTER_NEVER);
}

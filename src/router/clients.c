/* Clients that are connected and not yet handed to a GPU server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "client/inside.h"
#include "client/reply.h"
#include "router/internal.h"

enum { REQUEST_S = 10, PART_S = 1, ACCEPT_PAUSE_MS = 100, ACCEPTS_AT_ONCE = 64 };

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

static void client_add(struct router *router, int fd, const struct ucred *who)
{
	struct router_client *client = &router->clients[router->client_count++];

	*client = (struct router_client){ .fd = fd,
					  .who = *who,
					  .deadline_ns = bf_now_ns() + REQUEST_S * ROUTER_S };
}

void router_client_part(struct router *router, int fd, int code, const char *text)
{
	struct ucred nobody = { 0 };

	router_reply(fd, code, text, "", NULL);
	if (router->client_count == 2 * ROUTER_CLIENTS_MAX) {
		close(fd);
		return;
	}
	shutdown(fd, SHUT_WR);
	client_add(router, fd, &nobody);
	router->clients[router->client_count - 1].is_parting = true;
	router->clients[router->client_count - 1].deadline_ns = bf_now_ns() + PART_S * ROUTER_S;
}

/* Keep the connection of a request that was answered here, for the next request. */
static void give_back(struct router *router, struct router_ask *ask)
{
	struct ucred who = { ask->message.pid, ask->message.uid, ask->message.gid };

	if (ask->fd >= 0 && !router->is_ending && router->client_count < 2 * ROUTER_CLIENTS_MAX)
		client_add(router, ask->fd, &who);
	else if (ask->fd >= 0)
		close(ask->fd);
	free(ask);
}

void router_refuse(struct router *router, struct router_ask *ask, const struct bf_error *why)
{
	const char *name = ask->message.request.name;
	struct router_vgpu *vgpu = ask->holds_name ? router_vgpu_find(router, name) : NULL;

	if (ask->fd >= 0)
		router_reply(ask->fd, why->code, why->text, name, NULL);
	else
		router_pending_refused(router, router_vgpu_find(router, name), name, "", why->text);
	if (vgpu && vgpu->phase == ROUTER_RESERVED && vgpu->is_kept && vgpu->server)
		vgpu->phase = ROUTER_LOST;
	else if (vgpu && vgpu->phase == ROUTER_RESERVED)
		router_vgpu_drop(router, vgpu);
	if (ask->fd >= 0 && why->code == EPROTO) { /* the client has another protocol */
		close(ask->fd);
		ask->fd = -1;
	}
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
	unsigned count = 0;

	for (unsigned i = 0; i < router->client_count; i++)
		count += router->clients[i].fd >= 0 && !router->clients[i].is_parting &&
			 (is_all || router->clients[i].who.uid == uid);
	for (const struct router_server *server = router->servers; server; server = server->next)
		for (const struct router_ask *ask = server->first; ask; ask = ask->next)
			count += ask->fd >= 0 && (is_all || ask->message.uid == uid);
	return count;
}

static int check_welcome(const struct router *router, const struct ucred *who, struct bf_error *err)
{
	if (count_clients(router, 0, true) >= ROUTER_CLIENTS_MAX)
		return bf_fail(err, EAGAIN, "belfryd has %d connections, the most it takes; try again later",
			       ROUTER_CLIENTS_MAX);
	if (who->uid && who->uid != geteuid() &&
	    count_clients(router, who->uid, false) >= ROUTER_CLIENTS_OF_ONE)
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
		close(fd);
		return;
	}
	if (!check_welcome(router, &who, &err)) {
		client_add(router, fd, &who);
		return;
	}
	router_client_part(router, fd, err.code, err.text);
}

void router_clients_accept(struct router *router)
{
	for (unsigned i = 0; i < ACCEPTS_AT_ONCE; i++) {
		int fd = accept4(router->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			welcome(router, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			bf_log(BF_LOG_WARN, "%s: nobody can be let in: %s", router->socket, strerror(errno));
			router->accept_after_ns = bf_now_ns() + ACCEPT_PAUSE_MS * ROUTER_MS;
		}
		return;
	}
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

void router_client_hear(struct router *router, struct router_client *client)
{
	struct protocol_request request = { 0 };
	ssize_t got = recv(client->fd, &request, sizeof(request), MSG_TRUNC | MSG_DONTWAIT);
	int fd = client->fd, caught = errno;
	struct router_ask *ask = NULL;
	struct bf_error err = { 0 };

	if (got < 0 && (caught == EAGAIN || caught == EINTR))
		return;
	if (got > 0 && client->is_parting)
		return;
	client->fd = -1;
	if (got > 0 && check_request(&request, got, &err))
		router_reply(fd, err.code, err.text, "", NULL);
	else if (got > 0)
		ask = router_ask_new(&request, &client->who, fd);
	if (!ask) {
		close(fd);
		return;
	}
	router->was_asked = true;
	if (inside_check(fd, &request, router->filters_floor, &err)) {
		bf_log(BF_LOG_INFO, "user %u: %s", client->who.uid, err.text);
		router_refuse(router, ask, &err);
		return;
	}
	/* Process what the servers sent before this request first. */
	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->sock >= 0)
			router_server_hear(router, server);
	router_dispatch(router, ask);
}

void router_clients_sweep(struct router *router, uint64_t now_ns)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < router->client_count; i++) {
		struct router_client *client = &router->clients[i];

		if (client->fd >= 0 && client->deadline_ns <= now_ns) {
			close(client->fd);
			client->fd = -1;
		}
		if (client->fd >= 0)
			router->clients[kept++] = *client;
	}
	router->client_count = kept;
}

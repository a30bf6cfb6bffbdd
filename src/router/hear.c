/* Messages of GPU servers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "router/internal.h"

enum {
	HEAR_S = 2, /* until a server that was left running has reported its vGPUs */
	MESSAGES_AT_ONCE = 256,
};

/* A server that was found running has had its event already. */
static void tell_ready(struct router *router, const struct router_server *server)
{
	char text[64];

	bf_log(BF_LOG_INFO, "%s: its server is ready (process %d)", server->label, server->use.server_pid);
	snprintf(text, sizeof(text), "process %d, driver %s", server->use.server_pid, server->use.driver);
	if (server->phase == ROUTER_STARTING)
		router_event_server(router, EVENT_SERVER_STARTED, server, text);
}

void router_server_ready(struct router *router, struct router_server *server)
{
	struct router_asks waiting = TAILQ_HEAD_INITIALIZER(waiting);

	tell_ready(router, server);
	server->phase = ROUTER_READY;
	server->deadline_ns = ROUTER_NEVER;
	server->ready_ns = bf_now_ns();
	server->was_ready = true;
	server->was_found = server->has_failed = false;
	server->failure[0] = 0;
	/* Its vGPUs are created again before the waiting requests are sent. */
	TAILQ_CONCAT(&waiting, &server->asks, next);
	router_vgpus_remake(router, server);
	TAILQ_CONCAT(&server->asks, &waiting, next);
	router_check_settled(router);
	router_server_flush(router, server);
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
		router_server_name(router, server);
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
		router_server_ready(router, server);
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
		router_server_failed(router, server, message->text);
		return;
	case HALL_VGPU:
		if (!router->is_ending)
			router_vgpu_told(router, server, message);
		if (server->phase == ROUTER_HEARING && !--server->to_hear)
			router_server_ready(router, server);
		return;
	case HALL_GONE:
		router_account(router, server, message);
		router_event_gone(router, server, message);
		if (!router->is_ending)
			router_vgpu_gone(router, server, message->request.name);
		return;
	case HALL_REFUSED:
		router_sent_answered(router, server, message);
		router_vgpu_refused(router, server, message);
		return;
	case HALL_DONE:
		router_sent_answered(router, server, message);
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
			router_server_lost(router, server, got > 0);
			return;
		}
		heard(router, server, &message);
	}
	router_server_flush(router, server);
}

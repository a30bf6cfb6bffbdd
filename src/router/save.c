/* Saves the vGPUs of the router in the state file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "router/internal.h"
#include "router/state.h"

enum { SAVE_AFTER_MS = 200, SAVE_AGAIN_S = 10 };

void router_state_changed(struct router *router)
{
	if (router->save_ns == ROUTER_NEVER)
		router->save_ns = bf_now_ns() + SAVE_AFTER_MS * ROUTER_MS;
}

int router_state_save(struct router *router, struct bf_error *told)
{
	cleanup_free struct config_vgpu *vgpus = calloc(router->vgpu_count + 1, sizeof(*vgpus));
	size_t count = 0, at = router->vgpu_count;
	struct bf_error err = { 0 };

	if (!vgpus)
		return bf_fail(told, ENOMEM, "%s: no memory to write it", router->state_path);
	router->save_ns = ROUTER_NEVER;
	/* The newest is first in the list, and last in the file. */
	for (const struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = vgpu->next) {
		struct config_vgpu *to = &vgpus[--at];

		if (!vgpu->is_kept) {
			at++;
			continue;
		}
		count++;
		*to = (struct config_vgpu){ .spec = vgpu->spec,
					    .gpu = vgpu->gpu,
					    .owner = vgpu->uid,
					    .is_from_config = vgpu->is_from_config };
		memcpy(to->name, vgpu->name, sizeof(to->name));
		if (vgpu->server && vgpu->server->has_soft)
			to->gpu.folder[0] = 0; /* the folder of belfryd's own software GPU is not saved */
	}
	if (!state_save(router->state_path, vgpus + at, count, &err)) {
		router->save_errno = 0;
		return 0;
	}
	if (router->save_errno != err.code)
		bf_log(BF_LOG_ERROR, "%s", err.text);
	router->save_errno = err.code;
	router->save_ns = bf_now_ns() + SAVE_AGAIN_S * ROUTER_S;
	return bf_fail(told, err.code, "%s", err.text);
}

static bool are_tickets(const struct router *router)
{
	for (const struct router_server *server = router->servers; server; server = server->next)
		if (server->ticket_count)
			return true;
	return false;
}

void router_state_settle(struct router *router)
{
	struct hall_message message;
	struct bf_error err = { 0 };

	if (!are_tickets(router))
		return;
	if (router->save_ns != ROUTER_NEVER)
		router_state_save(router, &err);
	message = router_message(router, HALL_SAVED);
	message.flags = (uint32_t)err.code;
	memcpy(message.text, err.text,
	       sizeof(message.text) < sizeof(err.text) ? sizeof(message.text) : sizeof(err.text));
	message.text[sizeof(message.text) - 1] = 0;
	for (struct router_server *server = router->servers; server; server = server->next)
		while (server->ticket_count && server->sock >= 0 && !server->is_blocked) {
			message.ticket = server->tickets[server->ticket_count - 1];
			/* If it fails, it is tried again when the server is not blocked any more. */
			server->ticket_count -= !router_server_send(server, &message);
		}
}

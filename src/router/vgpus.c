/* Which vGPU is on which GPU, and where a new one fits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "router/internal.h"

struct router_vgpu *router_vgpu_find(const struct router *router, const char *name)
{
	for (struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = vgpu->next)
		if (!strcmp(vgpu->name, name))
			return vgpu;
	return NULL;
}

struct router_vgpu *router_vgpu_add(struct router *router, const char *name, struct bf_error *err)
{
	struct router_vgpu *vgpu = NULL;

	if (router->vgpu_count < ROUTER_VGPUS_MAX)
		vgpu = calloc(1, sizeof(*vgpu));
	if (!vgpu) {
		bf_fail(err, ENOSPC, "name '%s': there are %u vGPUs already, the most is %d; remove some",
			name, router->vgpu_count, ROUTER_VGPUS_MAX);
		return NULL;
	}
	snprintf(vgpu->name, sizeof(vgpu->name), "%s", name);
	vgpu->serial = ++router->last_serial;
	vgpu->next = router->vgpus;
	router->vgpus = vgpu;
	router->vgpu_count++;
	return vgpu;
}

void router_vgpu_drop(struct router *router, struct router_vgpu *vgpu)
{
	struct router_vgpu **at = &router->vgpus;

	while (*at != vgpu)
		at = &(*at)->next;
	*at = vgpu->next;
	router->vgpu_count--;
	if (vgpu->is_kept)
		router_state_changed(router);
	free(vgpu);
}

void router_vgpu_told(struct router *router, struct router_server *server, const struct hall_message *message)
{
	struct router_vgpu *vgpu = router_vgpu_find(router, message->request.name);
	bool is_new = !vgpu || vgpu->phase != ROUTER_THERE;
	struct spec before;
	struct bf_error err;

	if (spec_check_name(message->request.name, &err) || spec_check(&message->request.spec, &err)) {
		bf_log(BF_LOG_WARN, "%s: its server tells of a vGPU that cannot be: %s", server->label,
		       err.text);
		return;
	}
	if (!is_new && vgpu->server != server) {
		bf_log(BF_LOG_WARN, "%s: a vGPU '%s' is on %s already; this one cannot be reached",
		       server->label, vgpu->name, vgpu->server->label);
		return;
	}
	if (!vgpu)
		vgpu = router_vgpu_add(router, message->request.name, &err);
	if (!vgpu) {
		bf_log(BF_LOG_WARN, "%s", err.text);
		return;
	}
	before = vgpu->spec;
	if (is_new || memcmp(&before, &message->request.spec, sizeof(before)))
		router_state_changed(router);
	router_pending_told(router, vgpu, &message->request.spec);
	vgpu->phase = ROUTER_THERE;
	vgpu->server = server;
	vgpu->gpu = server->gpu;
	vgpu->spec = message->request.spec;
	vgpu->uid = message->uid;
	vgpu->is_ephemeral = message->flags & PROTOCOL_EPHEMERAL;
	vgpu->is_kept = !vgpu->is_ephemeral;
	if (server->phase != ROUTER_HEARING) /* otherwise the vGPU is not new */
		router_event_spec(router, vgpu, is_new ? NULL : &before);
}

/* The run has ended. The name is reserved for the request that its server has, or will have. */
static void grant_claim(struct router *router, struct router_vgpu *vgpu)
{
	vgpu->phase = ROUTER_RESERVED;
	vgpu->serial = ++router->last_serial;
	vgpu->uid = vgpu->claim_uid;
	vgpu->spec = vgpu->claim_spec;
	vgpu->is_ephemeral = vgpu->claim_is_run;
	vgpu->is_claimed = false;
	vgpu->sets = 0;
	vgpu->asked_mem_bytes = vgpu->asked_ppm = 0;
	vgpu->asked_parts = 0;
}

void router_vgpu_gone(struct router *router, struct router_server *server, const char *name)
{
	struct router_vgpu *vgpu = router_vgpu_find(router, name);

	if (!vgpu || vgpu->server != server)
		return;
	if (vgpu->is_claimed)
		grant_claim(router, vgpu);
	else
		router_vgpu_drop(router, vgpu);
}

void router_vgpu_refused(struct router *router, struct router_server *server,
			 const struct hall_message *message)
{
	const struct protocol_request *request = &message->request;
	struct router_vgpu *vgpu;

	if (message->flags & HALL_CLIENTS)
		bf_log(BF_LOG_DEBUG, "%s: vGPU '%s': %s", server->label, request->name, message->text);
	else
		router_pending_refused(router, request, server->label, message->text);
	vgpu = router_vgpu_find(router, request->name);
	if (!vgpu || vgpu->server != server ||
	    (request->op != PROTOCOL_CREATE &&
	     !(protocol_is_run(request->op) && request->flags & PROTOCOL_EPHEMERAL)))
		return;
	vgpu->is_claimed = false;
	if (vgpu->phase == ROUTER_RESERVED)
		router_vgpu_drop(router, vgpu);
}

/* If a request for the name still waits, it is sent to the next server. The client that waits for an answer of this one
 * finds its connection closed. */
static void lose(struct router *router, struct router_vgpu *vgpu)
{
	if (vgpu->phase == ROUTER_RESERVED && !vgpu->is_sent)
		return;
	if (vgpu->is_kept) {
		vgpu->phase = ROUTER_LOST;
		return;
	}
	if (vgpu->phase == ROUTER_THERE)
		router_event_vgpu(router, EVENT_VGPU_REMOVED, vgpu, "its GPU server has died");
	if (vgpu->is_claimed && !vgpu->is_sent)
		grant_claim(router, vgpu);
	else
		router_vgpu_drop(router, vgpu);
}

void router_vgpus_lost(struct router *router, const struct router_server *server)
{
	struct router_vgpu *next;

	for (struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = next) {
		next = vgpu->next;
		if (vgpu->server == server)
			lose(router, vgpu);
	}
}

bool router_vgpus_wait(const struct router *router, const struct router_server *server)
{
	for (const struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = vgpu->next)
		if (vgpu->server == server && vgpu->phase == ROUTER_LOST)
			return true;
	return false;
}

bool router_vgpus_any(const struct router *router, const struct router_server *server)
{
	for (const struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = vgpu->next)
		if (vgpu->server == server)
			return true;
	return false;
}

void router_vgpus_remake(struct router *router, struct router_server *server)
{
	for (struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = vgpu->next) {
		/* Until the start is over, the configuration decides about vGPUs that came from it. */
		if (vgpu->server != server || vgpu->phase != ROUTER_LOST ||
		    (vgpu->is_from_config && !router->is_settled))
			continue;
		vgpu->phase = ROUTER_RESERVED;
		vgpu->is_sent = false;
		router_ask_own(router, PROTOCOL_CREATE, vgpu, ROUTER_ALL_PARTS);
	}
}

/* The larger of this process's count and the server's: the server has not yet counted requests that were just sent to
 * it. */
struct router_room router_server_room(const struct router *router, const struct router_server *server)
{
	uint64_t total = server->use.mem_bytes, mem = 0;
	struct router_room room = { .mem_bytes = total };
	uint32_t request = 0;

	for (const struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = vgpu->next)
		if (vgpu->server == server) {
			mem += vgpu->spec.mem_bytes;
			request += vgpu->spec.request_ppm;
		}
	if (mem < server->use.mem_reserved_bytes)
		mem = server->use.mem_reserved_bytes;
	if (request < server->use.request_ppm)
		request = server->use.request_ppm;
	room.mem_free_bytes = mem < total ? total - mem : 0;
	room.free_ppm = request < SPEC_WHOLE_PPM ? SPEC_WHOLE_PPM - request : 0;
	snprintf(room.label, sizeof(room.label), "%s", server->label);
	return room;
}

static int fail_full(const struct router_room *rooms, unsigned count, const struct spec *spec,
		     struct bf_error *err)
{
	char text[sizeof(err->text)], free_size[24], size[24];
	int used;

	used = snprintf(text, sizeof(text), "no GPU has room for %s and %.4g %% of its time",
			spec->mem_bytes ? bf_format_size(spec->mem_bytes, size, sizeof(size)) : "no memory",
			spec->request_ppm / 1e4);
	for (unsigned i = 0; i < count && used < (int)sizeof(text); i++)
		used += snprintf(text + used, sizeof(text) - (size_t)used,
				 "; %s: %s of %s and %.4g %% of its time are free", rooms[i].label,
				 bf_format_size(rooms[i].mem_free_bytes, free_size, sizeof(free_size)),
				 bf_format_size(rooms[i].mem_bytes, size, sizeof(size)),
				 rooms[i].free_ppm / 1e4);
	return bf_fail(err, ENOSPC, "%s", text);
}

int router_place(const struct router_room *rooms, unsigned count, const struct spec *spec,
		 struct bf_error *err)
{
	int best = -1;

	for (unsigned i = 0; i < count; i++) {
		const struct router_room *room = &rooms[i];

		if (room->mem_free_bytes < spec->mem_bytes || room->free_ppm < spec->request_ppm)
			continue;
		if (best < 0 || room->mem_free_bytes > rooms[best].mem_free_bytes ||
		    (room->mem_free_bytes == rooms[best].mem_free_bytes &&
		     room->free_ppm > rooms[best].free_ppm))
			best = (int)i;
	}
	return best >= 0 ? best : fail_full(rooms, count, spec, err);
}

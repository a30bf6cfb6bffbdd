/* Changes of the configuration that a GPU server has refused, such as a memory limit below what is in use. They are
 * tried again once a second, or less often if there are very many. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "router/internal.h"

enum { AGAIN_S = 1, AT_A_TIME = 64 };

static struct router_pending *find(const struct router *router, const char *name)
{
	struct router_pending *pending = router->pending;

	while (pending && strcmp(pending->name, name) != 0)
		pending = pending->next;
	return pending;
}

static void drop(struct router *router, struct router_pending *pending)
{
	struct router_pending **at = &router->pending;

	while (*at != pending)
		at = &(*at)->next;
	*at = pending->next;
	free(pending);
}

/* Sorted by name. */
static void insert(struct router *router, struct router_pending *pending)
{
	struct router_pending **at = &router->pending;

	while (*at && strcmp((*at)->name, pending->name) < 0)
		at = &(*at)->next;
	pending->next = *at;
	*at = pending;
}

/* The change to try again, after `op` was refused; 0: none of the configuration. */
static enum protocol_op op_to_try(const struct router *router, const struct router_vgpu *vgpu,
				  const char *name, enum protocol_op op)
{
	if (!config_find(&router->config, name))
		return vgpu && vgpu->is_from_config ? PROTOCOL_REMOVE : (enum protocol_op)0;
	if (op == PROTOCOL_SET)
		return vgpu ? PROTOCOL_SET : PROTOCOL_CREATE;
	return op == PROTOCOL_CREATE && (!vgpu || vgpu->phase != ROUTER_THERE) ? op : (enum protocol_op)0;
}

/* Returns whether it was known before. */
static bool note(struct router *router, const struct protocol_request *request, const char *why)
{
	const char *name = request->name;
	const struct router_vgpu *vgpu = router_vgpu_find(router, name);
	enum protocol_op op = op_to_try(router, vgpu, name, (enum protocol_op)request->op);
	struct router_pending *pending = find(router, name);
	bool is_known = pending && pending->op == op;

	if (!op)
		return false;
	if (!pending) {
		pending = calloc(1, sizeof(*pending));
		if (!pending)
			return false; /* it is tried again with the next reload only */
		snprintf(pending->name, sizeof(pending->name), "%s", name);
		if (!router->pending)
			router->pending_ns = bf_now_ns() + AGAIN_S * ROUTER_S;
		insert(router, pending);
	}
	if (!is_known && op == PROTOCOL_SET) {
		pending->spec = config_find(&router->config, name)->spec;
		pending->parts = spec_difference(&vgpu->spec, &pending->spec);
	}
	pending->op = op;
	snprintf(pending->why, sizeof(pending->why), "%.383s", why);
	return is_known;
}

static void tell_event(struct router *router, const char *name, const char *why)
{
	struct bf_error err = { .code = EBUSY };

	snprintf(err.text, sizeof(err.text), "vGPU '%.63s': %.300s", name, why);
	router_event_config(router, &err);
}

void router_pending_refused(struct router *router, const struct protocol_request *request, const char *label,
			    const char *why)
{
	const char *name = request->name;
	size_t length = strlen(name);
	bool is_known;

	if (!strncmp(why, name, length) && !strncmp(why + length, ": ", 2))
		why += length + 2; /* the name is put before it, here and by the client */
	is_known = note(router, request, why);
	bf_log(is_known ? BF_LOG_DEBUG : BF_LOG_WARN, "%s%svGPU '%s': %s", label, *label ? ": " : "", name,
	       why);
	if (!is_known)
		tell_event(router, name, why);
	router_reload_refused(router, name, why);
}

void router_pending_told(struct router *router, const struct router_vgpu *vgpu, const struct spec *spec)
{
	struct router_pending *pending = find(router, vgpu->name);
	uint32_t by_hand;

	if (!pending || pending->op == PROTOCOL_REMOVE)
		return;
	/* What the owner has changed meanwhile stays. */
	by_hand = vgpu->asked_parts & spec_difference(&vgpu->spec, spec);
	pending->parts &= spec_difference(spec, &pending->spec) & ~by_hand;
	if (pending->op == PROTOCOL_SET && pending->parts)
		return;
	bf_log(BF_LOG_INFO, "vGPU '%s': its change is no longer pending", vgpu->name);
	drop(router, pending);
}

static bool is_wanted(const struct router *router, const struct router_pending *pending,
		      const struct config *before)
{
	const struct config_vgpu *now = config_find(&router->config, pending->name),
				 *then = before ? config_find(before, pending->name) : NULL;

	if (pending->op == PROTOCOL_REMOVE)
		return !now;
	return now && then && !spec_difference(&now->spec, &then->spec);
}

void router_pending_renew(struct router *router, const struct config *before)
{
	struct router_pending *next;

	for (struct router_pending *pending = router->pending; pending; pending = next) {
		next = pending->next;
		if (!is_wanted(router, pending, before))
			drop(router, pending);
	}
}

void router_pending_merge(const struct router *router, const char *name, struct spec *spec)
{
	const struct router_pending *pending = find(router, name);

	if (pending && pending->op == PROTOCOL_SET)
		spec_merge(spec, &pending->spec, pending->parts);
}

/* Whether the server of its GPU, or of any GPU, is ready and has made the changes before. */
static bool is_served(struct router *router, const struct config_vgpu *from)
{
	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->phase == ROUTER_READY && !server->was_asking &&
		    (from->gpu.kind == PROTOCOL_GPU_ANY || router_server_is_of(server, &from->gpu)))
			return true;
	return false;
}

static void try_again(struct router *router, struct router_pending *pending)
{
	const struct config_vgpu *from = config_find(&router->config, pending->name);
	struct router_vgpu *vgpu = router_vgpu_find(router, pending->name);
	bool is_there = vgpu && vgpu->phase == ROUTER_THERE && vgpu->server->phase == ROUTER_READY &&
			!vgpu->server->was_asking;

	if (pending->op == PROTOCOL_CREATE && from && !vgpu) {
		if (is_served(router, from))
			router_config_make(router, from);
	} else if (!vgpu) {
		drop(router, pending); /* a client has removed it */
	} else if (pending->op == PROTOCOL_SET && is_there) {
		struct spec wanted = vgpu->spec;

		spec_merge(&wanted, &pending->spec, pending->parts);
		router_config_set(router, vgpu, &wanted);
	} else if (pending->op == PROTOCOL_REMOVE && is_there) {
		router_ask_own(router, PROTOCOL_REMOVE, vgpu, 0);
	}
}

void router_pending_tick(struct router *router, uint64_t now_ns)
{
	struct router_pending *next;
	uint64_t count = 0;

	if (!router->pending || router->pending_ns > now_ns)
		return;
	for (const struct router_pending *pending = router->pending; pending; pending = pending->next)
		count++;
	router->pending_ns = now_ns + (1 + count / AT_A_TIME) * AGAIN_S * ROUTER_S;
	if (!router->is_settled || router->is_making || router->reloading.ask)
		return;
	router_note_asking(router);
	for (struct router_pending *pending = router->pending; pending; pending = next) {
		next = pending->next;
		try_again(router, pending);
	}
}

uint64_t router_pending_due(const struct router *router)
{
	return router->pending ? router->pending_ns : ROUTER_NEVER;
}

struct json_object *router_pending_json(const struct router *router)
{
	struct json_object *list = json_object_new_array();

	for (const struct router_pending *pending = router->pending; pending; pending = pending->next) {
		struct json_object *entry = json_object_new_object();

		json_add_text(entry, "name", pending->name);
		json_add_text(entry, "change",
			      pending->op == PROTOCOL_CREATE ? "create"
			      : pending->op == PROTOCOL_SET  ? "set"
							     : "remove");
		json_add_text(entry, "why", pending->why);
		json_object_array_add(list, entry);
	}
	return list;
}

void router_pending_free(struct router *router)
{
	while (router->pending)
		drop(router, router->pending);
}

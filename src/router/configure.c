/* Applies the configuration. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "router/internal.h"
#include "router/promises.h"
#include "router/state.h"

enum { MAKE_S = 5 };

/* Add servers for the GPUs of the configuration. Servers that it no longer names keep running, and are restarted
 * only while vGPUs need them. */
static int list_servers(struct router *router, struct bf_error *err)
{
	const struct router_options *options = &router->options;
	struct protocol_gpu gpus[CONFIG_GPUS_MAX];
	unsigned count = router->config.gpu_count;

	memcpy(gpus, router->config.gpus, sizeof(gpus));
	if (router->config.is_all)
		count = options->list_gpus(options->context, gpus, CONFIG_GPUS_MAX);
	for (struct router_server *server = router->servers; server; server = server->next)
		server->is_listed = false;
	for (unsigned i = 0; i < count; i++) {
		struct router_server *server = router_server_find(router, &gpus[i]);

		if (!server)
			server = router_server_add(router, &gpus[i], err);
		if (!server)
			return -ENOSPC;
		server->is_listed = true;
	}
	return 0;
}

static void begin_listed(struct router *router)
{
	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->is_listed && server->phase == ROUTER_OFF && !router->options.is_private)
			router_server_begin(router, server);
}

static void remember(struct router *router, const struct config_vgpu *from)
{
	struct router_server *server = router_server_find(router, &from->gpu);
	struct bf_error err = { 0 };
	struct router_vgpu *vgpu = router_vgpu_add(router, from->name, &err);

	if (!vgpu) {
		bf_log(BF_LOG_WARN, "%s", err.text);
		return;
	}
	if (!server && router->options.is_private && from->gpu.kind != PROTOCOL_GPU_ANY)
		server = router_server_add(router, &from->gpu, NULL);
	if (!server)
		bf_log(BF_LOG_WARN, "vGPU '%s': its GPU is not served now; it waits for it", from->name);
	vgpu->phase = ROUTER_LOST;
	vgpu->server = server;
	vgpu->gpu = from->gpu;
	vgpu->spec = from->spec;
	vgpu->uid = from->has_owner ? from->owner : geteuid();
	vgpu->is_kept = true;
	vgpu->is_from_config = from->is_from_config;
}

static void read_state(struct router *router)
{
	struct config state;
	struct bf_error err = { 0 };

	config_init(&state);
	if (state_read(router->state_path, &state, &err))
		bf_log(BF_LOG_ERROR, "%s", err.text);
	for (size_t i = 0; i < state.vgpu_count; i++)
		remember(router, &state.vgpus[i]);
	config_free(&state);
}

int router_config_start(struct router *router, struct bf_error *err)
{
	const struct router_options *options = &router->options;
	int rc = options->read_config(options->context, &router->config, err);

	return rc ? rc : list_servers(router, err);
}

void router_config_begin(struct router *router)
{
	struct bf_error err = { 0 };

	bf_log_setup("belfryd", router->config.log);
	if (config_check_policy(&router->config, false, &err))
		bf_log(BF_LOG_ERROR, "%s; the built-in decides", err.text);
	begin_listed(router);
	read_state(router);
	if (!router->options.is_private)
		router_servers_adopt(router);
	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->phase == ROUTER_OFF && router_vgpus_wait(router, server))
			router_server_begin(router, server);
}

static bool is_same_spec(const struct spec *a, const struct spec *b)
{
	return !spec_difference(a, b);
}

void router_config_make(struct router *router, const struct config_vgpu *from)
{
	struct bf_error err = { 0 };
	struct router_vgpu *vgpu = router_vgpu_add(router, from->name, &err);

	if (!vgpu) {
		bf_log(BF_LOG_WARN, "%s", err.text);
		return;
	}
	vgpu->phase = ROUTER_RESERVED;
	vgpu->gpu = from->gpu;
	vgpu->spec = from->spec;
	vgpu->uid = from->has_owner ? from->owner : geteuid();
	vgpu->is_kept = vgpu->is_from_config = true;
	router_ask_own(router, PROTOCOL_CREATE, vgpu, ROUTER_ALL_PARTS);
}

static void warn_of_what_stays(struct router *router, const struct router_vgpu *vgpu,
			       const struct config_vgpu *from)
{
	if (vgpu->phase == ROUTER_LOST)
		return;
	if (from->has_owner && from->owner != vgpu->uid)
		bf_log(BF_LOG_WARN, "vGPU '%s': it is of user %u; remove it first to give it to another",
		       vgpu->name, vgpu->uid);
	if (from->gpu.kind != PROTOCOL_GPU_ANY && vgpu->server &&
	    router_server_find(router, &from->gpu) != vgpu->server)
		bf_log(BF_LOG_WARN, "vGPU '%s': it is on %s; remove it first to have it on another",
		       vgpu->name, vgpu->server->label);
}

/* The spec that an existing vGPU should have. `before`: the vGPU in the previous configuration. What a client has
 * changed since then stays, and what is pending is tried again. */
static struct spec wanted_spec(const struct router *router, const struct router_vgpu *vgpu,
			       const struct config_vgpu *from, const struct config_vgpu *before)
{
	struct spec wanted = vgpu->spec;

	if (!before || !is_same_spec(&before->spec, &from->spec))
		return from->spec;
	router_pending_merge(router, vgpu->name, &wanted);
	return wanted;
}

/* The new spec, but with no more memory and time than the old one. */
static struct spec freed_spec(const struct spec *old, const struct spec *next)
{
	struct spec spec = *next;

	if (old->mem_bytes < next->mem_bytes) /* 0 reserves nothing */
		spec.mem_bytes = old->mem_bytes;
	if (old->request_ppm < next->request_ppm)
		spec.request_ppm = old->request_ppm;
	return spec;
}

void router_config_set(struct router *router, const struct router_vgpu *vgpu, const struct spec *spec)
{
	struct router_vgpu wanted = *vgpu;

	wanted.spec = *spec;
	router_ask_own(router, PROTOCOL_SET, &wanted, ROUTER_ALL_PARTS);
}

/* Called twice: changes that free memory or time, of all vGPUs, come before changes that take it. */
static void change(struct router *router, struct router_vgpu *vgpu, const struct config_vgpu *from,
		   const struct config_vgpu *before, bool is_freeing)
{
	struct spec wanted = wanted_spec(router, vgpu, from, before),
		    freed = freed_spec(&vgpu->spec, &wanted);

	if (is_freeing) {
		warn_of_what_stays(router, vgpu, from);
		if (!vgpu->is_from_config)
			router_state_changed(router);
		vgpu->is_from_config = true;
	}
	if (vgpu->phase == ROUTER_LOST) {
		vgpu->spec = wanted;
	} else if (vgpu->server && is_freeing) {
		if (!is_same_spec(&vgpu->spec, &freed))
			router_config_set(router, vgpu, &freed);
	} else if (vgpu->server && !is_same_spec(&freed, &wanted)) {
		router_config_set(router, vgpu, &wanted);
	}
}

static void remove_vanished(struct router *router)
{
	struct router_vgpu *next;

	for (struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = next) {
		next = vgpu->next;
		if (!vgpu->is_from_config || config_find(&router->config, vgpu->name))
			continue;
		if (vgpu->phase == ROUTER_LOST)
			router_vgpu_drop(router, vgpu);
		else if (vgpu->server)
			router_ask_own(router, PROTOCOL_REMOVE, vgpu, 0);
	}
}

/* Drop a saved vGPU whose GPU is not served, so that it is created again, on another GPU if it may be. */
static struct router_vgpu *find_settled(struct router *router, const char *name)
{
	struct router_vgpu *vgpu = router_vgpu_find(router, name);

	if (!vgpu || vgpu->phase != ROUTER_LOST || vgpu->server)
		return vgpu;
	router_vgpu_drop(router, vgpu);
	return NULL;
}

static void change_all(struct router *router, const struct config *before, bool is_freeing)
{
	for (size_t i = 0; i < router->config.vgpu_count; i++) {
		const struct config_vgpu *from = &router->config.vgpus[i];
		struct router_vgpu *vgpu = find_settled(router, from->name);

		if (vgpu)
			change(router, vgpu, from, before ? config_find(before, from->name) : NULL,
			       is_freeing);
	}
}

/* Whether the servers on which the vGPU may be created still make changes. */
static bool must_wait(struct router *router, const struct config_vgpu *from, bool is_any_asking)
{
	const struct router_server *server = router_server_find(router, &from->gpu);

	return from->gpu.kind == PROTOCOL_GPU_ANY ? is_any_asking : server && server->was_asking;
}

/* New vGPUs are created after the servers have made the changes, because only then the free room is known. A server that
 * hangs delays them for a short time only. */
void router_config_tick(struct router *router, uint64_t now_ns)
{
	bool is_late = now_ns >= router->making_until_ns, is_asking = router_is_asking(router);

	if (!router->is_making)
		return;
	router->is_making = false;
	router_note_asking(router);
	for (size_t i = 0; i < router->config.vgpu_count; i++) {
		struct config_vgpu *from = &router->config.vgpus[i];

		if (!from->is_due)
			continue;
		if (!is_late && must_wait(router, from, is_asking)) {
			router->is_making = true;
			continue;
		}
		from->is_due = false;
		if (!router_vgpu_find(router, from->name))
			router_config_make(router, from);
	}
}

/* Saved vGPUs whose GPU was not served before. */
static void attach(struct router *router)
{
	for (struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = vgpu->next)
		if (vgpu->phase == ROUTER_LOST && !vgpu->server)
			vgpu->server = router_server_find(router, &vgpu->gpu);
}

static void follow(struct router *router, const struct config *before)
{
	attach(router);
	router_pending_renew(router, before);
	remove_vanished(router);
	change_all(router, before, true);
	change_all(router, before, false);
	router->is_making = true;
	router->making_until_ns = bf_now_ns() + MAKE_S * ROUTER_S;
	for (size_t i = 0; i < router->config.vgpu_count; i++)
		router->config.vgpus[i].is_due = !router_vgpu_find(router, router->config.vgpus[i].name);
	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->phase == ROUTER_READY)
			router_vgpus_remake(router, server);
	router_config_tick(router, bf_now_ns());
}

void router_config_settled(struct router *router)
{
	follow(router, NULL);
}

static void tell_servers(struct router *router)
{
	struct hall_message message = router_message(router, HALL_SETTINGS);

	for (struct router_server *server = router->servers; server; server = server->next) {
		struct router_ask *ask = NULL;

		if (server->phase == ROUTER_READY)
			ask = calloc(1, sizeof(*ask));
		if (ask) {
			/* In order: it waits as requests do. */
			ask->fd = -1;
			ask->message = message;
			router_server_ask(router, server, ask);
		} else if (server->sock >= 0) {
			router_server_send(server, &message);
		}
	}
}

/* Whether the GPUs that are served now can keep the promises of a configuration, besides those of other vGPUs. */
struct plan {
	struct router *router;
	struct router_server *servers[ROUTER_SERVERS_MAX];
	struct router_room rooms[ROUTER_SERVERS_MAX];
	unsigned count;
};

static int plan_room(const struct plan *plan, const struct router_server *server)
{
	for (unsigned i = 0; i < plan->count; i++)
		if (plan->servers[i] == server)
			return (int)i;
	return PROMISES_UNKNOWN;
}

static int plan_where(void *context, const struct config_vgpu *from, struct spec *spec)
{
	const struct plan *plan = context;
	const struct router_vgpu *vgpu = router_vgpu_find(plan->router, from->name);

	if (!plan->count)
		return PROMISES_UNKNOWN;
	if (vgpu && vgpu->server && vgpu->phase != ROUTER_LOST) {
		*spec = wanted_spec(plan->router, vgpu, from, config_find(&plan->router->config, from->name));
		return plan_room(plan, vgpu->server);
	}
	if (from->gpu.kind == PROTOCOL_GPU_ANY)
		return PROMISES_ANYWHERE;
	return plan_room(plan, router_server_find(plan->router, &from->gpu));
}

static void plan_others(struct plan *plan, const struct config *fresh)
{
	for (const struct router_vgpu *vgpu = plan->router->vgpus; vgpu; vgpu = vgpu->next) {
		int at = vgpu->server ? plan_room(plan, vgpu->server) : PROMISES_UNKNOWN;
		struct router_room *room = &plan->rooms[at < 0 ? 0 : at];

		/* vGPUs that the configuration no longer names are about to be removed. */
		if (at < 0 || vgpu->is_from_config || config_find(fresh, vgpu->name))
			continue;
		room->mem_free_bytes -= vgpu->spec.mem_bytes < room->mem_free_bytes ? vgpu->spec.mem_bytes
										    : room->mem_free_bytes;
		room->free_ppm -= vgpu->spec.request_ppm < room->free_ppm ? vgpu->spec.request_ppm
									  : room->free_ppm;
	}
}

static int check_promises(struct router *router, const struct config *fresh, struct bf_error *err)
{
	struct plan plan = { .router = router };

	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->phase == ROUTER_READY && plan.count < ROUTER_SERVERS_MAX) {
			struct router_room *room = &plan.rooms[plan.count];

			room->mem_bytes = room->mem_free_bytes = server->use.mem_bytes;
			room->free_ppm = SPEC_WHOLE_PPM;
			memcpy(room->label, server->label, sizeof(room->label));
			plan.servers[plan.count++] = server;
		}
	plan_others(&plan, fresh);
	return promises_check(fresh, plan.rooms, plan.count, plan_where, &plan, err);
}

/* Read the new configuration, and check it against the machine and the vGPUs. */
static int read_fresh(struct router *router, struct config *fresh, struct bf_error *err)
{
	const struct router_options *options = &router->options;
	struct protocol_gpu there[CONFIG_GPUS_MAX];
	int rc;

	fresh->names = options->start_names ? &router->lookup.names : NULL;
	rc = options->read_config(options->context, fresh, err);
	if (!rc && fresh->names && !names_are_known(fresh->names))
		rc = bf_fail(err, EAGAIN, "the configuration has changed while it was read; try again");
	fresh->names = NULL; /* they are freed after the reload */
	if (!rc)
		rc = config_check_gpus(fresh, there,
				       options->list_gpus(options->context, there, CONFIG_GPUS_MAX), err);
	if (!rc)
		rc = config_check_accounting(fresh, err);
	/* Without the verifier, which may be slow. The GPU servers run it. */
	if (!rc)
		rc = config_check_policy(fresh, false, err);
	if (!rc && router->is_settled)
		rc = check_promises(router, fresh, err);
	return rc;
}

int router_config_reload(struct router *router, struct bf_error *err)
{
	struct config fresh, before = router->config;
	int rc;

	router->reloading.refused = 0;
	config_init(&fresh);
	rc = read_fresh(router, &fresh, err);
	if (rc) {
		config_free(&fresh);
		return rc;
	}
	router->config = fresh;
	rc = router_socket_access(router, err);
	if (!rc)
		rc = list_servers(router, err);
	if (rc) {
		router->config = before;
		router_socket_access(router, NULL);
		list_servers(router, NULL);
		config_free(&fresh);
		return rc;
	}
	bf_log_setup("belfryd", fresh.log);
	tell_servers(router);
	begin_listed(router);
	if (strcmp(fresh.metrics, before.metrics) || fresh.metrics_is_public != before.metrics_is_public)
		router_metrics_end(router);
	router_oci_settle(router);
	if (router->is_settled)
		follow(router, &before);
	config_free(&before);
	bf_log(BF_LOG_INFO, "the configuration was read again");
	return 0;
}

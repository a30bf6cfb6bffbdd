/* The configuration as the router follows it, and the file of what it remembers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "server/router_inside.h"
#include "server/state.h"

enum { SAVE_AFTER_MS = 200, SAVE_AGAIN_S = 10 };

/* Servers for the GPUs of the configuration; those it no longer names run on, and are not started again. */
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

/* After the socket is ours. */
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
	return a->mem_bytes == b->mem_bytes && a->request_ppm == b->request_ppm &&
	       a->limit_ppm == b->limit_ppm && a->class == b->class &&
	       a->percentile_ppm == b->percentile_ppm && a->objective_us == b->objective_us &&
	       a->timeslice_us == b->timeslice_us && a->interleave == b->interleave &&
	       a->is_public == b->is_public && !strcmp(a->domain, b->domain);
}

static void make(struct router *router, const struct config_vgpu *from)
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

/* `before`: what the files said the last time. What was changed by hand since then stays as it is. */
static void change(struct router *router, struct router_vgpu *vgpu, const struct config_vgpu *from,
		   const struct config_vgpu *before)
{
	struct router_vgpu wanted;

	if (vgpu->phase != ROUTER_LOST && from->has_owner && from->owner != vgpu->uid)
		bf_log(BF_LOG_WARN, "vGPU '%s': it is of user %u; remove it first to give it to another",
		       vgpu->name, vgpu->uid);
	if (vgpu->phase != ROUTER_LOST && from->gpu.kind != PROTOCOL_GPU_ANY && vgpu->server &&
	    router_server_find(router, &from->gpu) != vgpu->server)
		bf_log(BF_LOG_WARN, "vGPU '%s': it is on %s; remove it first to have it on another",
		       vgpu->name, vgpu->server->label);
	if (!vgpu->is_from_config)
		router_state_changed(router);
	vgpu->is_from_config = true;
	if (before && is_same_spec(&before->spec, &from->spec))
		return;
	if (vgpu->phase == ROUTER_LOST) {
		vgpu->spec = from->spec;
	} else if (vgpu->server && !is_same_spec(&vgpu->spec, &from->spec)) {
		wanted = *vgpu;
		wanted.spec = from->spec;
		router_ask_own(router, PROTOCOL_SET, &wanted, ROUTER_ALL_PARTS);
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

static void follow(struct router *router, const struct config *before)
{
	remove_vanished(router);
	for (size_t i = 0; i < router->config.vgpu_count; i++) {
		const struct config_vgpu *from = &router->config.vgpus[i];
		struct router_vgpu *vgpu = router_vgpu_find(router, from->name);

		/* One that is remembered for a GPU that is not served has to find another, if it may. */
		if (vgpu && vgpu->phase == ROUTER_LOST && !vgpu->server) {
			router_vgpu_drop(router, vgpu);
			vgpu = NULL;
		}
		if (vgpu)
			change(router, vgpu, from, before ? config_find(before, from->name) : NULL);
		else
			make(router, from);
	}
	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->phase == ROUTER_READY)
			router_vgpus_remake(router, server);
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
			/* In its turn: it waits as requests do. */
			ask->fd = -1;
			ask->message = message;
			router_server_ask(router, server, ask);
		} else if (server->sock >= 0) {
			router_server_send(server, &message);
		}
	}
}

int router_config_reload(struct router *router, struct bf_error *err)
{
	const struct router_options *options = &router->options;
	struct config fresh, before = router->config;
	int rc;

	config_init(&fresh);
	rc = options->read_config(options->context, &fresh, err);
	/* Without the verifier, which may take long: what it says is the GPU servers' to find out. */
	if (!rc)
		rc = config_check_policy(&fresh, false, err);
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
	if (router->is_settled)
		follow(router, &before);
	config_free(&before);
	bf_log(BF_LOG_INFO, "the configuration was read again");
	return 0;
}

void router_state_changed(struct router *router)
{
	if (router->save_ns == ROUTER_NEVER)
		router->save_ns = bf_now_ns() + SAVE_AFTER_MS * ROUTER_MS;
}

void router_state_save(struct router *router)
{
	cleanup_free struct config_vgpu *vgpus = calloc(router->vgpu_count + 1, sizeof(*vgpus));
	size_t count = 0, at = router->vgpu_count;
	struct bf_error err = { 0 };

	router->save_ns = ROUTER_NEVER;
	if (!vgpus)
		return;
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
			to->gpu.folder[0] = 0; /* it is where our software GPU is */
	}
	if (!state_save(router->state_path, vgpus + at, count, &err)) {
		router->save_errno = 0;
		return;
	}
	if (router->save_errno != err.code)
		bf_log(BF_LOG_ERROR, "%s", err.text);
	router->save_errno = err.code;
	router->save_ns = bf_now_ns() + SAVE_AGAIN_S * ROUTER_S;
}

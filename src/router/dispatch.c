/* Decides what happens to a request: answered here, refused, or sent to a GPU server. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/own.h"
#include "base/process.h"
#include "router/internal.h"

struct router_ask *router_ask_new(const struct protocol_request *request, const struct ucred *who, int fd)
{
	struct router_ask *ask = calloc(1, sizeof(*ask));

	if (!ask)
		return NULL;
	ask->fd = fd;
	ask->is_own = fd < 0;
	ask->message = (struct hall_message){ .magic = HALL_MAGIC,
					      .version = PROTOCOL_VERSION,
					      .kind = HALL_REQUEST,
					      .uid = who->uid,
					      .gid = who->gid,
					      .pid = who->pid,
					      .request = *request };
	return ask;
}

void router_ask_own(struct router *router, enum protocol_op op, const struct router_vgpu *vgpu,
		    uint32_t parts)
{
	struct protocol_request request = { .magic = PROTOCOL_MAGIC,
					    .version = PROTOCOL_VERSION,
					    .op = op,
					    .parts = parts,
					    .gpu = vgpu->gpu,
					    .spec = vgpu->spec };
	struct ucred who = { getpid(), vgpu->uid, (gid_t)-1 };
	struct router_ask *ask;

	memcpy(request.name, vgpu->name, sizeof(request.name));
	ask = router_ask_new(&request, &who, -1);
	if (!ask)
		return;
	ask->holds_name = op == PROTOCOL_CREATE;
	if (vgpu->server)
		router_server_ask(router, vgpu->server, ask);
	else
		router_dispatch(router, ask);
}

static struct json_object *gpu_json(const struct router_server *server)
{
	const struct hall_gpu *use = &server->use;
	struct json_object *gpu = json_object_new_object();

	/* Skip "GPU ". */
	json_add_text(gpu, "gpu", server->label + 4);
	json_add_text(gpu, "kind", server->gpu.kind == PROTOCOL_GPU_SOFT ? "soft" : "nv");
	json_add_number(gpu, "index", server->gpu.index);
	json_add_text(gpu, "folder", server->gpu.folder);
	if (server->phase != ROUTER_READY) {
		json_add_text(gpu, "why", server->failure[0] ? server->failure : "its server is starting");
		return gpu;
	}
	json_add_number(gpu, "server_pid", use->server_pid);
	json_add_text(gpu, "driver", use->driver);
	json_add_number(gpu, "mem_total", use->mem_bytes);
	json_add_number(gpu, "mem_reserved", use->mem_reserved_bytes);
	json_add_real(gpu, "request", use->request_ppm / 1e6);
	json_add_number(gpu, "vgpus", use->vgpus);
	json_add_number(gpu, "runs", use->runs);
	return gpu;
}

static struct json_object *daemon_json(const struct router *router)
{
	const struct config *config = &router->config;
	struct json_object *daemon = json_object_new_object();

	json_add_number(daemon, "pid", getpid());
	json_add_text(daemon, "version", BELFRY_VERSION);
	json_add_number(daemon, "protocol", PROTOCOL_VERSION);
	json_add_text(daemon, "socket", router->socket);
	json_add_bool(daemon, "is_private", router->options.is_private);
	json_add_text(daemon, "on_daemon_death", router_carries(router) ? "carry" : "end");
	json_add_number(daemon, "uid", geteuid());
	json_add_text(daemon, "config", config->file_count ? config->files[0] : NULL);
	json_add_text(daemon, "oci_socket", router_oci_socket(router));
	return daemon;
}

/* Where the configuration has the vGPU; NULL: nowhere. */
static struct json_object *section_json(const struct router *router, const char *name)
{
	const struct config_vgpu *vgpu = config_find(&router->config, name);
	struct json_object *section;

	if (!vgpu || vgpu->file >= router->config.file_count)
		return NULL;
	section = json_object_new_object();
	json_add_text(section, "file", router->config.files[vgpu->file]);
	json_add_number(section, "line", vgpu->line);
	return section;
}

char *router_hello(const struct router *router, const char *name)
{
	struct json_object *all = json_object_new_object(), *gpus = json_object_new_array(),
			   *failed = json_object_new_array();
	size_t bytes;

	for (const struct router_server *server = router->servers; server; server = server->next)
		if (server->phase == ROUTER_READY)
			json_object_array_add(gpus, gpu_json(server));
		else if (server->failure[0] || router_server_is_coming(server))
			json_object_array_add(failed, gpu_json(server));
	json_add(all, "daemon", daemon_json(router));
	json_add(all, "gpus", gpus);
	json_add(all, "failed", failed);
	json_add(all, "pending", router_pending_json(router));
	if (name[0])
		json_add(all, "section", section_json(router, name));
	return json_text(all, &bytes);
}

static void fail(struct router *router, struct router_ask *ask, int code, const char *text)
{
	struct bf_error err;

	bf_fail(&err, code, "%s", text);
	router_refuse(router, ask, &err);
}

static void answer_hello(struct router *router, struct router_ask *ask)
{
	cleanup_free char *body = router_hello(router, ask->message.request.name);

	if (body)
		router_answer(router, ask, body);
	else
		fail(router, ask, ENOMEM, "no memory for an answer; try again");
}

static void answer_account(struct router *router, struct router_ask *ask)
{
	cleanup_free char *body = router_totals_text(router);

	if (body)
		router_answer(router, ask, body);
	else
		fail(router, ask, ENOMEM, "no memory for an answer; try again");
}

static void reload(struct router *router, struct router_ask *ask)
{
	if (!bf_is_admin(ask->message.uid))
		fail(router, ask, EPERM, "reload: only root and the user belfryd runs as may ask for it");
	else if (router->reloading.ask || router_lookup_waits(router))
		fail(router, ask, EAGAIN, "the configuration is being carried out; try again");
	else
		router_lookup_begin(router, ask);
}

/* A server that is starting, if any. */
static struct router_server *first_coming(const struct router *router)
{
	for (struct router_server *server = router->servers; server; server = server->next)
		if (router_server_is_coming(server))
			return server;
	return NULL;
}

/* Start a listed server that does not run: a private belfryd starts its servers on demand. */
static struct router_server *start_another(struct router *router)
{
	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->is_listed && server->phase == ROUTER_OFF && router_server_begin(router, server))
			return server;
	return NULL;
}

static void to_server(struct router *router, struct router_server *server, struct router_ask *ask)
{
	struct router_vgpu *vgpu = ask->holds_name ? router_vgpu_find(router, ask->message.request.name)
						   : NULL;

	if (vgpu) {
		vgpu->server = server;
		vgpu->gpu = server->gpu;
	}
	ask->message.request.gpu = server->gpu;
	router_server_ask(router, server, ask);
}

/* The first reason why a GPU is not served. */
static const char *first_failure(const struct router *router)
{
	for (const struct router_server *server = router->servers; server; server = server->next)
		if (server->failure[0])
			return server->failure;
	return "no GPU is served; name one in the configuration, or with --gpu";
}

/* Send the request to a GPU with enough room. */
static void place(struct router *router, struct router_ask *ask)
{
	struct router_server *ready[ROUTER_SERVERS_MAX], *coming = first_coming(router);
	struct router_room rooms[ROUTER_SERVERS_MAX] = { 0 };
	unsigned count = 0;
	struct bf_error err = { 0 };
	int best;

	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->phase == ROUTER_READY && count < ROUTER_SERVERS_MAX) {
			rooms[count] = router_server_room(router, server);
			ready[count++] = server;
		}
	best = router_place(rooms, count, &ask->message.request.spec, &err);
	if (best >= 0)
		to_server(router, ready[best], ask);
	else if (coming)
		router_server_await(router, coming, ask);
	else if ((coming = start_another(router)))
		router_server_await(router, coming, ask);
	else if (count)
		router_refuse(router, ask, &err);
	else
		fail(router, ask, ENODEV, first_failure(router));
}

/* The server of the GPU that the request names, started if allowed. NULL: the request was refused. */
static struct router_server *server_of(struct router *router, struct router_ask *ask)
{
	const struct protocol_gpu *gpu = &ask->message.request.gpu;
	struct router_server *server = router_server_find(router, gpu);
	struct bf_error err = { 0 };

	if (!server && router->options.is_private && gpu->kind <= PROTOCOL_GPU_SOFT &&
	    gpu->index <= CONFIG_NV_MAX)
		server = router_server_add(router, gpu, &err);
	else if (!server)
		bf_fail(&err, ENODEV,
			"GPU %s%u: belfryd does not serve it; belfry info lists those it serves",
			gpu->kind == PROTOCOL_GPU_SOFT ? "soft:" : "", gpu->index);
	if (!server) {
		router_refuse(router, ask, &err);
		return NULL;
	}
	/* It counts for every later start of the server, and so for all users. */
	server->any_driver |= (ask->message.request.flags & PROTOCOL_ANY_DRIVER) &&
			      bf_is_admin(ask->message.uid);
	if (!router_server_begin(router, server)) {
		fail(router, ask, ENODEV, server->failure);
		return NULL;
	}
	return server;
}

/* The limits of a job's vGPU are what the scheduler has granted. Its owner, the user of the job, must not change them, nor remove
 * the vGPU: the next step of the job would get another one, with other limits. */
static int check_job_name(const struct router_ask *ask, struct bf_error *err)
{
	const struct protocol_request *request = &ask->message.request;

	if (ask->fd < 0 || bf_is_admin(ask->message.uid) || !spec_is_of_job(request->name))
		return 0;
	return bf_fail(err, EPERM,
		       "%s: the names " SPEC_JOB_PREFIX
		       "NUMBER are those of Slurm's jobs; only root may create, change or remove their vGPUs",
		       request->name);
}

/* --owner: the request counts as a request of that user. */
static int take_owner(struct router_ask *ask, struct bf_error *err)
{
	struct protocol_request *request = &ask->message.request;

	if (!(request->flags & PROTOCOL_OWNER))
		return 0;
	if (ask->message.uid)
		return bf_fail(err, EPERM, "%.63s: only root may make a vGPU for another user",
			       request->name);
	request->flags &= ~(uint32_t)PROTOCOL_OWNER;
	ask->message.uid = request->owner;
	return 0;
}

static int reserve(struct router *router, struct router_ask *ask, struct bf_error *err)
{
	struct protocol_request *request = &ask->message.request;
	struct spec spec = spec_default;
	struct router_vgpu *vgpu;
	int rc = spec_check_name(request->name, err);

	spec_merge(&spec, &request->spec, request->parts);
	if (!rc)
		rc = spec_check(&spec, err);
	if (rc)
		return rc;
	if (router_vgpu_find(router, request->name))
		return bf_fail(err, EEXIST, "name '%s': a vGPU of this name is there already; choose another",
			       request->name);
	rc = ask->fd >= 0 ? router_quota_check(router, ask->message.uid, &spec, NULL, err) : 0;
	if (rc)
		return rc;
	vgpu = router_vgpu_add(router, request->name, err);
	if (!vgpu)
		return -err->code;
	vgpu->phase = ROUTER_RESERVED;
	vgpu->spec = request->spec = spec;
	vgpu->uid = ask->message.uid;
	vgpu->is_ephemeral = protocol_is_run(request->op);
	ask->holds_name = true;
	return 0;
}

/* The name belongs to a vGPU that is removed with its run. Its server knows first whether the run has just ended, so
 * the server decides. Otherwise NULL, and err may have a better reason. */
static struct router_server *server_of_ending_run(struct router *router, struct router_ask *ask,
						  struct bf_error *err)
{
	const struct protocol_request *request = &ask->message.request;
	struct router_vgpu *vgpu = router_vgpu_find(router, request->name);
	bool is_going = vgpu && vgpu->is_ephemeral && vgpu->phase == ROUTER_THERE;
	bool is_own = vgpu && vgpu->uid == ask->message.uid;
	struct spec spec = spec_default;

	if (!is_going || vgpu->is_claimed ||
	    (request->gpu.kind != PROTOCOL_GPU_ANY &&
	     router_server_find(router, &request->gpu) != vgpu->server))
		return NULL;
	spec_merge(&spec, &request->spec, request->parts);
	if (ask->fd >= 0 && router_quota_check(router, ask->message.uid, &spec, is_own ? vgpu : NULL, err))
		return NULL;
	vgpu->is_claimed = true;
	vgpu->is_sent = false;
	vgpu->claim_is_run = protocol_is_run(request->op);
	vgpu->claim_uid = ask->message.uid;
	vgpu->claim_spec = spec;
	ask->holds_name = true;
	return vgpu->server;
}

static void create(struct router *router, struct router_ask *ask)
{
	struct bf_error err = { 0 };
	struct router_server *server;

	if (check_job_name(ask, &err) || (ask->fd >= 0 && take_owner(ask, &err))) {
		router_refuse(router, ask, &err);
		return;
	}
	if (!ask->holds_name && reserve(router, ask, &err)) {
		server = err.code == EEXIST ? server_of_ending_run(router, ask, &err) : NULL;
		if (!server)
			router_refuse(router, ask, &err);
		else if (!router_server_begin(router, server))
			fail(router, ask, ENODEV, server->failure);
		else
			to_server(router, server, ask);
		return;
	}
	if (ask->message.request.gpu.kind == PROTOCOL_GPU_ANY) {
		place(router, ask);
		return;
	}
	server = server_of(router, ask);
	if (server)
		to_server(router, server, ask);
}

/* A saved vGPU that cannot be created now, because its GPU is not served. Its owner can still remove it. */
static void without_gpu(struct router *router, struct router_ask *ask, struct router_vgpu *vgpu)
{
	struct bf_error err = { 0 };

	if (ask->message.request.op != PROTOCOL_REMOVE) {
		bf_fail(&err, ENODEV, "%s: its GPU, %s%u, is not served now", vgpu->name,
			vgpu->gpu.kind == PROTOCOL_GPU_SOFT ? "soft:" : "", vgpu->gpu.index);
		router_refuse(router, ask, &err);
	} else if (ask->message.uid != vgpu->uid && !bf_is_admin(ask->message.uid)) {
		bf_fail(&err, EPERM, "%s: belongs to user %u; only that user and root may remove it",
			vgpu->name, vgpu->uid);
		router_refuse(router, ask, &err);
	} else {
		router_vgpu_drop(router, vgpu);
		if (router_state_save(router, &err))
			router_refuse(router, ask, &err);
		else
			router_answer(router, ask, NULL);
	}
}

static void by_name(struct router *router, struct router_ask *ask)
{
	const struct protocol_gpu *gpu = &ask->message.request.gpu;
	struct router_vgpu *vgpu = router_vgpu_find(router, ask->message.request.name);
	uint32_t op = ask->message.request.op;
	struct bf_error err = { 0 };

	if (!vgpu || (vgpu->phase == ROUTER_RESERVED && !vgpu->server)) {
		bf_fail(&err, ENOENT, "%s: no vGPU of this name; belfry ls lists the vGPUs",
			ask->message.request.name);
		router_refuse(router, ask, &err);
	} else if ((op == PROTOCOL_SET || op == PROTOCOL_REMOVE) && check_job_name(ask, &err)) {
		router_refuse(router, ask, &err);
	} else if (!vgpu->server) {
		without_gpu(router, ask, vgpu);
	} else if (gpu->kind != PROTOCOL_GPU_ANY && !router_server_is_of(vgpu->server, gpu)) {
		bf_fail(&err, EINVAL, "%s: it is on %s, and another GPU was named; leave that out",
			vgpu->name, vgpu->server->label);
		router_refuse(router, ask, &err);
	} else if (ask->fd >= 0 && op == PROTOCOL_SET &&
		   (ask->message.uid == vgpu->uid || !ask->message.uid) &&
		   router_quota_set(router, vgpu, ask, &err)) {
		router_refuse(router, ask, &err);
	} else if (router_server_begin(router, vgpu->server)) {
		router_server_ask(router, vgpu->server, ask);
	} else if (op == PROTOCOL_REMOVE && vgpu->phase == ROUTER_LOST) {
		without_gpu(router, ask, vgpu);
	} else {
		fail(router, ask, ENODEV, vgpu->server->failure);
	}
}

static void by_gpu(struct router *router, struct router_ask *ask)
{
	struct router_server *server = NULL;

	if (ask->message.request.gpu.kind != PROTOCOL_GPU_ANY) {
		server = server_of(router, ask);
		if (server)
			router_server_ask(router, server, ask);
		return;
	}
	for (server = router->servers; server && server->phase != ROUTER_READY;)
		server = server->next;
	if (server) {
		router_server_ask(router, server, ask);
		return;
	}
	server = first_coming(router);
	if (!server)
		server = start_another(router);
	if (server)
		router_server_await(router, server, ask);
	else
		fail(router, ask, ENODEV, first_failure(router));
}

/* Requests wait until all servers are found or started. PROTOCOL_RELOAD, which may change the servers, and
 * PROTOCOL_EVENTS, which shows their start, do not wait. In a private belfryd, which starts servers on demand,
 * PROTOCOL_HELLO also waits later, while a server starts. */
static bool is_too_early(const struct router *router, const struct router_ask *ask)
{
	return ask->message.request.op != PROTOCOL_RELOAD && ask->message.request.op != PROTOCOL_EVENTS &&
	       (!router->is_settled ||
		(router->options.is_private && ask->message.request.op == PROTOCOL_HELLO));
}

void router_dispatch(struct router *router, struct router_ask *ask)
{
	const struct protocol_request *request = &ask->message.request;
	struct router_server *coming = is_too_early(router, ask) ? first_coming(router) : NULL;

	if (coming) {
		router_server_await(router, coming, ask);
		return;
	}
	switch (request->op) {
	case PROTOCOL_HELLO:
		answer_hello(router, ask);
		return;
	case PROTOCOL_RELOAD:
		reload(router, ask);
		return;
	case PROTOCOL_EVENTS:
		router_events_follow(router, ask);
		return;
	case PROTOCOL_ACCOUNT:
		answer_account(router, ask);
		return;
	case PROTOCOL_CREATE:
		create(router, ask);
		return;
	case PROTOCOL_RUN:
	case PROTOCOL_ATTACH:
		if (request->flags & PROTOCOL_EPHEMERAL)
			create(router, ask);
		else
			by_name(router, ask);
		return;
	case PROTOCOL_REPORT:
	case PROTOCOL_TRACE:
	case PROTOCOL_POLICY_LOAD:
	case PROTOCOL_POLICY_UNLOAD:
	case PROTOCOL_POLICY_LIST:
	case PROTOCOL_POLICY_DUMP:
	case PROTOCOL_POLICY_FOLLOW:
		if (request->name[0])
			by_name(router, ask);
		else
			by_gpu(router, ask);
		return;
	case PROTOCOL_REMOVE:
	case PROTOCOL_SET:
	case PROTOCOL_EXPLAIN:
	case PROTOCOL_HOLD:
	case PROTOCOL_OPEN:
	case PROTOCOL_STOP:
	case PROTOCOL_RESUME:
	case PROTOCOL_PROBE_ATTACH:
	case PROTOCOL_PROBE_DETACH:
	case PROTOCOL_PROBE_LIST:
	case PROTOCOL_PROBE_DUMP:
		by_name(router, ask);
		return;
	default:
		fail(router, ask, EPROTO, "an unknown request; use a belfry and a belfryd of one release");
	}
}

/* The connections that belfryd has handed over, and their requests. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/handed.h"
#include "base/message.h"
#include "base/own.h"
#include "base/process.h"
#include "client/inside.h"
#include "client/reply.h"
#include "gpu/policy.h"

enum { TALKER_HEARD = EPOLLIN | EPOLLRDHUP };
enum { NEXT_REQUEST_S = 10, START_LIMIT_S = 30, LAST_WORDS = 64 };

static int check_welcome(const struct gpu *gpu, const struct ucred *who, struct bf_error *err)
{
	unsigned all = 0, of_user = 0;

	if (bf_is_admin(who->uid))
		return 0;
	for (const struct talker *t = LIST_FIRST(&gpu->talkers); t; t = LIST_NEXT(t, next)) {
		all++;
		of_user += t->who.uid == who->uid;
	}
	if (of_user >= GPU_TALKERS_OF_ONE)
		return bf_fail(
			err, EAGAIN,
			"you have %u connections to the GPU server, the most one user may have; close some",
			of_user);
	if (all >= GPU_TALKERS_MAX - GPU_TALKERS_SPARE)
		return bf_fail(err, EAGAIN, "the GPU server has %u connections; try again later", all);
	return 0;
}

static struct talker *free_slot(struct gpu *gpu)
{
	for (unsigned i = 0; i < GPU_TALKERS_MAX; i++)
		if (gpu->talker_slots[i].sock < 0)
			return &gpu->talker_slots[i];
	return NULL;
}

static void talker_ready(void *context, uint32_t events)
{
	struct talker *talker = context;

	(void)events;
	talker_work(talker->gpu, talker);
}

struct talker *talker_add(struct gpu *gpu, int sock, const struct ucred *who, struct bf_error *err)
{
	struct talker *talker;

	if (check_welcome(gpu, who, err))
		return NULL;
	talker = free_slot(gpu);
	if (!talker) {
		bf_fail(err, EAGAIN, "the GPU server has %d connections, the most it takes; try again later",
			GPU_TALKERS_MAX);
		return NULL;
	}
	*talker = (struct talker){ .sock = sock, .gpu = gpu, .who = *who, .events = TALKER_HEARD };
	talker->source = loop_add(gpu->loop, sock, TALKER_HEARD, LOOP_MIDDLE, talker_ready, talker);
	if (!talker->source) {
		*talker = (struct talker){ .sock = -1 };
		bf_fail(err, EAGAIN, "the GPU server cannot watch another connection; try again later");
		return NULL;
	}
	LIST_INSERT_HEAD(&gpu->talkers, talker, next);
	return talker;
}

/* A run's connection, or one that waits for an answer, reports its end only. */
void talkers_watch(struct gpu *gpu)
{
	for (struct talker *t = LIST_FIRST(&gpu->talkers); t; t = LIST_NEXT(t, next)) {
		bool is_heard = !t->run && !t->waits_for_load && !t->waits_for_mps && !t->unsaved && !t->dump;
		uint32_t events = is_heard ? TALKER_HEARD : EPOLLRDHUP;

		if (t->events != events)
			loop_change(gpu->loop, t->source, events);
		t->events = events;
	}
}

void talker_drop(struct gpu *gpu, struct talker *talker)
{
	struct vgpu *vgpu = talker->vgpu;

	gpu_lock(gpu);
	if (talker->follower)
		follower_remove(gpu, talker->follower);
	if (talker->run)
		run_end(talker->run, NULL);
	else if (vgpu && talker->is_ephemeral && !vgpu->runs)
		vgpu_remove(vgpu, "its run did not start");
	gpu_unlock(gpu);
	if (talker->waits_for_load)
		loader_drop(gpu, talker);
	if (talker->dump)
		probes_drop_dump(talker);
	if (talker->mps)
		mps_drop(talker->mps);
	LIST_REMOVE(talker, next);
	loop_remove(gpu->loop, talker->source);
	bf_close_connection(&talker->sock);
	free(talker->unsaved);
	*talker = (struct talker){ .sock = -1 };
}

static void send_reply(struct gpu *gpu, struct talker *talker, struct protocol_reply *reply, const char *body,
		       size_t bytes)
{
	if (!reply_send(talker->sock, reply, body, bytes))
		talker_drop(gpu, talker); /* a client that does not read its answers is not waited for */
	else if (!talker->vgpu && !talker->is_loading)
		talker->until_ns = bf_now_ns() + NEXT_REQUEST_S * 1000000000ull;
}

/* A change that belfryd saves is acknowledged only when it is on the disk. */
static bool wait_until_saved(struct gpu *gpu, struct talker *talker, uint32_t op,
			     const struct protocol_reply *reply)
{
	if (reply->code || (op != PROTOCOL_CREATE && op != PROTOCOL_REMOVE && op != PROTOCOL_SET))
		return false;
	talker->unsaved = malloc(sizeof(*reply));
	if (!talker->unsaved)
		return false;
	*talker->unsaved = *reply;
	talker->unsaved_op = op;
	talker->ticket = ++gpu->last_ticket;
	if (gpu_hall_ask_save(gpu, talker->ticket))
		return true;
	free(talker->unsaved);
	talker->unsaved = NULL;
	return false;
}

/* A new vGPU that cannot be saved is removed again. A change or a removal stays until belfryd ends. */
static void not_saved(struct gpu *gpu, const struct talker *talker, struct protocol_reply *reply,
		      const struct hall_message *message)
{
	struct vgpu *vgpu;

	reply->code = (int32_t)message->flags;
	if (talker->unsaved_op != PROTOCOL_CREATE) {
		snprintf(reply->text, sizeof(reply->text), "%.63s: %s, but not for good: %.400s", reply->name,
			 talker->unsaved_op == PROTOCOL_REMOVE ? "removed" : "changed", message->text);
		return;
	}
	snprintf(reply->text, sizeof(reply->text), "%.63s: not made: %.400s", reply->name, message->text);
	gpu_lock(gpu);
	vgpu = vgpu_find(gpu, reply->name);
	if (vgpu)
		vgpu_remove(vgpu, "the vGPU could not be remembered");
	gpu_unlock(gpu);
}

void talkers_saved(struct gpu *gpu, const struct hall_message *message)
{
	struct talker *talker, *after;

	LIST_FOREACH_SAFE(talker, &gpu->talkers, next, after) {
		struct protocol_reply reply;

		if (!talker->unsaved || (message && talker->ticket != message->ticket))
			continue;
		reply = *talker->unsaved;
		free(talker->unsaved);
		talker->unsaved = NULL;
		if (message && message->flags)
			not_saved(gpu, talker, &reply, message);
		send_reply(gpu, talker, &reply, NULL, 0);
	}
}

static void answer(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
		   const struct bf_error *err, const char *body, size_t bytes, uint64_t start_ns)
{
	struct protocol_reply reply = reply_of(err->code ? err : NULL);
	bool is_clients = talker->sock >= 0, is_set = request->op == PROTOCOL_SET;

	/* belfryd reserves the name for the client until it receives HALL_VGPU or HALL_REFUSED, and counts a SET in the
	 * quota until it receives HALL_DONE or HALL_REFUSED. */
	if (err->code &&
	    (!is_clients || is_set || request->op == PROTOCOL_CREATE || protocol_is_run(request->op)))
		gpu_hall_tell_refused(gpu, request, err->text, is_clients);
	else if (!err->code && (!is_clients || is_set))
		gpu_hall_tell_done(gpu, request, is_clients);
	if (!is_clients)
		return;
	reply.took_ns = bf_now_ns() - start_ns;
	reply.gpu = gpu->which;
	if (talker->now_shared[0]) {
		reply.flags |= PROTOCOL_NOW_SHARED;
		snprintf(reply.text, sizeof(reply.text), "%s", talker->now_shared);
	}
	if (talker->mps && !err->code)
		snprintf(reply.mps_folder, sizeof(reply.mps_folder), "%s", mps_folder_of(talker->mps));
	if (talker->vgpu && (talker->wants_probes || talker->mps) && !err->code)
		snprintf(reply.probe_socket, sizeof(reply.probe_socket), "%s", gpu->probe_socket);
	memcpy(reply.name, request->name, sizeof(reply.name));
	if (!wait_until_saved(gpu, talker, request->op, &reply))
		send_reply(gpu, talker, &reply, body, bytes);
}

static struct vgpu *find(struct gpu *gpu, const struct protocol_request *request, struct bf_error *err)
{
	struct vgpu *vgpu = vgpu_find(gpu, request->name);

	if (!vgpu)
		bf_fail(err, ENOENT, "%s: no vGPU of this name; belfry ls lists the vGPUs", request->name);
	return vgpu;
}

/* For the owner and root only. */
static struct vgpu *find_own(struct gpu *gpu, const struct talker *talker,
			     const struct protocol_request *request, struct bf_error *err)
{
	struct vgpu *vgpu = find(gpu, request, err);

	if (!vgpu || vgpu_may_change(vgpu, talker->who.uid))
		return vgpu;
	bf_fail(err, EPERM, "%s: belongs to user %u; only that user and root may do that", request->name,
		vgpu->owner);
	return NULL;
}

/* For the reply to a request before which the domain of the vGPU was not shared. */
static void note_shared(struct talker *talker, const struct vgpu *vgpu)
{
	if (vgpu_is_shared(vgpu))
		snprintf(talker->now_shared, sizeof(talker->now_shared), "%s", vgpu->spec.domain);
}

static struct vgpu *create(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
			   struct bf_error *err)
{
	struct spec spec = spec_default;
	struct vgpu *vgpu;
	bool was_shared;

	spec_merge(&spec, &request->spec, request->parts);
	/* belfryd's own vGPUs are always created. If another user has a domain of that name, they are in a separate
	 * one. */
	if (talker->sock >= 0 && domain_check(gpu, spec.domain, talker->who.uid, err))
		return NULL;
	was_shared = domain_is_shared(gpu, spec.domain, talker->who.uid);
	vgpu = vgpu_create(gpu, request->name, &spec, talker->who.uid,
			   request->flags & PROTOCOL_EPHEMERAL ? VGPU_IS_EPHEMERAL : 0, err);
	if (vgpu && !was_shared)
		note_shared(talker, vgpu);
	return vgpu;
}

/* The programs of one MPS server are of one user. */
static void take_mps(struct talker *talker, struct vgpu *vgpu, struct bf_error *err)
{
	struct mps_owner owner = { talker->who.uid, talker->who.gid };

	if (talker->who.uid == vgpu->owner)
		talker->mps = mps_take(vgpu, &owner, err);
	else
		bf_fail(err, EPERM,
			"%s: domain '%s' is shared, and only its owner, user %u, may run programs in it",
			vgpu->name, vgpu->spec.domain, vgpu->owner);
}

/* Find or create the vGPU of a run. The run itself begins with the next message. */
static void run(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
		struct bf_error *err)
{
	struct vgpu *vgpu;

	if (talker->sock < 0 || talker->vgpu) {
		bf_fail(err, EINVAL, "a connection is for one run");
		return;
	}
	talker->is_ephemeral = request->flags & PROTOCOL_EPHEMERAL;
	talker->is_attaching = request->op == PROTOCOL_ATTACH;
	talker->wants_probes = request->flags & PROTOCOL_PROBES;
	vgpu = talker->is_ephemeral ? create(gpu, talker, request, err) : find(gpu, request, err);
	if (vgpu && !vgpu_may_use(vgpu, talker->who.uid)) {
		bf_fail(err, EPERM, "%s: belongs to user %u, and is not public", request->name, vgpu->owner);
		return;
	}
	if (vgpu && talker->is_attaching && request->flags & PROTOCOL_OWNER &&
	    !vgpu_may_use(vgpu, request->owner))
		bf_fail(err, EPERM, "%s: belongs to user %u, and the program to user %u", request->name,
			vgpu->owner, request->owner);
	else if (vgpu && talker->is_attaching)
		attach_check(talker, vgpu, err);
	else if (vgpu && vgpu_is_shared(vgpu))
		take_mps(talker, vgpu, err);
	if (err->code && vgpu && talker->is_ephemeral)
		vgpu_remove(vgpu, "its run did not start");
	if (err->code)
		return;
	talker->vgpu = vgpu;
	talker->until_ns = bf_now_ns() + START_LIMIT_S * 1000000000ull;
}

static void remove_vgpu(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
			struct bf_error *err)
{
	struct vgpu *vgpu = find_own(gpu, talker, request, err);

	if (!vgpu)
		return;
	if (vgpu->run_count && !(request->flags & PROTOCOL_FORCE)) {
		const char *runs = vgpu->run_count == 1 ? " runs" : "s run",
			   *them = vgpu->run_count == 1 ? "it" : "them";

		if (talker->sock < 0)
			bf_fail(err, EBUSY, "%u program%s on it; end %s, or use belfry rm --force %s",
				vgpu->run_count, runs, them, request->name);
		else
			bf_fail(err, EBUSY, "%s: %u program%s on it; --force ends %s", request->name,
				vgpu->run_count, runs, them);
		return;
	}
	vgpu_remove(vgpu, "the vGPU was removed");
}

static void set(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
		struct bf_error *err)
{
	struct vgpu *vgpu = find_own(gpu, talker, request, err);
	bool is_joining = talker->sock >= 0 && request->parts & SPEC_DOMAIN, was_shared;

	if (!vgpu || (is_joining && domain_check(gpu, request->spec.domain, vgpu->owner, err)))
		return;
	was_shared = domain_is_shared(
		gpu, request->parts & SPEC_DOMAIN ? request->spec.domain : vgpu->spec.domain, vgpu->owner);
	if (!vgpu_set(vgpu, &request->spec, request->parts, err) && !was_shared)
		note_shared(talker, vgpu);
}

/* After the answer to these requests the client sends a descriptor. */
static int expect_file(struct talker *talker, uint32_t op, struct bf_error *err)
{
	if (talker->sock < 0 || (op != PROTOCOL_RUN && op != PROTOCOL_ATTACH && op != PROTOCOL_POLICY_LOAD &&
				 op != PROTOCOL_PROBE_ATTACH))
		return 0;
	if (bf_handed_is_full(talker->who.uid))
		return bf_fail(err, EAGAIN,
			       "descriptors that you have sent cannot be closed; try again later");
	bf_handing_allow(talker->sock, true);
	return 0;
}

/* *body, if set, is the body of the answer. */
static void perform(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
		    char **body, size_t *bytes, struct bf_error *err)
{
	struct vgpu *vgpu;

	switch (request->op) {
	case PROTOCOL_CREATE:
		create(gpu, talker, request, err);
		return;
	case PROTOCOL_RUN:
	case PROTOCOL_ATTACH:
		run(gpu, talker, request, err);
		return;
	case PROTOCOL_REMOVE:
		remove_vgpu(gpu, talker, request, err);
		return;
	case PROTOCOL_SET:
		set(gpu, talker, request, err);
		return;
	case PROTOCOL_HOLD:
	case PROTOCOL_OPEN:
	case PROTOCOL_STOP:
	case PROTOCOL_RESUME:
		vgpu = find_own(gpu, talker, request, err);
		if (vgpu)
			vgpu_order(vgpu, request->op, request->for_us, err);
		return;
	case PROTOCOL_REPORT:
		if (!request->name[0] || find(gpu, request, err))
			*body = gpu_report(gpu, request->name, bytes);
		break;
	case PROTOCOL_EXPLAIN:
		vgpu = find_own(gpu, talker, request, err);
		if (vgpu)
			*body = gpu_explain(vgpu, bytes);
		break;
	case PROTOCOL_TRACE:
		*body = gpu_trace_text(gpu, bf_is_admin(talker->who.uid) ? NULL : &talker->who.uid, bytes);
		break;
	case PROTOCOL_POLICY_LOAD:
	case PROTOCOL_POLICY_UNLOAD:
	case PROTOCOL_POLICY_LIST:
	case PROTOCOL_POLICY_DUMP:
	case PROTOCOL_POLICY_FOLLOW:
		policy_request(gpu, talker, request, body, bytes, err);
		return;
	case PROTOCOL_PROBE_ATTACH:
	case PROTOCOL_PROBE_DETACH:
	case PROTOCOL_PROBE_LIST:
	case PROTOCOL_PROBE_DUMP:
		vgpu = talker->sock < 0 ? NULL : find_own(gpu, talker, request, err);
		if (vgpu)
			probe_request(talker, vgpu, request, body, bytes, err);
		return;
	default:
		bf_fail(err, EPROTO, "request %u is not one for a GPU server", request->op);
		return;
	}
	if (!*body && !err->code)
		bf_fail(err, ENOMEM, "out of memory");
}

/* Names, owners and quotas are belfryd's, which has seen the first request only. */
static void refuse_later(struct gpu *gpu, struct talker *talker)
{
	struct bf_error err;
	struct protocol_reply reply;

	bf_fail(&err, EINVAL, "a connection is for one change; connect again for another");
	reply = reply_of(&err);
	send_reply(gpu, talker, &reply, NULL, 0);
}

void talker_request(struct gpu *gpu, struct talker *talker, const struct protocol_request *asked)
{
	struct protocol_request request = *asked;
	struct bf_error err = { 0 };
	cleanup_free char *body = NULL;
	uint64_t start_ns = bf_now_ns();
	size_t bytes = 0;

	request.name[sizeof(request.name) - 1] = 0;
	request.spec.domain[sizeof(request.spec.domain) - 1] = 0;
	talker->until_ns = 0;
	talker->now_shared[0] = 0;
	if (talker->was_asked && !inside_is_query(request.op)) {
		refuse_later(gpu, talker);
		return;
	}
	talker->was_asked = true;
	if (request.magic != PROTOCOL_MAGIC || request.version != PROTOCOL_VERSION) {
		bf_fail(&err, EPROTO, "not a request of version %u", PROTOCOL_VERSION);
	} else if (talker->sock < 0 || talker->is_own ||
		   !inside_check(talker->sock, &request, gpu->filters_floor, &err)) {
		gpu_lock(gpu);
		if (!expect_file(talker, request.op, &err))
			perform(gpu, talker, &request, &body, &bytes, &err);
		gpu_unlock(gpu);
	}
	if (talker->mps && !err.code && !mps_is_ready(talker->mps)) {
		talker->waits_for_mps = true;
		talker->asked_ns = start_ns;
		talker->until_ns = 0;
		return;
	}
	if (talker->dump) /* talker_dumped() follows */
		return;
	answer(gpu, talker, &request, &err, body, bytes, start_ns);
	/* Decisions are sent after the answer. */
	if (request.op == PROTOCOL_POLICY_FOLLOW && !err.code && talker->sock >= 0 &&
	    !policy_follow(gpu, talker, &request))
		talker_drop(gpu, talker);
}

void talker_dumped(struct gpu *gpu, struct talker *talker, const struct bf_error *err, const char *body,
		   size_t bytes, uint64_t start_ns)
{
	struct protocol_request request = { .op = PROTOCOL_PROBE_DUMP };

	answer(gpu, talker, &request, err, body, bytes, start_ns);
}

/* The answer to PROTOCOL_RUN. */
static void serve(struct gpu *gpu, struct talker *talker, const struct bf_error *why)
{
	struct protocol_request request = { .op = PROTOCOL_RUN };
	struct bf_error err = { 0 };

	talker->waits_for_mps = false;
	if (why)
		err = *why;
	else if (!talker->vgpu)
		bf_fail(&err, ENOENT, "the vGPU was removed");
	if (talker->vgpu)
		memcpy(request.name, talker->vgpu->name, sizeof(request.name));
	talker->until_ns = bf_now_ns() + START_LIMIT_S * 1000000000ull;
	answer(gpu, talker, &request, &err, NULL, 0, talker->asked_ns);
	if (err.code && talker->sock >= 0)
		talker_drop(gpu, talker);
}

void talkers_served(struct gpu *gpu, const struct mps *mps, const struct bf_error *err)
{
	struct talker *t, *after;

	LIST_FOREACH_SAFE(t, &gpu->talkers, next, after)
		if (t->waits_for_mps && t->mps == mps)
			serve(gpu, t, err);
}

static void answer_load(struct gpu *gpu, struct talker *talker, const struct bf_error *err, const char *body,
			size_t bytes, uint64_t start_ns)
{
	struct protocol_request request = { .op = PROTOCOL_POLICY_LOAD };

	memcpy(request.name, talker->load_name, sizeof(request.name));
	answer(gpu, talker, &request, err, body, bytes, start_ns);
}

void talker_loaded(struct gpu *gpu, const struct load *load, const char *body, size_t bytes)
{
	load->talker->waits_for_load = false;
	answer_load(gpu, load->talker, &load->err, body, bytes, load->start_ns);
}

/* A policy object has arrived. */
static void came(struct gpu *gpu, struct talker *talker, const struct protocol_policy *message, int file)
{
	cleanup_close int object = file;
	struct bf_error err = { 0 };
	uint64_t start_ns = bf_now_ns();

	if (policy_came(gpu, talker, message, object, &err))
		answer_load(gpu, talker, &err, NULL, 0, start_ns);
}

/* The object of a probe has arrived. */
static void probe_object_came(struct gpu *gpu, struct talker *talker, const struct protocol_probe *message,
			      int file)
{
	cleanup_close int object = file;
	struct bf_error err = { 0 };
	uint64_t start_ns = bf_now_ns();

	if (probe_came(gpu, talker, message, object, &err))
		answer_load(gpu, talker, &err, NULL, 0, start_ns);
}

/* The process of the program exists, and its filter is installed. */
static void started(struct gpu *gpu, struct talker *talker, const struct protocol_started *message,
		    int listener)
{
	struct protocol_request request = { .op = PROTOCOL_RUN };
	struct bf_error err = { 0 };
	uint64_t start_ns = bf_now_ns();

	memcpy(request.name, talker->vgpu->name, sizeof(request.name));
	if (listener < 0 || message->magic != PROTOCOL_MAGIC || message->version != PROTOCOL_VERSION)
		bf_fail(&err, EPROTO, "a run must begin with its filter's listener");
	else
		run_start(talker, message, listener, &err);
	talker->until_ns = 0;
	answer(gpu, talker, &request, &err, NULL, 0, start_ns);
	if (err.code && talker->sock >= 0)
		talker_drop(gpu, talker);
}

/* The run does not need the connection. */
static void attached(struct gpu *gpu, struct talker *talker, const struct protocol_attached *message,
		     int listener)
{
	struct protocol_request request = { .op = PROTOCOL_ATTACH };
	struct bf_error err = { 0 };
	uint64_t start_ns = bf_now_ns();

	memcpy(request.name, talker->vgpu->name, sizeof(request.name));
	attach_start(talker, message, listener, &err);
	answer(gpu, talker, &request, &err, NULL, 0, start_ns);
	if (talker->sock >= 0)
		talker_drop(gpu, talker);
}

/* Before it closes its connection, the client may send how the program ended. Its other messages are for the worker. */
static void hear_end(struct talker *talker)
{
	struct run *run = talker->run;
	struct protocol_ended message;
	ssize_t got = 1;
	int fd;

	for (int i = 0; i < LAST_WORDS && (got > 0 || got == -EMSGSIZE); i++) {
		got = bf_message_receive(talker->sock, &message, sizeof(message), &fd, MSG_DONTWAIT);
		bf_close_handed(&fd, talker->who.uid);
		if (got == (ssize_t)sizeof(message) && message.magic == PROTOCOL_MAGIC &&
		    message.version == PROTOCOL_VERSION) {
			run->has_status = true;
			run->status = message.status & 0xffff;
		}
	}
}

void talker_work(struct gpu *gpu, struct talker *talker)
{
	union {
		struct protocol_request request;
		struct protocol_started started;
		struct protocol_attached attached;
		struct protocol_policy policy;
		struct protocol_probe probe;
	} message;
	ssize_t got;
	int fd;

	memset(&message, 0, sizeof(message));
	if (talker->run)
		hear_end(talker);
	if (talker->run || talker->follower || talker->waits_for_load || talker->waits_for_mps ||
	    talker->unsaved || talker->dump) { /* no message is expected: the client is gone */
		talker_drop(gpu, talker);
		return;
	}
	got = bf_message_receive(talker->sock, &message, sizeof(message), &fd, MSG_DONTWAIT);
	if (fd >= 0 && !bf_is_memory_file(fd) && !bf_is_listener(fd))
		bf_close_handed(&fd, talker->who.uid);
	if (talker->vgpu && talker->is_attaching && got == (ssize_t)sizeof(message.attached)) {
		attached(gpu, talker, &message.attached, fd);
		return;
	}
	if (talker->vgpu && !talker->is_attaching && got == (ssize_t)sizeof(message.started)) {
		started(gpu, talker, &message.started, fd);
		return;
	}
	if (talker->is_probing && got == (ssize_t)sizeof(message.probe)) {
		probe_object_came(gpu, talker, &message.probe, fd);
		return;
	}
	if (talker->is_loading && !talker->is_probing && got == (ssize_t)sizeof(message.policy)) {
		came(gpu, talker, &message.policy, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (got <= 0 || talker->vgpu || talker->is_loading)
		talker_drop(gpu, talker);
	else if (got != (ssize_t)sizeof(message.request))
		talker_request(gpu, talker, &(struct protocol_request){ 0 });
	else
		talker_request(gpu, talker, &message.request);
}

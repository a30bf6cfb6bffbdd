/* Requests of clients about policies: load, unload, list, dump, follow. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "gpu/policy.h"
#include "replay/decision.h"

enum { LOAD_LIMIT_S = 30 };

static int check_may_load(const struct talker *talker, struct bf_error *err)
{
	if (bf_is_admin(talker->who.uid))
		return 0;
	return bf_fail(
		err, EPERM,
		"policies run in the kernel: only root and the user belfryd runs as may load and unload them");
}

/* The vGPU of that name. NULL: the name is empty, or err says that there is no such vGPU. */
static struct vgpu *find(const struct gpu *gpu, const char *name, struct bf_error *err)
{
	struct vgpu *vgpu = name[0] ? vgpu_find(gpu, name) : NULL;

	if (name[0] && !vgpu)
		bf_fail(err, ENOENT, "%s: no vGPU of this name; belfry ls lists the vGPUs", name);
	return vgpu;
}

static void begin_load(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
		       struct bf_error *err)
{
	struct bf_error why = { 0 };

	find(gpu, request->name, err);
	if (err->code || check_may_load(talker, err))
		return;
	if (policy_is_possible(&why)) {
		bf_fail(err, why.code, "belfryd: %.280s; the built-in policy decides, and needs no right",
			why.text);
		return;
	}
	talker->is_loading = true;
	talker->until_ns = bf_now_ns() + LOAD_LIMIT_S * 1000000000ull;
	memcpy(talker->load_name, request->name, sizeof(talker->load_name));
}

static char *unloaded_json(const struct gpu *gpu, const struct vgpu *vgpu, const struct seat *before,
			   size_t *bytes)
{
	struct json_object *top = json_object_new_object();

	json_add_text(top, "policy", before->name);
	json_add_text(top, "vgpu", vgpu ? vgpu->name : NULL);
	json_add_text(top, "decides", policy_name_of(gpu, vgpu));
	return json_text(top, bytes);
}

static void fail_without(const struct gpu *gpu, const struct vgpu *vgpu, const char *more,
			 struct bf_error *err)
{
	if (vgpu)
		bf_fail(err, ENOENT, "%s: no policy is loaded for it alone; %s decides%s", vgpu->name,
			policy_who_decides(gpu, NULL), more);
	else
		bf_fail(err, ENOENT, "no policy is loaded; the built-in decides%s", more);
}

static void unload(struct gpu *gpu, const struct talker *talker, const struct protocol_request *request,
		   char **body, size_t *bytes, struct bf_error *err)
{
	struct vgpu *vgpu = find(gpu, request->name, err);
	struct seat *before;
	char text[128];

	if (err->code || check_may_load(talker, err))
		return;
	if (!vgpu)
		loader_drop(gpu, NULL); /* a configured policy must not be installed after this */
	before = seat_take(gpu, vgpu, NULL);
	if (!before) {
		fail_without(gpu, vgpu, "", err);
		return;
	}
	*body = unloaded_json(gpu, vgpu, before, bytes);
	snprintf(text, sizeof(text), "user %u has unloaded it; %s decides", talker->who.uid,
		 policy_who_decides(gpu, vgpu));
	event_policy(gpu, vgpu, EVENT_POLICY_UNLOADED, before->name, text);
	gpu_unlock(gpu);
	turner_wake(gpu);
	bf_log(BF_LOG_INFO, "policy %s%s%s was unloaded; %s decides", before->name, vgpu ? " of " : "",
	       vgpu ? vgpu->name : "", policy_who_decides(gpu, vgpu));
	seat_free(before);
	gpu_lock(gpu);
}

static struct json_object *hook_json(const struct seat *seat, enum belfry_hook hook,
				     const struct policy_hook_info *info)
{
	struct json_object *to = json_object_new_object();

	json_add_text(to, "hook", policy_hook_name(hook));
	json_add_number(to, "calls", info->calls);
	json_add_real(to, "mean_us", info->calls ? (double)info->total_ns / (double)info->calls / 1e3 : 0);
	json_add_real(to, "most_us", (double)info->most_ns / 1e3);
	json_add_number(to, "defaults", info->defaults);
	json_add_number(to, "errors", info->errors);
	json_add_number(to, "late", info->late);
	json_add_number(to, "clamped", seat->clamped[hook]);
	return to;
}

static struct json_object *unasked_json(const struct seat *seat)
{
	struct json_object *to = json_object_new_array();

	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		if (seat->hooks >> hook & 1 && !decision_is_asked((enum belfry_hook)hook, seat->vgpu))
			json_object_array_add(
				to, json_object_new_string(policy_hook_name((enum belfry_hook)hook)));
	return to;
}

static struct json_object *tunables_json(const struct seat *seat)
{
	struct json_object *to = json_object_new_object();

	for (size_t i = 0; i < seat->tunable_count; i++) {
		const struct policy_tunable *tunable = &seat->tunables[i];

		json_add(to, tunable->name,
			 tunable->is_signed ? json_object_new_int64(tunable->value)
					    : json_object_new_uint64((uint64_t)tunable->value));
	}
	return to;
}

struct json_object *seat_json(const struct seat *seat)
{
	struct json_object *to = json_object_new_object(), *hooks = json_object_new_array();
	struct policy_info info;

	seat_info(seat, &info);
	json_add_text(to, "policy", seat->name);
	json_add_text(to, "vgpu", seat->vgpu ? seat->vgpu->name : NULL);
	json_add_text(to, "what", seat->what);
	json_add_text(to, "file", seat->file);
	json_add_number(to, "since", (uint64_t)seat->since_s);
	json_add_number(to, "age_ns", bf_now_ns() - seat->since_ns);
	json_add_text(to, "pinned", seat->pinned);
	json_add_bool(to, "out", info.is_out);
	json_add_text(to, "why", info.is_out ? info.why : NULL);
	json_add_number(to, "out_ns", seat->out_ns ? bf_now_ns() - seat->out_ns : 0);
	json_add_text(to, "decides", policy_name_of(seat->gpu, seat->vgpu));
	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		if (seat->hooks >> hook & 1)
			json_object_array_add(hooks,
					      hook_json(seat, (enum belfry_hook)hook, &info.hooks[hook]));
	json_add(to, "hooks", hooks);
	json_add(to, "unasked", unasked_json(seat));
	json_add(to, "tunables", tunables_json(seat));
	return to;
}

static void add_seat(struct json_object *to, const struct seat *seat)
{
	if (seat)
		json_object_array_add(to, seat_json(seat));
}

/* The policies that concern one vGPU, in the order in which they are called; or all policies. The built-in comes
 * last: it decides what the others leave to it. */
static char *list(const struct gpu *gpu, const struct vgpu *vgpu, size_t *bytes)
{
	struct json_object *top = json_object_new_object(), *policies = json_object_new_array(),
			   *built_in = json_object_new_object();

	if (vgpu)
		add_seat(policies, vgpu->seat);
	add_seat(policies, gpu->seat);
	for (const struct vgpu *v = gpu->vgpus; !vgpu && v; v = v->next)
		add_seat(policies, v->seat);
	json_add_text(built_in, "policy", "built-in");
	json_add_text(built_in, "vgpu", NULL);
	json_add_text(built_in, "what",
		      "time in the ratio of requests; latency first until it has had its own");
	json_add_number(built_in, "age_ns", bf_now_ns() - gpu->started_ns);
	json_object_array_add(policies, built_in);
	json_add(top, "policies", policies);
	json_add_text(top, "decides", policy_name_of(gpu, vgpu));
	return json_text(top, bytes);
}

static char *dump(struct gpu *gpu, struct vgpu *vgpu, size_t *bytes, struct bf_error *err)
{
	struct seat *seat = vgpu ? vgpu->seat : gpu->seat;
	struct belfry_dump ctx = { .text = "" };
	struct policy_info info;
	struct json_object *top;
	int rc;

	if (!seat) {
		fail_without(gpu, vgpu, vgpu ? "" : ", and has nothing to say", err);
		return NULL;
	}
	if (!(seat->hooks >> BELFRY_HOOK_DUMP & 1)) {
		bf_fail(err, ENOTSUP, "%s: has no hook dump, and so nothing to say of itself", seat->name);
		return NULL;
	}
	rc = vgpu ? seat_call(seat, BELFRY_HOOK_DUMP, &ctx, sizeof(ctx))
		  : sched_ask(gpu->sched, BELFRY_HOOK_DUMP, NULL, &ctx, sizeof(ctx), bf_now_ns());
	seat_info(seat, &info);
	if (info.is_out) {
		bf_fail(err, ENOTSUP, "%s: is out, since %.250s; %s decides", seat->name, info.why,
			policy_who_decides(gpu, vgpu));
		return NULL;
	}
	ctx.text[sizeof(ctx.text) - 1] = 0;
	top = json_object_new_object();
	json_add_text(top, "policy", seat->name);
	json_add_text(top, "text", rc == BELFRY_PROPOSE ? bf_plain(ctx.text) : "");
	return json_text(top, bytes);
}

/* The same rule as for explain: decisions show what programs do, and when. */
static int check_follow(const struct talker *talker, const struct vgpu *vgpu, struct bf_error *err)
{
	if (bf_is_admin(talker->who.uid) || (vgpu && vgpu_may_change(vgpu, talker->who.uid)))
		return 0;
	if (vgpu)
		return bf_fail(err, EPERM, "%s: belongs to user %u; only that user and root may do that",
			       vgpu->name, vgpu->owner);
	return bf_fail(err, EPERM,
		       "decisions about all vGPUs: only root and the user belfryd runs as may follow them; "
		       "name a vGPU of yours");
}

void policy_request(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
		    char **body, size_t *bytes, struct bf_error *err)
{
	struct vgpu *vgpu;

	if (talker->sock < 0 || talker->vgpu || talker->is_loading || talker->follower) {
		bf_fail(err, EINVAL, "this connection is for something else");
		return;
	}
	switch (request->op) {
	case PROTOCOL_POLICY_LOAD:
		begin_load(gpu, talker, request, err);
		return;
	case PROTOCOL_POLICY_UNLOAD:
		unload(gpu, talker, request, body, bytes, err);
		return;
	default:
		break;
	}
	vgpu = find(gpu, request->name, err);
	if (err->code)
		return;
	if (request->op == PROTOCOL_POLICY_FOLLOW && check_follow(talker, vgpu, err))
		return;
	if (request->op == PROTOCOL_POLICY_FOLLOW && follower_check(gpu, &talker->who, err))
		return;
	if (request->op == PROTOCOL_POLICY_LIST)
		*body = list(gpu, vgpu, bytes);
	else if (request->op == PROTOCOL_POLICY_DUMP)
		*body = dump(gpu, vgpu, bytes, err);
	else
		return; /* policy_follow() is called after the answer */
	if (!*body && !err->code)
		bf_fail(err, ENOMEM, "out of memory");
}

bool policy_follow(struct gpu *gpu, struct talker *talker, const struct protocol_request *request)
{
	struct vgpu *vgpu;

	gpu_lock(gpu);
	vgpu = request->name[0] ? vgpu_find(gpu, request->name) : NULL;
	if (vgpu || !request->name[0])
		talker->follower = follower_add(gpu, talker, request->flags, vgpu);
	talker->until_ns = 0;
	gpu_unlock(gpu);
	return talker->follower;
}

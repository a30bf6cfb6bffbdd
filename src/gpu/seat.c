/* Installs and removes policies, and calls their init and exit hooks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/text.h"
#include "gpu/policy.h"

static uint32_t hooks_of(const struct policy *policy)
{
	uint32_t hooks = 0;

	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		if (policy_has(policy, (enum belfry_hook)hook))
			hooks |= 1u << hook;
	return hooks;
}

struct seat *seat_new(struct gpu *gpu, struct vgpu *vgpu, struct policy *policy, const char *file)
{
	struct seat *seat = calloc(1, sizeof(*seat));
	const struct policy_tunable *tunables;

	if (!seat) {
		policy_put(policy);
		return NULL;
	}
	*seat = (struct seat){ .gpu = gpu,
			       .vgpu = vgpu,
			       .policy = policy,
			       .hooks = hooks_of(policy),
			       .number = ++gpu->seats,
			       .since_ns = bf_now_ns(),
			       .since_s = time(NULL) };
	snprintf(seat->name, sizeof(seat->name), "%s", policy_name(policy));
	snprintf(seat->what, sizeof(seat->what), "%s", policy_what(policy));
	snprintf(seat->file, sizeof(seat->file), "%s", file);
	bf_plain(seat->what);
	bf_plain(seat->file);
	tunables = policy_tunables(policy, &seat->tunable_count);
	memcpy(seat->tunables, tunables, sizeof(seat->tunables));
	return seat;
}

void seat_free(struct seat *seat)
{
	if (!seat)
		return;
	policy_put(seat->policy);
	free(seat);
}

void seat_info(const struct seat *seat, struct policy_info *info)
{
	if (seat->policy)
		policy_info(seat->policy, info);
	else
		*info = seat->last;
}

/* Called by sched, so under the lock. The main thread releases a policy that fails. */
static int ask(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	struct seat *seat = context;
	int rc = policy_call(seat->policy, hook, ctx, size);

	if (rc < 0)
		gpu_wake(seat->gpu);
	return rc;
}

static void fail(void *context, const char *why)
{
	struct seat *seat = context;

	policy_fail(seat->policy, why);
	gpu_wake(seat->gpu);
}

static struct sched_policy for_sched(struct seat *seat)
{
	if (!seat || !seat->policy)
		return (struct sched_policy){ .hooks = 0 };
	return (struct sched_policy){ .hooks = seat->hooks,
				      .ask = ask,
				      .fail = fail,
				      .context = seat,
				      .table = policy_table(seat->policy) };
}

struct belfry_head seat_head(const struct gpu *gpu, enum belfry_hook hook, size_t size)
{
	struct sched_options options = gpu_sched_options(gpu);

	return (struct belfry_head){ .now_ns = bf_now_ns(),
				     .hook = hook,
				     .size = (uint32_t)size,
				     .vgpu = BELFRY_NOBODY,
				     .window_ns = options.window_ns,
				     .round_ns = options.round_ns,
				     .slice_min_ns = options.slice_min_ns };
}

int seat_call(struct seat *seat, enum belfry_hook hook, void *ctx, size_t size)
{
	struct belfry_head head;
	int rc;

	if (!seat || !seat->policy || !(seat->hooks >> hook & 1))
		return BELFRY_DEFAULT;
	head = seat_head(seat->gpu, hook, size);
	memcpy(ctx, &head, sizeof(head));
	rc = policy_call(seat->policy, hook, ctx, size);
	memcpy(ctx, &head, sizeof(head)); /* the hook may have overwritten it */
	if (rc >= 0)
		return rc;
	gpu_wake(seat->gpu);
	return BELFRY_DEFAULT;
}

struct belfry_vgpu_init seat_vgpu_init(const struct vgpu *vgpu)
{
	struct sched_share share = gpu_sched_share(&vgpu->spec, vgpu->domain);
	struct belfry_vgpu_init ctx = {
		.id = vgpu->id,
		.request_ppm = share.request_ppm,
		.limit_ppm = share.limit_ppm,
		.class = share.class == SCHED_LATENCY ? BELFRY_LATENCY : BELFRY_THROUGHPUT,
		.percentile_ppm = share.percentile_ppm,
		.objective_ns = share.objective_ns,
		.mem_bytes = vgpu->spec.mem_bytes,
	};

	snprintf(ctx.name, sizeof(ctx.name), "%.*s", (int)sizeof(ctx.name) - 1, vgpu->name);
	return ctx;
}

static void tell_gpus(struct vgpu *vgpu, enum belfry_hook hook)
{
	struct belfry_vgpu_init ctx = seat_vgpu_init(vgpu);

	sched_ask(vgpu->gpu->sched, hook, vgpu->sched, &ctx, sizeof(ctx), bf_now_ns());
}

static void tell_own(struct vgpu *vgpu, enum belfry_hook hook)
{
	struct belfry_vgpu_init ctx = seat_vgpu_init(vgpu);

	seat_call(vgpu->seat, hook, &ctx, sizeof(ctx));
}

void policy_tell(struct vgpu *vgpu, enum belfry_hook hook)
{
	tell_gpus(vgpu, hook);
	tell_own(vgpu, hook);
}

static void set(struct gpu *gpu, struct seat **place, struct seat *seat)
{
	pthread_mutex_lock(&gpu->policy_lock);
	*place = seat;
	pthread_mutex_unlock(&gpu->policy_lock);
}

/* A policy that is out may not be released yet. */
static bool decides(const struct seat *seat)
{
	struct policy_info info = { .is_out = true };

	if (seat)
		seat_info(seat, &info);
	return !info.is_out;
}

/* The holder of the token and the waiting vGPUs stay the same: sched keeps them. */
static void put(struct gpu *gpu, struct vgpu *vgpu, struct seat *seat)
{
	struct sched_policy policy = for_sched(seat);

	set(gpu, vgpu ? &vgpu->seat : &gpu->seat, seat);
	if (vgpu)
		sched_set_vgpu_policy(gpu->sched, vgpu->sched, policy.hooks ? &policy : NULL, bf_now_ns());
	else
		sched_set_policy(gpu->sched, policy.hooks ? &policy : NULL, bf_now_ns());
	decisions_settle(gpu);
}

static void begin_gpus(struct gpu *gpu)
{
	struct belfry_init ctx = { 0 };

	sched_ask(gpu->sched, BELFRY_HOOK_INIT, NULL, &ctx, sizeof(ctx), bf_now_ns());
	for (struct vgpu *v = gpu->vgpus; gpu->seat && v; v = v->next)
		tell_gpus(v, BELFRY_HOOK_VGPU_INIT);
}

static void begin_own(struct vgpu *vgpu)
{
	struct belfry_init ctx = { 0 };

	seat_call(vgpu->seat, BELFRY_HOOK_INIT, &ctx, sizeof(ctx));
	tell_own(vgpu, BELFRY_HOOK_VGPU_INIT);
}

/* The policy is not installed any more. */
static void end(struct seat *seat)
{
	struct belfry_init ctx = { 0 };

	if (seat && seat->vgpu) {
		struct belfry_vgpu_init exit = seat_vgpu_init(seat->vgpu);

		seat_call(seat, BELFRY_HOOK_VGPU_EXIT, &exit, sizeof(exit));
	}
	seat_call(seat, BELFRY_HOOK_EXIT, &ctx, sizeof(ctx));
}

struct seat *seat_take(struct gpu *gpu, struct vgpu *vgpu, struct seat *seat)
{
	struct seat *before = vgpu ? vgpu->seat : gpu->seat;

	put(gpu, vgpu, seat);
	if (vgpu)
		begin_own(vgpu);
	else
		begin_gpus(gpu);
	if (seat && !decides(seat)) { /* the previous policy is unaffected */
		put(gpu, vgpu, before);
		before = seat;
	} else {
		end(before);
	}
	if (!vgpu)
		work_setup(gpu);
	probes_watch_again(gpu);
	return before;
}

const char *policy_name_of(const struct gpu *gpu, const struct vgpu *vgpu)
{
	if (vgpu && decides(vgpu->seat))
		return vgpu->seat->name;
	return decides(gpu->seat) ? gpu->seat->name : "built-in";
}

const char *policy_who_decides(const struct gpu *gpu, const struct vgpu *vgpu)
{
	const char *name = policy_name_of(gpu, vgpu);

	return strcmp(name, "built-in") != 0 ? name : "the built-in";
}

void policy_leave(struct vgpu *vgpu)
{
	struct gpu *gpu = vgpu->gpu;
	struct seat *before;

	tell_gpus(vgpu, BELFRY_HOOK_VGPU_EXIT);
	if (!vgpu->seat)
		return;
	before = seat_take(gpu, vgpu, NULL);
	gpu_unlock(gpu);
	seat_free(before);
	gpu_lock(gpu);
}

/* Release a policy that is out. Its seat keeps the reason until another policy takes its place. */
static void reap(struct gpu *gpu, struct seat *seat)
{
	struct policy_info info = { 0 };
	struct policy *policy;
	char text[256];

	gpu_lock(gpu);
	if (seat->policy)
		policy_info(seat->policy, &info);
	if (!info.is_out) {
		gpu_unlock(gpu);
		return;
	}
	if (seat->vgpu)
		sched_set_vgpu_policy(gpu->sched, seat->vgpu->sched, NULL, bf_now_ns());
	else
		sched_set_policy(gpu->sched, NULL, bf_now_ns());
	policy = seat->policy;
	pthread_mutex_lock(&gpu->policy_lock);
	seat->policy = NULL;
	pthread_mutex_unlock(&gpu->policy_lock);
	seat->last = info;
	seat->out_ns = bf_now_ns();
	seat->pinned[0] = 0;
	decisions_settle(gpu);
	snprintf(text, sizeof(text), "it is out: %.150s; %s decides", info.why,
		 policy_who_decides(gpu, seat->vgpu));
	event_policy(gpu, seat->vgpu, EVENT_POLICY_UNLOADED, seat->name, text);
	gpu_unlock(gpu);
	turner_wake(gpu);
	/* Only the main thread changes seats, and this is the main thread. */
	bf_log(BF_LOG_WARN, "policy %s%s%s is out: %s; %s decides", seat->name, seat->vgpu ? " of " : "",
	       seat->vgpu ? seat->vgpu->name : "", info.why, policy_who_decides(gpu, seat->vgpu));
	policy_put(policy);
}

/* Only the main thread changes seats, so they stay the same meanwhile. */
void policies_reap(struct gpu *gpu)
{
	if (gpu->seat)
		reap(gpu, gpu->seat);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->seat)
			reap(gpu, v->seat);
}

void policies_end(struct gpu *gpu)
{
	struct seat *before;

	if (!gpu->sched)
		return;
	gpu_lock(gpu);
	before = seat_take(gpu, NULL, NULL);
	sched_watch(gpu->sched, NULL);
	gpu_unlock(gpu);
	seat_free(before);
	free(gpu->decisions.ring);
	gpu->decisions.ring = NULL;
}

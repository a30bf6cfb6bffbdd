/* Wardens ask policies whether a program gets memory or a context. This runs under the warden's lock and without
 * gpu::lock, so nothing here waits for long: policies are found under gpu::policy_lock, and called without any lock
 * and without a table. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "gpu/policy.h"

/* The driver rounds allocations up to this. */
enum { ROOM_UNIT = 2 << 20 };

/* A reference to the GPU's policy or to the vGPU's own, if it has the hook; the caller puts it. head: what a context
 * for it begins with. */
static struct policy *take(struct vgpu *vgpu, bool is_own, enum belfry_hook hook, size_t size,
			   struct belfry_head *head)
{
	struct gpu *gpu = vgpu->gpu;
	const struct seat *seat;
	struct policy *policy = NULL;

	pthread_mutex_lock(&gpu->policy_lock);
	*head = seat_head(gpu, hook, size);
	seat = is_own ? vgpu->seat : gpu->seat;
	if (seat && seat->policy && seat->hooks >> hook & 1)
		policy = policy_get(seat->policy);
	pthread_mutex_unlock(&gpu->policy_lock);
	return policy;
}

static int call(struct vgpu *vgpu, bool is_own, enum belfry_hook hook, void *ctx, size_t size)
{
	struct belfry_head head;
	struct policy *policy = take(vgpu, is_own, hook, size, &head);
	int rc;

	if (!policy)
		return BELFRY_DEFAULT;
	memcpy(ctx, &head, sizeof(head));
	rc = policy_call(policy, hook, ctx, size);
	if (rc < 0 && rc != -ENOENT)
		gpu_wake(vgpu->gpu);
	policy_put(policy);
	return rc < 0 ? BELFRY_DEFAULT : rc;
}

/* Ask the vGPU's own policy first. If it proposes nothing, ask the GPU's policy with the original context. Returns
 * which of them proposed something. */
static enum sched_decider consult(struct vgpu *vgpu, enum belfry_hook hook, void *ctx, size_t size)
{
	uint8_t asked[sizeof(struct belfry_mem_alloc) > sizeof(struct belfry_ctx_init)
			      ? sizeof(struct belfry_mem_alloc)
			      : sizeof(struct belfry_ctx_init)];

	memcpy(asked, ctx, size);
	if (call(vgpu, true, hook, ctx, size) == BELFRY_PROPOSE)
		return SCHED_BY_OWN_POLICY;
	memcpy(ctx, asked, size);
	return call(vgpu, false, hook, ctx, size) == BELFRY_PROPOSE ? SCHED_BY_POLICY : SCHED_BUILT_IN;
}

/* A refusal is reported like any decision, but by the main thread: a thread that holds gpu::lock may wait for the
 * warden's lock, which this thread holds. */
static void tell(struct vgpu *vgpu, enum belfry_hook hook, enum sched_decider decider, uint32_t clamps,
		 const void *ctx, size_t size)
{
	struct gpu *gpu = vgpu->gpu;

	if (!clamps)
		bf_log(BF_LOG_INFO, "%s: %s is refused by the policy", vgpu->name, policy_hook_name(hook));
	pthread_mutex_lock(&gpu->policy_lock);
	if (vgpu->new_refusal_count < VGPU_REFUSALS) {
		struct refusal *to = &vgpu->new_refusals[vgpu->new_refusal_count++];

		*to = (struct refusal){ .hook = hook, .decider = decider, .clamps = clamps, .size = size };
		memcpy(&to->ctx, ctx, size);
	}
	pthread_mutex_unlock(&gpu->policy_lock);
	gpu_wake(gpu);
}

static void tell_all(struct vgpu *vgpu)
{
	struct refusal refusals[VGPU_REFUSALS];
	unsigned count;

	pthread_mutex_lock(&vgpu->gpu->policy_lock);
	count = vgpu->new_refusal_count;
	memcpy(refusals, vgpu->new_refusals, count * sizeof(refusals[0]));
	vgpu->new_refusal_count = 0;
	pthread_mutex_unlock(&vgpu->gpu->policy_lock);
	for (unsigned i = 0; i < count; i++)
		decisions_note(vgpu->gpu, &refusals[i], vgpu);
}

void refusals_tell(struct gpu *gpu)
{
	gpu_lock(gpu);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		tell_all(v);
	gpu_unlock(gpu);
}

static struct belfry_mem_alloc mem_question(const struct vgpu *vgpu, const struct warden_mem_ask *asked)
{
	return (struct belfry_mem_alloc){ .id = vgpu->id,
					  .pid = (uint32_t)asked->pid,
					  .bytes = asked->bytes,
					  .used_bytes = asked->used_bytes,
					  .most_bytes = asked->most_bytes,
					  .limit_bytes = asked->limit_bytes ? asked->limit_bytes
									    : asked->gpu_bytes,
					  .gpu_bytes = asked->gpu_bytes };
}

/* The main thread finds the missing memory, because only it changes limits. */
static bool make_room(void *context, const struct warden_mem_ask *asked)
{
	struct vgpu *vgpu = context;
	struct belfry_mem_alloc ctx = mem_question(vgpu, asked);
	uint64_t missing = asked->used_bytes + asked->bytes - asked->limit_bytes;

	if (asked->bytes > asked->gpu_bytes ||
	    consult(vgpu, BELFRY_HOOK_MEM_ALLOC, &ctx, sizeof(ctx)) == SCHED_BUILT_IN ||
	    ctx.verdict != BELFRY_MEM_MAKE_ROOM)
		return false;
	atomic_fetch_add(&vgpu->wants_room, (missing + ROOM_UNIT - 1) / ROOM_UNIT * ROOM_UNIT);
	gpu_wake(vgpu->gpu);
	return true;
}

static bool mem_alloc(void *context, const struct warden_mem_ask *asked)
{
	struct vgpu *vgpu = context;
	struct belfry_mem_alloc ctx = mem_question(vgpu, asked);
	enum sched_decider decider = consult(vgpu, BELFRY_HOOK_MEM_ALLOC, &ctx, sizeof(ctx));

	if (decider == SCHED_BUILT_IN || ctx.verdict != BELFRY_MEM_REFUSE)
		return true;
	tell(vgpu, BELFRY_HOOK_MEM_ALLOC, decider, 0, &ctx, sizeof(ctx));
	return false;
}

/* Replace values that are out of range by the defaults. */
static uint32_t clamp_turns(struct belfry_ctx_init *ctx)
{
	struct belfry_ctx_init proposed = *ctx;

	if (ctx->timeslice_us > SCHED_TIMESLICE_MOST_US)
		ctx->timeslice_us = 0;
	if (ctx->interleave < -1 || ctx->interleave > SCHED_LEVEL_MOST)
		ctx->interleave = -1;
	return ctx->timeslice_us != proposed.timeslice_us || ctx->interleave != proposed.interleave
		       ? SCHED_CLAMP_TURNS
		       : 0;
}

/* A timeslice or interleave of the vGPU's spec takes precedence over the policy's. */
static bool ctx_init(void *context, struct warden_ctx_ask *asked)
{
	struct vgpu *vgpu = context;
	struct belfry_ctx_init ctx = {
		.id = vgpu->id, .pid = (uint32_t)asked->pid, .contexts = asked->contexts, .interleave = -1
	};
	enum sched_decider decider = consult(vgpu, BELFRY_HOOK_CTX_INIT, &ctx, sizeof(ctx));
	uint32_t clamps;

	if (decider == SCHED_BUILT_IN)
		return true;
	if (ctx.refuse) {
		tell(vgpu, BELFRY_HOOK_CTX_INIT, decider, 0, &ctx, sizeof(ctx));
		return false;
	}
	clamps = clamp_turns(&ctx);
	if (clamps)
		tell(vgpu, BELFRY_HOOK_CTX_INIT, decider, clamps, &ctx, sizeof(ctx));
	pthread_mutex_lock(&vgpu->gpu->policy_lock);
	if (!vgpu->spec.timeslice_us)
		asked->timeslice_us = ctx.timeslice_us;
	if (vgpu->spec.interleave < 0 && ctx.interleave >= 0)
		asked->interleave = ctx.interleave;
	pthread_mutex_unlock(&vgpu->gpu->policy_lock);
	return true;
}

static void mem_refused(void *context, pid_t pid, uint64_t bytes)
{
	limit_memory(context, pid, bytes);
}

static void fault(void *context, pid_t pid, uint32_t code)
{
	fault_came(context, pid, code);
}

struct warden_hooks policy_hooks(struct vgpu *vgpu)
{
	return (struct warden_hooks){ .mem_alloc = mem_alloc,
				      .make_room = make_room,
				      .ctx_init = ctx_init,
				      .mem_refused = mem_refused,
				      .fault = fault,
				      .context = vgpu };
}

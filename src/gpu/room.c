/* A program needs more memory than its vGPU has, and a policy names the vGPU to take it from. Memory moves only
 * between vGPUs of one owner, because it was promised to that owner. Only the main thread changes limits, so the
 * program waits for it. */
#include <errno.h>

#include "base/log.h"
#include "gpu/policy.h"

static struct vgpu *find_victim(struct vgpu *vgpu, uint64_t bytes)
{
	struct sched *sched = vgpu->gpu->sched;
	struct belfry_mem_pressure ctx = { .bytes = bytes, .victim = BELFRY_NOBODY };
	const struct sched_vgpu *victim;

	if (sched_ask(sched, BELFRY_HOOK_MEM_PRESSURE, vgpu->sched, &ctx, sizeof(ctx), bf_now_ns()) !=
	    BELFRY_PROPOSE)
		return NULL;
	victim = sched_entry(sched, ctx.victim);
	return victim ? sched_owner(victim) : NULL;
}

static int set_mem(struct vgpu *vgpu, uint64_t bytes, struct bf_error *err)
{
	struct spec spec = vgpu->spec;

	spec.mem_bytes = bytes;
	return vgpu_set(vgpu, &spec, SPEC_MEM, err);
}

/* Moves all of it or nothing. The warden refuses a limit below what is in use. */
static int move(struct vgpu *from, struct vgpu *to, uint64_t bytes, struct bf_error *err)
{
	uint64_t had = from->spec.mem_bytes;
	struct bf_error again = { 0 };
	int rc;

	if (from == to || from->owner != to->owner)
		return bf_fail(err, EPERM, "memory is moved only between vGPUs of one owner");
	if (had <= bytes)
		return bf_fail(err, ENOSPC, "%s has not that much", from->name);
	pool_begin_move(to->gpu->pool); /* a vGPU without a limit must not take it in between */
	rc = set_mem(from, had - bytes, err);
	if (!rc) {
		rc = set_mem(to, to->spec.mem_bytes + bytes, err);
		if (rc && set_mem(from, had, &again))
			bf_log(BF_LOG_WARN, "%s: %s", from->name, again.text);
	}
	pool_end_move(to->gpu->pool);
	return rc;
}

static void make_room(struct vgpu *vgpu, uint64_t bytes)
{
	struct bf_error err = { 0 };
	struct vgpu *victim;

	gpu_lock(vgpu->gpu);
	victim = find_victim(vgpu, bytes);
	if (!victim)
		bf_log(BF_LOG_INFO, "%s: the policy knows of no room", vgpu->name);
	else if (move(victim, vgpu, bytes, &err))
		bf_log(BF_LOG_INFO, "%s: no room is made: %s", vgpu->name, err.text);
	else
		bf_log(BF_LOG_INFO, "%s has %llu MiB of %s's memory now", vgpu->name,
		       (unsigned long long)(bytes >> 20), victim->name);
	gpu_unlock(vgpu->gpu);
	if (vgpu->warden)
		warden_room_made(vgpu->warden);
}

void rooms_make(struct gpu *gpu)
{
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		uint64_t bytes = atomic_exchange(&v->wants_room, 0);

		if (bytes)
			make_room(v, bytes);
	}
}

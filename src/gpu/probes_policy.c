/* What policies learn from the libraries in programs: modules that are loaded. */
#include "base/clock.h"
#include "base/number.h"
#include "gpu/policy.h"
#include "gpu/probes.h"

static bool has_hook(const struct seat *seat)
{
	return seat && seat->policy && seat->hooks >> BELFRY_HOOK_MODULE_LOAD & 1;
}

bool probes_watch(const struct vgpu *vgpu)
{
	return has_hook(vgpu->seat) || has_hook(vgpu->gpu->seat);
}

void probes_watch_again(struct gpu *gpu)
{
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		struct probed *p, *after;

		if (v->probing)
			LIST_FOREACH_SAFE(p, &v->probing->processes, next, after)
				if (p->is_watched != probes_watch(v) && probed_watch(p))
					probed_remove(p);
	}
}

/* A program can load, or pretend to load, modules without end. Each call of a policy takes time of the main thread. */
static bool is_too_often(struct vgpu_probes *probes)
{
	uint64_t now_ns = bf_now_ns();

	if (now_ns - probes->loads_from_ns > PROBE_LOADS_MS * 1000000ull) {
		probes->loads_from_ns = now_ns;
		probes->loads = 0;
	}
	if (probes->loads++ < PROBE_LOADS)
		return false;
	probes->loads_lost += probes->loads_lost < UINT32_MAX;
	return true;
}

void probes_loaded(struct probed *probed, const struct probe_note *note)
{
	struct vgpu_probes *probes = probed->of;
	struct vgpu *vgpu = probes->vgpu;
	struct belfry_module_load ctx = { .id = vgpu->id,
					  .pid = (uint32_t)probed->pid,
					  .flags = (note->is_text ? BELFRY_MODULE_IS_TEXT : 0) |
						   (note->woven ? BELFRY_MODULE_IS_WOVEN : 0),
					  .bytes = note->id,
					  .kernels = note->kernels },
				  own;

	if (!probes_watch(vgpu) || is_too_often(probes))
		return;
	ctx.lost = probes->loads_lost;
	probes->loads_lost = 0;
	own = ctx;
	sched_ask(vgpu->gpu->sched, BELFRY_HOOK_MODULE_LOAD, vgpu->sched, &ctx, sizeof(ctx), bf_now_ns());
	seat_call(vgpu->seat, BELFRY_HOOK_MODULE_LOAD, &own, sizeof(own));
}

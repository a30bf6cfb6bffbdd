/* The built-in policy. Next is a latency vGPU that has not had its request in the window, then the vGPU with the least pass.
 * policies/fair.bpf.c decides the same, and tests compare the two. queue.c finds the same vGPU without a table. */
#include "sched/state.h"

/* A latency vGPU is preferred until it has had its request in the window, but is never a whole round ahead. */
bool fair_is_due(const struct belfry_head *head, const struct belfry_vgpu *vgpu)
{
	bool is_ahead = vgpu->pass_ns >= head->pass_ns &&
			(uint64_t)vgpu->pass_ns - (uint64_t)head->pass_ns >= head->round_ns;

	return vgpu->class == BELFRY_LATENCY && !is_ahead && vgpu->window_used_ns < vgpu->window_promised_ns;
}

uint64_t fair_slice(const struct belfry_head *head, uint32_t part_ppm)
{
	uint64_t ns = head->round_ns * part_ppm / BELFRY_WHOLE_PPM;

	return ns < head->slice_min_ns ? head->slice_min_ns : ns;
}

void sched_fair_pick(const struct belfry_vgpu *table, struct belfry_pick *ctx)
{
	const struct belfry_vgpu *best = NULL;
	bool best_is_due = false;

	ctx->choice = BELFRY_NOBODY;
	for (uint32_t i = 0; i < ctx->head.count; i++) {
		const struct belfry_vgpu *v = &table[i];
		bool due = fair_is_due(&ctx->head, v);

		if (!(v->flags & BELFRY_MAY_HAVE))
			continue;
		if (!best || due > best_is_due || (due == best_is_due && v->pass_ns < best->pass_ns)) {
			best = v;
			best_is_due = due;
			ctx->choice = i;
		}
	}
	ctx->slice_ns = best ? fair_slice(&ctx->head, best->part_ppm) : 0;
	ctx->units = 0;
	ctx->beside = BELFRY_NOBODY;
}

void sched_fair_preempt(const struct belfry_vgpu *table, struct belfry_preempt *ctx)
{
	ctx->stop = fair_is_due(&ctx->head, &table[ctx->head.vgpu]) &&
		    !fair_is_due(&ctx->head, &table[ctx->holder]);
}

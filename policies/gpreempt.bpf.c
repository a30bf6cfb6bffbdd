// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* gpreempt: two classes with fixed parameters. A latency vGPU preempts at once, and has long hardware
 * timeslices at a high interleave level. A throughput vGPU has short timeslices, so that it leaves the
 * hardware soon. Nothing is learned or adapted.
 *
 * Wrong for: objectives, which it ignores, and programs that the parameters do not suit. A throughput
 * timeslice shorter than about ten context switches (2 ms) costs throughput whenever a latency vGPU runs.
 */
#include "belfry/policy.h"

const volatile __u64 latency_slice_ns = 20000000, throughput_slice_ns = 50000000;
const volatile __u64 latency_timeslice_us = 1000000, throughput_timeslice_us = 200;
const volatile __s32 latency_interleave = 2, throughput_interleave = 0;

struct search {
	__u32 choice, class;
	__s64 pass_ns;
};

static long look_at(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);

	if (!vgpu || !(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	if (search->choice != BELFRY_NOBODY &&
	    (vgpu->class != search->class ? vgpu->class != BELFRY_LATENCY : vgpu->pass_ns >= search->pass_ns))
		return 0;
	search->choice = entry;
	search->class = vgpu->class;
	search->pass_ns = vgpu->pass_ns;
	return 0;
}

BELFRY_HOOK(pick)
int gpreempt_pick(struct belfry_pick *ctx)
{
	struct search search = { .choice = BELFRY_NOBODY };

	belfry_each(&ctx->head, look_at, &search);
	if (search.choice == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	ctx->choice = search.choice;
	ctx->slice_ns = search.class == BELFRY_LATENCY ? latency_slice_ns : throughput_slice_ns;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(preempt)
int gpreempt_preempt(struct belfry_preempt *ctx)
{
	const struct belfry_vgpu *waiter = belfry_vgpu(ctx->head.vgpu), *holder = belfry_vgpu(ctx->holder);

	if (!waiter || !holder)
		return BELFRY_DEFAULT;
	ctx->stop = waiter->class == BELFRY_LATENCY && holder->class != BELFRY_LATENCY;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(tick)
int gpreempt_tick(struct belfry_tick *ctx)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(ctx->head.vgpu);

	if (!vgpu)
		return BELFRY_DEFAULT;
	ctx->timeslice_us = vgpu->class == BELFRY_LATENCY ? latency_timeslice_us : throughput_timeslice_us;
	ctx->interleave = vgpu->class == BELFRY_LATENCY ? latency_interleave : throughput_interleave;
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("gpreempt", "fixed slices and timeslices for each class; latency preempts at once");

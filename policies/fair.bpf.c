// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* fair: everybody gets the GPU in the ratio of their requests, and a latency vGPU goes first until it has had what was
 * promised to it. The same as what is built in, decision for decision (tests/unit/policies.c): a place to start from, and a
 * way to see what asking a policy costs.
 *
 * Wrong for: anything that the built-in policy is wrong for. It neither knows deadlines nor looks at objectives.
 */
#include <stdbool.h>

#include "belfry/policy.h"

struct search {
	struct belfry_head head;
	__u32 choice;
	bool is_due;
	__s64 pass_ns;
};

/* Latency that has not had its promise, but never a whole round ahead of the last in line. */
static bool is_due(const struct belfry_vgpu *vgpu, const struct belfry_head *head)
{
	__u64 ahead_ns = (__u64)vgpu->pass_ns - (__u64)head->pass_ns;

	return vgpu->class == BELFRY_LATENCY &&
	       (vgpu->pass_ns < head->pass_ns || ahead_ns < head->round_ns) &&
	       vgpu->window_used_ns < vgpu->window_promised_ns;
}

static long look_at(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	bool due;

	if (!vgpu || !(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	due = is_due(vgpu, &search->head);
	if (search->choice != BELFRY_NOBODY &&
	    (due != search->is_due ? !due : vgpu->pass_ns >= search->pass_ns))
		return 0;
	search->choice = entry;
	search->is_due = due;
	search->pass_ns = vgpu->pass_ns;
	return 0;
}

BELFRY_HOOK(pick)
int fair_pick(struct belfry_pick *ctx)
{
	struct search search = { .head = ctx->head, .choice = BELFRY_NOBODY };
	const struct belfry_vgpu *vgpu;

	belfry_each(&ctx->head, look_at, &search);
	vgpu = belfry_vgpu(search.choice);
	if (!vgpu)
		return BELFRY_DEFAULT;
	ctx->choice = search.choice;
	ctx->slice_ns = ctx->head.round_ns * vgpu->part_ppm / BELFRY_WHOLE_PPM;
	if (ctx->slice_ns < ctx->head.slice_min_ns)
		ctx->slice_ns = ctx->head.slice_min_ns;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(preempt)
int fair_preempt(struct belfry_preempt *ctx)
{
	const struct belfry_vgpu *waiter = belfry_vgpu(ctx->head.vgpu), *holder = belfry_vgpu(ctx->holder);

	if (!waiter || !holder)
		return BELFRY_DEFAULT;
	ctx->stop = is_due(waiter, &ctx->head) && !is_due(holder, &ctx->head);
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("fair", "time in the ratio of requests; latency first until it has had its own");

// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* edf: earliest deadline first. A vGPU that begins to wait gets a deadline: now plus its objective. Without
 * an objective, it is now plus a round plus the time by which the vGPU is ahead of its share. The vGPU with
 * the earliest deadline is next, and it preempts a holder whose deadline is clearly later. All objectives are
 * met as long as the GPU has time for all of them.
 *
 * Wrong for: an overloaded GPU. Then all vGPUs are late, and those with short objectives push the others back
 * to their requests. Also wrong for exact shares, which only break ties here.
 */
#include "belfry/policy.h"

const volatile __u32 factor_ppm = 1000000; /* part of an objective; less leaves time for the work itself */
const volatile __u64 margin_ns =
	1000000; /* a deadline must be earlier by this; a hand-over takes about 1 ms */

struct search {
	__u32 choice;
	__u64 deadline_ns;
	__s64 pass_ns;
};

static __u64 deadline_of(const struct belfry_vgpu *vgpu)
{
	return vgpu->deadline_ns ? vgpu->deadline_ns : ~0ull;
}

BELFRY_HOOK(enqueue)
int edf_enqueue(struct belfry_enqueue *ctx)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(ctx->head.vgpu);

	if (!vgpu)
		return BELFRY_DEFAULT;
	ctx->deadline_ns = ctx->head.now_ns;
	if (vgpu->objective_ns)
		ctx->deadline_ns += vgpu->objective_ns / 1000 * factor_ppm / 1000;
	else if (vgpu->pass_ns > ctx->head.pass_ns)
		ctx->deadline_ns += ctx->head.round_ns + (vgpu->pass_ns - ctx->head.pass_ns);
	else
		ctx->deadline_ns += ctx->head.round_ns;
	return BELFRY_PROPOSE;
}

static long look_at(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	__u64 deadline_ns;

	if (!vgpu || !(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	deadline_ns = deadline_of(vgpu);
	if (search->choice != BELFRY_NOBODY &&
	    (deadline_ns != search->deadline_ns ? deadline_ns > search->deadline_ns
						: vgpu->pass_ns >= search->pass_ns))
		return 0;
	search->choice = entry;
	search->deadline_ns = deadline_ns;
	search->pass_ns = vgpu->pass_ns;
	return 0;
}

BELFRY_HOOK(pick)
int edf_pick(struct belfry_pick *ctx)
{
	struct search search = { .choice = BELFRY_NOBODY };

	belfry_each(&ctx->head, look_at, &search);
	if (search.choice == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	ctx->choice = search.choice;
	ctx->slice_ns = 0;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(preempt)
int edf_preempt(struct belfry_preempt *ctx)
{
	const struct belfry_vgpu *waiter = belfry_vgpu(ctx->head.vgpu), *holder = belfry_vgpu(ctx->holder);
	__u64 waits_for_ns, holds_for_ns;

	if (!waiter || !holder)
		return BELFRY_DEFAULT;
	waits_for_ns = deadline_of(waiter);
	holds_for_ns = deadline_of(holder);
	ctx->stop = holds_for_ns > waits_for_ns && holds_for_ns - waits_for_ns > margin_ns;
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("edf", "earliest deadline first, from objectives and shares");

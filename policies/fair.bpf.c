// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* fair: everybody gets the GPU in the ratio of their requests, and a latency vGPU goes first until it has had what was
 * promised to it. The same as what is built in, decision for decision (tests/unit/policy_fair.c): a place to start from, and a
 * way to see what asking a policy costs.
 *
 * Wrong for: anything that the built-in policy is wrong for. It neither knows deadlines nor looks at objectives.
 */
#include "belfry/policy.h"

BELFRY_HOOK(pick)
int fair_pick(struct belfry_pick *ctx)
{
	__u32 choice = belfry_next(&ctx->head);

	if (choice == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	ctx->choice = choice;
	ctx->slice_ns = 0; /* its part of a round, which changes with who comes and goes */
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(preempt)
int fair_preempt(struct belfry_preempt *ctx)
{
	const struct belfry_vgpu *waiter = belfry_vgpu(ctx->head.vgpu), *holder = belfry_vgpu(ctx->holder);

	if (!waiter || !holder)
		return BELFRY_DEFAULT;
	ctx->stop = belfry_is_due(waiter, &ctx->head) && !belfry_is_due(holder, &ctx->head);
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("fair", "time in the ratio of requests; latency first until it has had its own");

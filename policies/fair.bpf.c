// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* fair: GPU time in the ratio of the requests. A latency vGPU goes first until it has received its request.
 * Each decision is that of the built-in policy (tests/unit/policy_fair.c), so this is a starting point for a
 * policy of one's own, and shows what calling a policy costs.
 *
 * Wrong for: the same loads as the built-in policy. It ignores deadlines and objectives.
 */
#include "belfry/policy.h"

BELFRY_HOOK(pick)
int fair_pick(struct belfry_pick *ctx)
{
	__u32 choice = belfry_next(&ctx->head);

	if (choice == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	ctx->choice = choice;
	ctx->slice_ns = 0; /* its part of a round, which depends on the vGPUs with work */
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

BELFRY_POLICY("fair", "time in the ratio of requests; latency first until it has received its request");

/* SPDX-License-Identifier: MIT */
/* What bench/policy_cost calls: a pick that looks at everybody, as the built-in does, and no more. */
#include <belfry/policy.h>

BELFRY_POLICY("cost", "whoever is furthest behind is next");

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	ctx->choice = belfry_next(&ctx->head);
	return BELFRY_PROPOSE;
}

/* What a call costs by itself. */
BELFRY_HOOK(tick)
int tick(struct belfry_tick *ctx)
{
	return !ctx->head.count;
}

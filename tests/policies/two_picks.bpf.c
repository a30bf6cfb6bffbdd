/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("two", "two programs for one hook");

BELFRY_HOOK(pick)
int one(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

BELFRY_HOOK(pick)
int other(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

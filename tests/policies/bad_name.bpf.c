/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("../fair", "a name that is a path");

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

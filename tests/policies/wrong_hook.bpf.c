/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("wrong", "there is no such hook");

BELFRY_HOOK(pikc)
int pikc(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

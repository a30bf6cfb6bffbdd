/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("unverified", "does not ask whether an entry is there");

BELFRY_HOOK(dump)
int dump(struct belfry_dump *ctx)
{
	ctx->text[0] = 0;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(pick)
int pick_blindly(struct belfry_pick *ctx)
{
	return belfry_vgpu(ctx->last)->flags & BELFRY_MAY_HAVE;
}

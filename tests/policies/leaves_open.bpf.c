/* SPDX-License-Identifier: MIT */
/* Says for how long and on how much, and leaves who to the built-in. */
#include <belfry/policy.h>

BELFRY_POLICY("leaves_open", "leaves open who is next");

const volatile __u64 slice_ns = 0;
const volatile __u32 units = 0;

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	ctx->slice_ns = slice_ns;
	ctx->units = units;
	return BELFRY_PROPOSE;
}

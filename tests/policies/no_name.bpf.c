/* SPDX-License-Identifier: MIT */
/* It does not say what it is. */
#include <belfry/policy.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

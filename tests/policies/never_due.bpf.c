/* SPDX-License-Identifier: MIT */
/* Nobody's work is ever due, by the largest number there is; and it has a hook that is not asked yet. */
#include <belfry/policy.h>

BELFRY_POLICY("never_due", "deadlines at the end of time");

BELFRY_HOOK(enqueue)
int enqueue(struct belfry_enqueue *ctx)
{
	ctx->deadline_ns = ~0ull;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(module_load)
int module_load(struct belfry_init *ctx)
{
	(void)ctx;
	return BELFRY_DEFAULT;
}

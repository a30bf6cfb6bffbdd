/* SPDX-License-Identifier: MIT */
/* Has to do with what is between vGPUs alone: nothing that a vGPU's own policy is asked. */
#include <belfry/policy.h>

BELFRY_POLICY("between", "is about what is between vGPUs");

BELFRY_HOOK(tick)
int between_tick(struct belfry_tick *ctx)
{
	(void)ctx;
	return BELFRY_DEFAULT;
}

BELFRY_HOOK(preempt)
int between_preempt(struct belfry_preempt *ctx)
{
	(void)ctx;
	return BELFRY_DEFAULT;
}

/* SPDX-License-Identifier: MIT */
/* Picks the last in the table who may have the token, for 7 ms, and never has anybody stopped. */
#include <belfry/policy.h>

BELFRY_POLICY("last", "the last one first");

static long look_at(__u32 entry, __u32 *choice)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);

	if (vgpu && vgpu->flags & BELFRY_MAY_HAVE)
		*choice = entry;
	return 0;
}

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	__u32 choice = BELFRY_NOBODY;

	belfry_each(&ctx->head, look_at, &choice);
	ctx->choice = choice;
	ctx->slice_ns = 7000000;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(preempt)
int preempt(struct belfry_preempt *ctx)
{
	ctx->stop = 0;
	return BELFRY_PROPOSE;
}

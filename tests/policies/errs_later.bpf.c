/* SPDX-License-Identifier: MIT */
/* Decides nothing for a while, then does wrong. */
#include <belfry/policy.h>

BELFRY_POLICY("errs_later", "does wrong after a while");

const volatile __u64 after = 20;

__u64 picks;

BELFRY_HOOK(dump)
int errs_later_dump(struct belfry_dump *ctx)
{
	ctx->text[0] = 'x';
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(pick)
int errs_later_pick(struct belfry_pick *ctx)
{
	(void)ctx;
	return __sync_fetch_and_add(&picks, 1) < after ? BELFRY_DEFAULT : 7;
}

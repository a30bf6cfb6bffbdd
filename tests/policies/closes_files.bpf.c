/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("closes", "closes its caller's files");

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	return bpf_sys_close(ctx->choice) != 0;
}

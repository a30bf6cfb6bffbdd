/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("large_bss", "has more global variables than maps may take");

char large[65 << 20];

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	large[ctx->head.count & 7] = 1;
	return BELFRY_DEFAULT;
}

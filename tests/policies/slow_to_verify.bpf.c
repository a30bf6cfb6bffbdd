/* SPDX-License-Identifier: MIT */
/* The verifier goes through its loop round by round, and both ways in each, until it has had enough: after seconds. */
#include <belfry/policy.h>

BELFRY_POLICY("slow_to_verify", "takes the verifier long");

BELFRY_HOOK(tick)
int tick(struct belfry_tick *ctx)
{
	volatile __u64 way = 0;

	for (__u32 i = 0; i < 3000; i++) {
		if (ctx->head.now_ns >> (i & 63) & 1)
			way += i;
		else
			way ^= i;
	}
	return way == ~0ull ? BELFRY_PROPOSE : BELFRY_DEFAULT;
}

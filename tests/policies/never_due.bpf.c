/* SPDX-License-Identifier: MIT */
/* Nobody's work is ever due, by the largest number there is. */
#include <belfry/policy.h>

BELFRY_POLICY("never_due", "deadlines at the end of time");

BELFRY_HOOK(enqueue)
int enqueue(struct belfry_enqueue *ctx)
{
	ctx->deadline_ns = ~0ull;
	return BELFRY_PROPOSE;
}

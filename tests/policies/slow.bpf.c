/* SPDX-License-Identifier: MIT */
/* Takes as long as it is told to. */
#include <belfry/policy.h>

BELFRY_POLICY("slow", "takes as long as it is told to");

__u64 rounds;

static long inner(__u64 i, void *data)
{
	(void)i;
	(void)data;
	rounds++;
	return 0;
}

static long outer(__u64 i, void *data)
{
	(void)i;
	bpf_loop(1000, inner, data, 0);
	return 0;
}

BELFRY_HOOK(enqueue)
int enqueue(struct belfry_enqueue *ctx)
{
	bpf_loop(ctx->deadline_ns, outer, 0, 0);
	return BELFRY_PROPOSE;
}

/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("reads_memory", "reads what is not its own");

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	__u64 word = 0;

	return bpf_probe_read_kernel(&word, sizeof(word), (const void *)ctx->slice_ns) != 0;
}

/* SPDX-License-Identifier: MIT */
/* A larger area than a probe that is attached can have: 3000000 entries of 8 bytes. */
#include <belfry/probe.h>

BELFRY_PROBE();

BELFRY_ARRAY(entries, __u64, 3000000);

BELFRY_PROBE_AT(kernel_enter)
int enter(struct belfry_probe_ctx *ctx)
{
	__u32 key = 0;
	__u64 *entry = bpf_map_lookup_elem(&entries, &key);

	if (entry)
		*entry = ctx->lanes;
	return 0;
}

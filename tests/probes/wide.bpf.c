/* SPDX-License-Identifier: MIT */
/* Almost as large an area as a probe can have: 2000000 entries of 8 bytes. */
#include <belfry/probe.h>

BELFRY_PROBE();

BELFRY_ARRAY(entries, __u64, 2000000);

BELFRY_PROBE_AT(kernel_enter)
int enter(struct belfry_probe_ctx *ctx)
{
	__u32 key = 0;
	__u64 *entry = bpf_map_lookup_elem(&entries, &key);

	if (entry)
		*entry = ctx->lanes;
	return 0;
}

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* bench/probe_overhead: the number of threads of a kernel. */
#include "belfry/probe.h"

BELFRY_PROBE();

BELFRY_SM_ARRAY(threads, __u64, 1);

BELFRY_PROBE_AT(warp_enter)
int count(struct belfry_probe_ctx *ctx)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&threads, &first);

	if (count)
		__sync_fetch_and_add(count, ctx->lanes);
	return 0;
}

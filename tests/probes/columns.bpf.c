/* SPDX-License-Identifier: MIT */
/* Describes a table of its map. */
#include <belfry/probe.h>

BELFRY_PROBE();

BELFRY_ARRAY(counts, __u64, 4);
BELFRY_PRINT(BELFRY_SHOW_INDEX(counts, "place", COUNT),
	     BELFRY_SHOW_VALUE(counts, "blocks", COUNT, BELFRY_PRINT_BAR));

BELFRY_PROBE_AT(block_exit)
int leave(struct belfry_probe_ctx *ctx)
{
	__u32 key = ctx->block[0] & 3;
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

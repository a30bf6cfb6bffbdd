/* SPDX-License-Identifier: MIT */
/* An index that the translator cannot bound: into an array on the stack, and into a value. */
#include <belfry/probe.h>

BELFRY_PROBE();

struct row {
	__u32 cells[8];
};

BELFRY_ARRAY(rows, struct row, 2);

BELFRY_PROBE_AT(loop)
int spread(struct belfry_probe_ctx *ctx)
{
	volatile __u32 seen[8] = { 0 };
	__u32 key = ctx->site & 1, at = ctx->lane & 7, sum = 0;
	struct row *row = bpf_map_lookup_elem(&rows, &key);

	if (!row)
		return 0;
	seen[at] = at + 1;
	__sync_fetch_and_add(&row->cells[at], ctx->size);
	for (int i = 0; i < 8; i++)
		sum += seen[i] << i;
	return sum;
}

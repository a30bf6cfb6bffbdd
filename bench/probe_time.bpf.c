/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* bench/probe_overhead: the threads of a kernel, and the sum of the times of its warps. */
#include "belfry/probe.h"

BELFRY_PROBE();

struct time {
	__u64 threads, cycles;
};

BELFRY_SM_ARRAY(times, struct time, 1);

BELFRY_PROBE_AT(warp_exit)
int time(struct belfry_probe_ctx *ctx)
{
	__u32 first = 0;
	__u64 cycles = ctx->clock - ctx->begin_clock;
	struct time *time = bpf_map_lookup_elem(&times, &first);

	if (!time)
		return 0;
	__sync_fetch_and_add(&time->threads, ctx->lanes);
	__sync_fetch_and_add(&time->cycles, cycles);
	return 0;
}

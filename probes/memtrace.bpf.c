/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* memtrace: where kernels access global memory: bytes read, written and changed by atomics, for each range of
 * 2 MiB. That is the granularity in which drivers place allocations, so the ranges of one allocation are adjacent.
 * The numbers are estimates: each sampled access stands for `period` accesses.
 *
 * Wrong for: a short period, because the program runs once for each thread and searches a hash: begin with a period
 * of 1000. Caches are not visible here: an access that hits in L1 counts like any other. At most 8192 ranges (16
 * GiB) have an entry; `lost` counts the accesses to others.
 */
#include "belfry/probe.h"

BELFRY_PROBE();

enum { SHIFT = 21 };

struct heat {
	__u64 read_bytes, written_bytes, atomic_bytes;
	__u64 bytes; /* their sum */
};

BELFRY_HASH(ranges, __u64, struct heat, 8192);
BELFRY_ARRAY(lost, __u64, 1);

BELFRY_PRINT(BELFRY_SHOW_KEY(ranges, "address", ADDRESS, SHIFT),
	     BELFRY_SHOW(ranges, struct heat, bytes, "bytes", BYTES, BELFRY_PRINT_SORT | BELFRY_PRINT_BAR),
	     BELFRY_SHOW(ranges, struct heat, read_bytes, "read", BYTES, 0),
	     BELFRY_SHOW(ranges, struct heat, written_bytes, "written", BYTES, 0),
	     BELFRY_SHOW(ranges, struct heat, atomic_bytes, "atomic", BYTES, 0),
	     BELFRY_SHOW_VALUE(lost, "lost accesses", COUNT, 0));

static __always_inline void lose(__u32 period)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&lost, &first);

	if (count)
		__sync_fetch_and_add(count, period);
}

BELFRY_PROBE_AT(mem_access)
int memtrace_access(struct belfry_probe_ctx *ctx)
{
	__u64 range = ctx->address >> SHIFT, bytes = (__u64)ctx->size * ctx->period;
	struct heat none = { 0 }, *heat = bpf_map_lookup_elem(&ranges, &range);

	if (!heat) {
		bpf_map_update_elem(&ranges, &range, &none, BPF_NOEXIST);
		heat = bpf_map_lookup_elem(&ranges, &range);
	}
	if (!heat) {
		lose(ctx->period);
		return 0;
	}
	__sync_fetch_and_add(&heat->bytes, bytes);
	if (ctx->is_write == 0)
		__sync_fetch_and_add(&heat->read_bytes, bytes);
	else if (ctx->is_write == 1)
		__sync_fetch_and_add(&heat->written_bytes, bytes);
	else
		__sync_fetch_and_add(&heat->atomic_bytes, bytes);
	return 0;
}

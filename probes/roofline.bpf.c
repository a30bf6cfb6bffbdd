/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* roofline: floating-point operations and bytes of global memory of each kernel and device function, and their
 * quotient, the arithmetic intensity. A kernel below the quotient of the GPU's peak rates is bound by memory.
 *
 * Counted are add, sub, mul, div and the functions of one operand as one operation, fma as two, and matrix
 * instructions by their shape. Bytes are those of all accesses, whether a cache has them or not.
 *
 * Wrong for: the time of the kernels, which grows a lot: measure it without the probe. Tensor copies
 * (cp.async.bulk.tensor), texture reads and integer operations are not counted. An operation behind a false
 * predicate counts.
 */
#include "belfry/probe.h"

BELFRY_PROBE();

struct work {
	__u64 flops, bytes, written_bytes;
};

BELFRY_HASH(kernels, __u64, struct work, 4096);

BELFRY_PRINT(BELFRY_SHOW_KEY(kernels, "kernel", KERNEL, 0),
	     BELFRY_SHOW(kernels, struct work, flops, "operations", COUNT, 0),
	     BELFRY_SHOW(kernels, struct work, bytes, "bytes", BYTES, BELFRY_PRINT_SORT),
	     BELFRY_SHOW(kernels, struct work, written_bytes, "written", BYTES, 0),
	     BELFRY_SHOW_PER(kernels, struct work, flops, bytes, "operations/byte", RATIO, 0));

static __always_inline struct work *work_of(__u64 kernel)
{
	struct work none = { 0 }, *work = bpf_map_lookup_elem(&kernels, &kernel);

	if (work)
		return work;
	bpf_map_update_elem(&kernels, &kernel, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&kernels, &kernel);
}

BELFRY_PROBE_AT(section)
int roofline_section(struct belfry_probe_ctx *ctx)
{
	__u64 flops = (__u64)ctx->flops * ctx->lanes;
	struct work *work;

	if (!flops)
		return 0;
	work = work_of(ctx->kernel);
	if (work)
		__sync_fetch_and_add(&work->flops, flops);
	return 0;
}

BELFRY_PROBE_AT(mem_access)
int roofline_access(struct belfry_probe_ctx *ctx)
{
	__u64 bytes = (__u64)ctx->size * ctx->lanes * ctx->period;
	struct work *work = work_of(ctx->kernel);

	if (!work)
		return 0;
	__sync_fetch_and_add(&work->bytes, bytes);
	if (ctx->is_write)
		__sync_fetch_and_add(&work->written_bytes, bytes);
	return 0;
}

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* blocktime: how long thread blocks run, as a histogram, and the sum for each SM. The time of a block is from the
 * beginning of the warp that ends last to its end; the warps of a block begin together.
 *
 * Wrong for: times below the resolution of %globaltimer, which is 32 ns to 1 us on most GPUs, and for persistent
 * kernels, whose blocks run as long as the kernel. Each thread that ends adds to a counter in device memory.
 */
#include "belfry/probe.h"

BELFRY_PROBE();

enum { BUCKETS = 48 };

struct sum {
	__u64 blocks, time_ns;
};

BELFRY_SM_ARRAY(histogram, __u64, BUCKETS);
BELFRY_SM_ARRAY(sms, struct sum, 1);

BELFRY_PRINT(BELFRY_SHOW_INDEX(histogram, "time of a block", LOG2_NS),
	     BELFRY_SHOW_VALUE(histogram, "blocks", COUNT, BELFRY_PRINT_BAR), BELFRY_SHOW_SM(sms),
	     BELFRY_SHOW(sms, struct sum, blocks, "blocks", COUNT, 0),
	     BELFRY_SHOW(sms, struct sum, time_ns, "time", NS, 0),
	     BELFRY_SHOW_PER(sms, struct sum, time_ns, blocks, "average", NS, BELFRY_PRINT_BAR));

static __always_inline __u32 bucket_of(__u64 took_ns)
{
	__u32 bucket = 0;

	for (__u32 i = 0; i < BUCKETS - 1; i++) {
		if (took_ns < 2)
			break;
		took_ns >>= 1;
		bucket++;
	}
	return bucket;
}

BELFRY_PROBE_AT(block_exit)
int blocktime_exit(struct belfry_probe_ctx *ctx)
{
	__u64 now_ns = ctx->time_ns, begin_ns = ctx->begin_ns, took_ns, *count;
	__u32 bucket, first = 0;
	struct sum *sum;

	took_ns = now_ns > begin_ns ? now_ns - begin_ns : 0;
	bucket = bucket_of(took_ns);
	count = bpf_map_lookup_elem(&histogram, &bucket);
	if (count)
		__sync_fetch_and_add(count, 1);
	sum = bpf_map_lookup_elem(&sms, &first);
	if (!sum)
		return 0;
	__sync_fetch_and_add(&sum->blocks, 1);
	__sync_fetch_and_add(&sum->time_ns, took_ns);
	return 0;
}

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* launchlag: the time between the submission of a launch by the program and the beginning of its first block, as a
 * histogram and for each kernel. Kernels of a graph have the time of the launch of the graph.
 *
 * Wrong by the difference of the clocks of the host and the GPU, which the library in the program measures: some
 * microseconds. Launches by kernels, of graphs inside of graphs, and captured into a graph that is launched in another
 * way have no time of submission, and are counted as unknown (docs/probes.md).
 */
#include "belfry/probe.h"

BELFRY_PROBE();

enum { BUCKETS = 48 };

struct lag {
	__u64 launches; /* with a time of submission */
	__u64 unknown;	/* without one */
	__u64 time_ns;
};

BELFRY_ARRAY(histogram, __u64, BUCKETS);
BELFRY_HASH(kernels, __u64, struct lag, 4096);

BELFRY_PRINT(BELFRY_SHOW_INDEX(histogram, "lag", LOG2_NS),
	     BELFRY_SHOW_VALUE(histogram, "launches", COUNT, BELFRY_PRINT_BAR),
	     BELFRY_SHOW_KEY(kernels, "kernel", KERNEL, 0),
	     BELFRY_SHOW(kernels, struct lag, launches, "launches", COUNT, BELFRY_PRINT_SORT),
	     BELFRY_SHOW_PER(kernels, struct lag, time_ns, launches, "average", NS, 0),
	     BELFRY_SHOW(kernels, struct lag, unknown, "unknown", COUNT, 0));

static __always_inline __u32 bucket_of(__u64 lag_ns)
{
	__u32 bucket = 0;

	for (__u32 i = 0; i < BUCKETS - 1; i++) {
		if (lag_ns < 2)
			break;
		lag_ns >>= 1;
		bucket++;
	}
	return bucket;
}

static __always_inline struct lag *lag_of(__u64 kernel)
{
	struct lag none = { 0 };

	bpf_map_update_elem(&kernels, &kernel, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&kernels, &kernel);
}

BELFRY_PROBE_AT(kernel_enter)
int launchlag_enter(struct belfry_probe_ctx *ctx)
{
	__u64 now_ns = ctx->time_ns, submitted_ns = ctx->submitted_ns, lag_ns = 0, *count;
	__u64 is_known = submitted_ns != 0;
	struct lag *lag = lag_of(ctx->kernel);
	__u32 bucket;

	/* A lag that is shorter than the error of the clocks can seem to be negative. */
	if (is_known && now_ns > submitted_ns)
		lag_ns = now_ns - submitted_ns;
	if (lag) {
		__sync_fetch_and_add(&lag->launches, is_known);
		__sync_fetch_and_add(&lag->unknown, !is_known);
		__sync_fetch_and_add(&lag->time_ns, lag_ns);
	}
	bucket = bucket_of(lag_ns);
	count = bpf_map_lookup_elem(&histogram, &bucket);
	if (count)
		__sync_fetch_and_add(count, is_known);
	return 0;
}

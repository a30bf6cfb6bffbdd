/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* kernelstat: calls, thread blocks, threads and time of each kernel. The time of a call is from the beginning of
 * its first block to the end of its last thread, so it contains no waiting before the first block.
 *
 * Wrong for: the time of single blocks or SMs (blocktime, smload), and for kernels of a few microseconds whose time
 * must not change: each thread that ends adds to a counter in device memory. Calls that are still running are not
 * counted. Of 1024 or more launches that run at the same time, some have no time.
 */
#include "belfry/probe.h"

BELFRY_PROBE();

enum { LAUNCHES = 1024, TRIES = 8 };

struct stat {
	__u64 calls, blocks, threads;
	__u64 time_ns, longest_ns;
};

struct start {
	__u64 launch; /* number of the launch + 1 */
	__u64 time_ns;
};

BELFRY_HASH(kernels, __u64, struct stat, 4096);
BELFRY_ARRAY(starts, struct start, LAUNCHES);

BELFRY_PRINT(BELFRY_SHOW_KEY(kernels, "kernel", KERNEL, 0),
	     BELFRY_SHOW(kernels, struct stat, calls, "calls", COUNT, 0),
	     BELFRY_SHOW(kernels, struct stat, blocks, "blocks", COUNT, 0),
	     BELFRY_SHOW(kernels, struct stat, threads, "threads", COUNT, 0),
	     BELFRY_SHOW(kernels, struct stat, time_ns, "time", NS, BELFRY_PRINT_SORT),
	     BELFRY_SHOW_PER(kernels, struct stat, time_ns, calls, "average", NS, 0),
	     BELFRY_SHOW(kernels, struct stat, longest_ns, "longest", NS, 0));

static __always_inline struct start *start_of(const struct belfry_probe_ctx *ctx)
{
	__u32 key = ctx->launch % LAUNCHES;

	return bpf_map_lookup_elem(&starts, &key);
}

BELFRY_PROBE_AT(kernel_enter)
int kernelstat_enter(struct belfry_probe_ctx *ctx)
{
	struct start *start = start_of(ctx);

	if (!start)
		return 0;
	start->time_ns = ctx->time_ns;
	start->launch = ctx->launch + 1;
	return 0;
}

static __always_inline void raise(__u64 *longest_ns, __u64 took_ns)
{
	for (int i = 0; i < TRIES; i++) {
		__u64 old_ns = *longest_ns;

		if (old_ns >= took_ns || __sync_val_compare_and_swap(longest_ns, old_ns, took_ns) == old_ns)
			return;
	}
}

BELFRY_PROBE_AT(kernel_exit)
int kernelstat_exit(struct belfry_probe_ctx *ctx)
{
	__u64 now_ns = ctx->time_ns, kernel = ctx->kernel, took_ns = 0, blocks;
	struct start *start = start_of(ctx);
	struct stat none = { 0 }, *stat;

	if (start && start->launch == ctx->launch + 1 && now_ns > start->time_ns)
		took_ns = now_ns - start->time_ns;
	bpf_map_update_elem(&kernels, &kernel, &none, BPF_NOEXIST);
	stat = bpf_map_lookup_elem(&kernels, &kernel);
	if (!stat)
		return 0;
	blocks = (__u64)ctx->grid[0] * ctx->grid[1] * ctx->grid[2];
	__sync_fetch_and_add(&stat->calls, 1);
	__sync_fetch_and_add(&stat->blocks, blocks);
	__sync_fetch_and_add(&stat->threads, blocks * ctx->threads[0] * ctx->threads[1] * ctx->threads[2]);
	__sync_fetch_and_add(&stat->time_ns, took_ns);
	raise(&stat->longest_ns, took_ns);
	return 0;
}

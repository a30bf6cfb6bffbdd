/* SPDX-License-Identifier: MIT */
/* How long each thread block ran, in cycles: a histogram for each SM, and a record for each slow block. */
#include <belfry/probe.h>

BELFRY_PROBE();

struct key {
	__u64 launch;
	__u32 block[3];
	__u32 reserved;
};

struct record {
	__u64 launch;
	__u64 cycles;
	__u32 block;
	__u32 sm;
};

const volatile __u64 slow_cycles = 1000;
__u64 slow_blocks;

BELFRY_HASH(started, struct key, __u64, 256);
BELFRY_SM_ARRAY(histogram, __u64, 64);
BELFRY_RING(slow, 4096);

static __always_inline struct key key_of(const struct belfry_probe_ctx *ctx)
{
	return (struct key){ .launch = ctx->launch,
			     .block = { ctx->block[0], ctx->block[1], ctx->block[2] } };
}

static __attribute__((noinline)) __u32 bucket_of(__u64 cycles)
{
	__u32 bucket = 0;

	for (int i = 0; i < 63; i++) {
		if (cycles <= 1)
			break;
		cycles >>= 1;
		bucket++;
	}
	return bucket;
}

BELFRY_PROBE_AT(block_enter)
int enter(struct belfry_probe_ctx *ctx)
{
	struct key key = key_of(ctx);
	__u64 now = ctx->clock;

	bpf_map_update_elem(&started, &key, &now, BPF_ANY);
	return 0;
}

BELFRY_PROBE_AT(block_exit)
int leave(struct belfry_probe_ctx *ctx)
{
	struct key key = key_of(ctx);
	__u64 *start = bpf_map_lookup_elem(&started, &key), *count, cycles;
	__u32 bucket;

	if (!start)
		return 1;
	cycles = ctx->clock - *start;
	bpf_map_delete_elem(&started, &key);
	bucket = bucket_of(cycles);
	count = bpf_map_lookup_elem(&histogram, &bucket);
	if (count)
		__sync_fetch_and_add(count, 1);
	if (cycles > slow_cycles) {
		struct record record = {
			.launch = ctx->launch, .cycles = cycles, .block = ctx->block[0], .sm = ctx->sm
		};

		__sync_fetch_and_add(&slow_blocks, 1);
		bpf_ringbuf_output(&slow, &record, sizeof(record), 0);
	}
	return 0;
}

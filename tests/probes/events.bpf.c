/* SPDX-License-Identifier: MIT */
/* Counts every event: runs, and what the context says. Once for each warp where that is possible. */
#include <belfry/probe.h>

BELFRY_PROBE();

struct count {
	__u64 runs, lanes, bytes, sum;
};

BELFRY_ARRAY(counts, struct count, BELFRY_PROBE_EVENTS);

static __always_inline void add(const struct belfry_probe_ctx *ctx, __u64 bytes, __u64 sum)
{
	__u32 key = ctx->event;
	struct count *count = bpf_map_lookup_elem(&counts, &key);

	if (!count)
		return;
	__sync_fetch_and_add(&count->runs, 1);
	__sync_fetch_and_add(&count->lanes, ctx->lanes);
	__sync_fetch_and_add(&count->bytes, bytes);
	__sync_fetch_and_add(&count->sum, sum);
}

BELFRY_PROBE_AT(kernel_enter)
int kernel_enter(struct belfry_probe_ctx *ctx)
{
	add(ctx, 0, ctx->block[0] + ctx->block[1] + ctx->block[2]);
	return 0;
}

BELFRY_PROBE_AT(kernel_exit)
int kernel_exit(struct belfry_probe_ctx *ctx)
{
	add(ctx, 0, ctx->kernel);
	return 0;
}

BELFRY_PROBE_AT(block_enter)
int block_enter(struct belfry_probe_ctx *ctx)
{
	add(ctx, 0, ctx->block[0] + 1000 * ctx->block[1]);
	return 0;
}

BELFRY_PROBE_AT(block_exit)
int block_exit(struct belfry_probe_ctx *ctx)
{
	add(ctx, 0, ctx->block[0] + 1000 * ctx->block[1]);
	return 0;
}

BELFRY_PROBE_AT(warp_enter)
int warp_enter(struct belfry_probe_ctx *ctx)
{
	add(ctx, 0, ctx->warp);
	return 0;
}

BELFRY_PROBE_AT(warp_exit)
int warp_exit(struct belfry_probe_ctx *ctx)
{
	add(ctx, 0, ctx->warp);
	return 0;
}

BELFRY_PROBE_AT(mem_access)
int mem_access(struct belfry_probe_ctx *ctx)
{
	add(ctx, (__u64)ctx->size * ctx->lanes, ctx->site);
	return 0;
}

BELFRY_PROBE_AT(loop)
int loop(struct belfry_probe_ctx *ctx)
{
	add(ctx, 0, ctx->site);
	return 0;
}

BELFRY_PROBE_AT(section)
int section(struct belfry_probe_ctx *ctx)
{
	add(ctx, (__u64)(ctx->read_bytes + ctx->write_bytes) * ctx->lanes, (__u64)ctx->flops * ctx->lanes);
	return 0;
}

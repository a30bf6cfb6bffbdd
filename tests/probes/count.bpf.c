/* SPDX-License-Identifier: MIT */
/* Counts threads: once for each warp, and, because it reads the lane, once for each thread. */
#include <belfry/probe.h>

BELFRY_PROBE();

__u64 by_warp, by_thread, runs_by_warp;

BELFRY_PROBE_AT(kernel_enter)
int warp(struct belfry_probe_ctx *ctx)
{
	__sync_fetch_and_add(&by_warp, ctx->lanes);
	__sync_fetch_and_add(&runs_by_warp, 1);
	return 0;
}

BELFRY_PROBE_AT(kernel_exit)
int thread(struct belfry_probe_ctx *ctx)
{
	if (ctx->lane < 64)
		__sync_fetch_and_add(&by_thread, ctx->lanes);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* An event that does not exist. */
#include <belfry/probe.h>

BELFRY_PROBE();

BELFRY_PROBE_AT(grid_middle)
int enter(struct belfry_probe_ctx *ctx)
{
	return ctx->lanes;
}

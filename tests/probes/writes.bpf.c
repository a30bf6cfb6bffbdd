/* SPDX-License-Identifier: MIT */
/* Writes to its context, which the kernel's verifier would accept. */
#include <belfry/probe.h>

BELFRY_PROBE();

BELFRY_PROBE_AT(block_enter)
int writes(struct belfry_probe_ctx *ctx)
{
	ctx->site = 1; /* line 10 */
	return 0;
}

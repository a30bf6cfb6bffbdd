/* SPDX-License-Identifier: MIT */
/* Calls a helper that probes may not call. */
#include <belfry/probe.h>

BELFRY_PROBE();

BELFRY_PROBE_AT(block_enter)
int prints(struct belfry_probe_ctx *ctx)
{
	if (ctx->block[0])
		return 0;
	return bpf_get_prandom_u32(); /* line 12 */
}

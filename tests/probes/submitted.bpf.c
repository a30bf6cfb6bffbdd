/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The time of submission that a kernel sees. */
#include "belfry/probe.h"

BELFRY_PROBE();

BELFRY_ARRAY(counts, __u64, 2);

BELFRY_PROBE_AT(kernel_enter)
int submitted(struct belfry_probe_ctx *ctx)
{
	__u32 key = 0;
	__u64 *time = bpf_map_lookup_elem(&counts, &key);

	if (time)
		*time = ctx->submitted_ns;
	return 0;
}

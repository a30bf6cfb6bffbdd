/* SPDX-License-Identifier: MIT */
/* A map of a probe with too many entries. */
#include <belfry/policy.h>

BELFRY_POLICY("large_probe_map", "reads too much");

BELFRY_PROBE_MAP(stats, "kernelstat", "kernels", __u64, __u64, 100000);

BELFRY_HOOK(init)
int init(struct belfry_init *ctx)
{
	struct stats_key key = { .vgpu = ctx->head.now_ns };

	return bpf_map_lookup_elem(&stats, &key) ? BELFRY_PROPOSE : BELFRY_DEFAULT;
}

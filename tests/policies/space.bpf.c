/* SPDX-License-Identifier: MIT */
/* Proposes a number of SM units for vGPUs of class latency in a shared domain. */
#include <belfry/policy.h>

BELFRY_POLICY("space", "so many SM units for latency vGPUs");

const volatile __u32 units = 1;

BELFRY_HOOK(tick)
int tick(struct belfry_tick *ctx)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(ctx->head.vgpu);

	if (!vgpu || vgpu->class != BELFRY_LATENCY || !vgpu->units || !vgpu->units_all)
		return BELFRY_DEFAULT;
	ctx->units = units;
	return BELFRY_PROPOSE;
}

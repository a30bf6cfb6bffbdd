/* SPDX-License-Identifier: MIT */
/* A policy without the table that belfry/policy.h would give it. */
#include <linux/bpf.h>
#undef __bpf__
#include <belfry/policy.h>
#include <bpf/bpf_helpers.h>

const struct belfry_policy belfry_policy SEC(".rodata.belfry") = {
	.magic = BELFRY_POLICY_MAGIC,
	.abi = BELFRY_POLICY_ABI,
	.vgpu_size = sizeof(struct belfry_vgpu),
	.head_size = sizeof(struct belfry_head),
	.pick_size = sizeof(struct belfry_pick),
	.tick_size = sizeof(struct belfry_tick),
	.name = "by_hand",
};
char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("belfry/pick")
int pick(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("large", "has more than policies may have");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 0xffffffff);
	__type(key, __u32);
	__uint(value_size, 0xfffffff8);
} large SEC(".maps");

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

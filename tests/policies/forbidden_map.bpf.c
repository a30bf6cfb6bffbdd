/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("forbidden", "has a map of programs");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("pinned", "wants its map pinned by name");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} shared SEC(".maps");

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

/* SPDX-License-Identifier: MIT */
/* Has a map that is called like the one of its global variables. */
#include <belfry/policy.h>

BELFRY_POLICY("map_bss", "has two maps for one pin");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} bss SEC(".maps");

__u64 picks;

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&bss, &first);

	(void)ctx;
	if (count)
		*count = ++picks;
	return BELFRY_DEFAULT;
}

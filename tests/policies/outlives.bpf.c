/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("outlives", "goes on by a timer");

struct clock {
	struct bpf_timer timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock);
} clocks SEC(".maps");

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	__u32 key = 0;
	struct clock *clock = bpf_map_lookup_elem(&clocks, &key);

	(void)ctx;
	return clock ? bpf_timer_init(&clock->timer, &clocks, 1) != 0 : 1;
}

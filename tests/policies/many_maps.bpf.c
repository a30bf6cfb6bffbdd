/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("many", "has more maps than policies may have");

#define MAP(name) \
	struct { \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, 1); \
		__type(key, __u32); \
		__type(value, __u32); \
	} name SEC(".maps")
#define MAPS(name) \
	MAP(name##0); \
	MAP(name##1); \
	MAP(name##2); \
	MAP(name##3)

MAPS(a);
MAPS(b);
MAPS(c);
MAPS(d);

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	return !ctx->head.count;
}

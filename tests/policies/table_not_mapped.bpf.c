/* SPDX-License-Identifier: MIT */
#include "by_hand.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BELFRY_VGPUS_MAX);
	__type(key, __u32);
	__type(value, struct belfry_vgpu);
} belfry_vgpus SEC(".maps");

/* SPDX-License-Identifier: MIT */
/* Whoever is furthest behind is next. Has a tunable of each kind, a map of its own, and something to say. */
#include <belfry/policy.h>
#include <stdbool.h>

BELFRY_POLICY("least", "whoever is furthest behind is next");

enum mode { MODE_PLAIN, MODE_FANCY };

const volatile __u32 slice_us = 500;
const volatile __s8 offset = -3;
const volatile bool is_strict = true;
const volatile __u64 large = ~0ull;
const volatile enum mode mode = MODE_FANCY;
const volatile __s64 deep = -1;
const volatile __u32 several[2] = { 1, 2 };

__u64 picks;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u64);
} picked SEC(".maps");

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	__u32 next = belfry_next(&ctx->head);
	__u64 one = 1, key = next;

	if (next == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	__sync_fetch_and_add(&picks, 1);
	bpf_map_update_elem(&picked, &key, &one, BPF_ANY);
	ctx->choice = next;
	ctx->slice_ns = slice_us * 1000ull + offset;
	if (is_strict)
		ctx->units = (large == 7) + 2 * (mode == MODE_FANCY) + 4 * (deep == -1) + several[1];
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(dump)
int dump(struct belfry_dump *ctx)
{
	ctx->text[0] = 'h';
	ctx->text[1] = 'i';
	ctx->text[2] = 0;
	return BELFRY_PROPOSE;
}

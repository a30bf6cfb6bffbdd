// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* oldest: the vGPU that has had work for the longest time without a break is next. The example of
 * docs/policies.md.
 *
 * Wrong for: shares. A program that is always busy is always the oldest.
 */
#include "belfry/policy.h"

const volatile __u64 slice_most_ns = 10000000; /* longest time with the token */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);   /* vGPU id */
	__type(value, __u64); /* times picked */
} picked SEC(".maps");

struct search {
	__u32 choice;
	__u64 since_ns, id;
};

static long look_at(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);

	if (!vgpu || !(vgpu->flags & BELFRY_MAY_HAVE) || vgpu->wants_since_ns >= search->since_ns)
		return 0;
	search->choice = entry;
	search->since_ns = vgpu->wants_since_ns;
	search->id = vgpu->id;
	return 0;
}

BELFRY_HOOK(pick)
int oldest_pick(struct belfry_pick *ctx)
{
	struct search search = { .choice = BELFRY_NOBODY, .since_ns = ~0ull };
	__u64 one = 1, *count;

	belfry_each(&ctx->head, look_at, &search);
	if (search.choice == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	ctx->choice = search.choice;
	ctx->slice_ns = slice_most_ns;
	count = bpf_map_lookup_elem(&picked, &search.id);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&picked, &search.id, &one, BPF_ANY);
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("oldest", "the vGPU that has had work for the longest time is next");

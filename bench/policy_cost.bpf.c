/* SPDX-License-Identifier: MIT */
/* What bench/policy_cost calls: the cheapest pick that looks at everybody. */
#include <belfry/policy.h>

BELFRY_POLICY("cost", "whoever is furthest behind is next");

struct search {
	__u32 entry, reserved;
	__s64 pass_ns;
};

static long look(__u64 entry, void *data)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	struct search *search = data;

	if (!vgpu)
		return 1;
	if (vgpu->flags & BELFRY_MAY_HAVE &&
	    (search->entry == BELFRY_NOBODY || vgpu->pass_ns < search->pass_ns)) {
		search->entry = entry;
		search->pass_ns = vgpu->pass_ns;
	}
	return 0;
}

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	struct search search = { .entry = BELFRY_NOBODY };

	belfry_each(&ctx->head, look, &search);
	ctx->choice = search.entry;
	return BELFRY_PROPOSE;
}

/* What a call costs by itself. */
BELFRY_HOOK(tick)
int tick(struct belfry_tick *ctx)
{
	return !ctx->head.count;
}

// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* @NAME@: describe here what it optimises.
 *
 * Wrong for: describe here when not to use it.
 */
#include "belfry/policy.h"

const volatile __u64 slice_ns = 0; /* a tunable: belfry policy load @NAME@.bpf.o --set slice_ns=5000000 */

struct search {
	__u32 choice;
	__s64 pass_ns;
};

/* Called for each vGPU that has, or recently had, work. A non-zero result ends the search. */
static long look_at(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);

	if (!vgpu || !(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	if (search->choice != BELFRY_NOBODY && vgpu->pass_ns >= search->pass_ns)
		return 0;
	search->choice = entry;
	search->pass_ns = vgpu->pass_ns;
	return 0;
}

/* Picks the vGPU that has received the least for its share. */
BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	struct search search = { .choice = BELFRY_NOBODY };

	belfry_each(&ctx->head, look_at, &search);
	if (search.choice == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	ctx->choice = search.choice;
	ctx->slice_ns = slice_ns; /* 0: the built-in slice */
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("@NAME@", "what it does, in a line");

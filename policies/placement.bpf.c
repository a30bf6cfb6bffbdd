// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* placement: within a domain, programs that compute run beside programs that move memory. Who is next is decided by shares;
 * who runs beside it is whoever's measured use of the SMs and of the memory bus adds up to the least above the whole. Where
 * nothing was measured it is as it would be.
 *
 * Wrong for: domains of one, for which it changes nothing; programs whose phases are shorter than what was measured over;
 * and shares among those of one domain: the partner is chosen by fit, not by how far behind it is.
 */
#include <stdbool.h>

#include "belfry/policy.h"

const volatile __u32 over_most_ppm = 300000; /* worse than this together: nobody in particular beside it */

struct search {
	struct belfry_head head;
	__u32 choice, beside;
	bool is_due;
	__s64 pass_ns;
	__u32 domain, sm_ppm, mem_ppm; /* of the choice */
	__u32 over_ppm;
};

/* As what is built in: see fair.bpf.c. */
static bool is_due(const struct belfry_vgpu *vgpu, const struct belfry_head *head)
{
	__u64 ahead_ns = (__u64)vgpu->pass_ns - (__u64)head->pass_ns;

	return vgpu->class == BELFRY_LATENCY &&
	       (vgpu->pass_ns < head->pass_ns || ahead_ns < head->round_ns) &&
	       vgpu->window_used_ns < vgpu->window_promised_ns;
}

static long find_next(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	bool due;

	if (!vgpu || !(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	due = is_due(vgpu, &search->head);
	if (search->choice != BELFRY_NOBODY &&
	    (due != search->is_due ? !due : vgpu->pass_ns >= search->pass_ns))
		return 0;
	search->choice = entry;
	search->is_due = due;
	search->pass_ns = vgpu->pass_ns;
	return 0;
}

static __u32 above_whole(__u32 a_ppm, __u32 b_ppm)
{
	return a_ppm + b_ppm > BELFRY_WHOLE_PPM ? a_ppm + b_ppm - BELFRY_WHOLE_PPM : 0;
}

static long find_partner(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	__u32 over_ppm;

	if (!vgpu || entry == search->choice || vgpu->domain != search->domain ||
	    !(vgpu->flags & BELFRY_MAY_HAVE) || !vgpu->sm_ppm || !vgpu->mem_ppm)
		return 0;
	over_ppm = above_whole(vgpu->sm_ppm, search->sm_ppm) + above_whole(vgpu->mem_ppm, search->mem_ppm);
	if (over_ppm >= search->over_ppm)
		return 0;
	search->beside = entry;
	search->over_ppm = over_ppm;
	return 0;
}

BELFRY_HOOK(pick)
int placement_pick(struct belfry_pick *ctx)
{
	struct search search = { .head = ctx->head, .choice = BELFRY_NOBODY, .beside = BELFRY_NOBODY };
	const struct belfry_vgpu *vgpu;

	belfry_each(&ctx->head, find_next, &search);
	vgpu = belfry_vgpu(search.choice);
	if (!vgpu)
		return BELFRY_DEFAULT;
	if (vgpu->domain && vgpu->sm_ppm && vgpu->mem_ppm) {
		search.domain = vgpu->domain;
		search.sm_ppm = vgpu->sm_ppm;
		search.mem_ppm = vgpu->mem_ppm;
		search.over_ppm = over_most_ppm;
		belfry_each(&ctx->head, find_partner, &search);
	}
	ctx->choice = search.choice;
	ctx->beside = search.beside;
	ctx->slice_ns = 0;
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("placement", "within a domain, those who compute beside those who move memory");

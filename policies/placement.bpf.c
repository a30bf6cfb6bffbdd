// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* placement: within a domain, compute-bound programs run beside memory-bound programs. Shares decide which
 * vGPU is next. The vGPU beside it is the one whose measured use of the SMs and of the memory bus exceeds the
 * whole the least together with it. Without measurements, the built-in policy decides.
 *
 * Wrong for: domains of one vGPU, for which it changes nothing; programs whose phases are shorter than the
 * measuring interval; shares within one domain, because the partner is chosen by its use, not by how far
 * behind it is.
 */
#include "belfry/policy.h"

const volatile __u32 over_most_ppm = 300000; /* if the best pair exceeds the whole by more, propose none */

struct search {
	__u32 choice, beside;
	__u32 domain, sm_ppm, mem_ppm; /* of the picked vGPU */
	__u32 over_ppm;
};

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
	struct search search = { .choice = belfry_next(&ctx->head), .beside = BELFRY_NOBODY };
	const struct belfry_vgpu *vgpu = belfry_vgpu(search.choice);

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

BELFRY_POLICY("placement", "within a domain, compute-bound beside memory-bound programs");

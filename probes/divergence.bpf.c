/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* divergence: how many of the 32 lanes of a warp are active, as an average for each kernel and device function, and
 * as a histogram. Both are weighted with the instructions that run. It runs at each section: a sequence of
 * instructions without a branch.
 *
 * Wrong for: kernels whose time matters while it is measured, because each section costs two or more atomic
 * additions. Lanes that a predicate switches off for single instructions count as active. PTX is measured: the
 * assembler can replace short branches by predicates.
 */
#include "belfry/probe.h"

BELFRY_PROBE();

struct lanes {
	__u64 instructions; /* of warps */
	__u64 active;	    /* lanes, summed over them */
};

BELFRY_HASH(kernels, __u64, struct lanes, 4096);
BELFRY_SM_ARRAY(histogram, __u64, 33);

BELFRY_PRINT(BELFRY_SHOW_KEY(kernels, "kernel", KERNEL, 0),
	     BELFRY_SHOW(kernels, struct lanes, instructions, "instructions", COUNT, BELFRY_PRINT_SORT),
	     BELFRY_SHOW_PER(kernels, struct lanes, active, instructions, "lanes", RATIO, 0),
	     BELFRY_SHOW_INDEX(histogram, "active lanes", COUNT),
	     BELFRY_SHOW_VALUE(histogram, "instructions", COUNT, BELFRY_PRINT_BAR));

BELFRY_PROBE_AT(section)
int divergence_section(struct belfry_probe_ctx *ctx)
{
	__u64 kernel = ctx->kernel, instructions = ctx->instructions, *count;
	__u32 active = ctx->lanes;
	struct lanes none = { 0 }, *lanes = bpf_map_lookup_elem(&kernels, &kernel);

	if (!lanes) {
		bpf_map_update_elem(&kernels, &kernel, &none, BPF_NOEXIST);
		lanes = bpf_map_lookup_elem(&kernels, &kernel);
	}
	if (lanes) {
		__sync_fetch_and_add(&lanes->instructions, instructions);
		__sync_fetch_and_add(&lanes->active, instructions * active);
	}
	count = bpf_map_lookup_elem(&histogram, &active);
	if (count)
		__sync_fetch_and_add(count, instructions);
	return 0;
}

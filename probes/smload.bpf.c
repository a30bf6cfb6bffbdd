/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* smload: for each SM, the time during which at least one thread block was on it, and the sum of the times of all
 * blocks. Their quotient is the average number of blocks at a time.
 *
 * Wrong for: kernels that are not instrumented, which count as idle time, and for a GPU whose blocks move between
 * SMs while they run (a debugger, a preemption): a block must end where it began. A grid that is killed leaves its
 * blocks counted, and its SMs busy.
 */
#include "belfry/probe.h"

BELFRY_PROBE();

struct load {
	__u64 resident; /* blocks that are on the SM now */
	__u64 since_ns; /* when the first of them began */
	__u64 busy_ns, block_ns, blocks;
};

BELFRY_SM_ARRAY(sms, struct load, 1);

BELFRY_PRINT(BELFRY_SHOW_SM(sms), BELFRY_SHOW(sms, struct load, busy_ns, "busy", NS, BELFRY_PRINT_BAR),
	     BELFRY_SHOW(sms, struct load, blocks, "blocks", COUNT, 0),
	     BELFRY_SHOW_PER(sms, struct load, block_ns, busy_ns, "at a time", RATIO, 0));

BELFRY_PROBE_AT(block_enter)
int smload_enter(struct belfry_probe_ctx *ctx)
{
	__u32 first = 0;
	struct load *load = bpf_map_lookup_elem(&sms, &first);

	if (load && !__sync_fetch_and_add(&load->resident, 1))
		load->since_ns = ctx->time_ns;
	return 0;
}

BELFRY_PROBE_AT(block_exit)
int smload_exit(struct belfry_probe_ctx *ctx)
{
	__u64 now_ns = ctx->time_ns, begin_ns = ctx->begin_ns, since_ns;
	__u32 first = 0;
	struct load *load = bpf_map_lookup_elem(&sms, &first);

	if (!load)
		return 0;
	since_ns = load->since_ns; /* a block that begins after the last one has ended sets it anew */
	if (now_ns > begin_ns)
		__sync_fetch_and_add(&load->block_ns, now_ns - begin_ns);
	__sync_fetch_and_add(&load->blocks, 1);
	if (__sync_fetch_and_add(&load->resident, (__u64)-1) == 1 && now_ns > since_ns)
		__sync_fetch_and_add(&load->busy_ns, now_ns - since_ns);
	return 0;
}

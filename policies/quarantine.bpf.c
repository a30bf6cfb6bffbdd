// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* quarantine: a vGPU whose programs cause repeated GPU faults gets no new context for a while. Ending a
 * context after a fault costs every vGPU of the GPU some milliseconds. A program that is restarted in a loop
 * and fails each time repeats that cost.
 *
 * Wrong for: vGPUs with many users, where one user's bug locks the others out; work that is expected to fail,
 * such as tests.
 */
#include "belfry/policy.h"

const volatile __u32 faults_most = 3;		 /* this many faults */
const volatile __u64 within_ns = 10000000000ull; /* in this time lock the vGPU out */
const volatile __u64 out_ns = 30000000000ull;	 /* for this time */

struct history {
	__u64 since_ns, until_ns; /* time of the first counted fault; end of the lockout */
	__u32 faults, refused;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64); /* vGPU id */
	__type(value, struct history);
} vgpus SEC(".maps");

BELFRY_HOOK(fault)
int quarantine_fault(struct belfry_fault *ctx)
{
	__u64 id = ctx->id, now_ns = ctx->head.now_ns;
	struct history fresh = { .since_ns = now_ns }, *history = bpf_map_lookup_elem(&vgpus, &id);

	if (!history) {
		bpf_map_update_elem(&vgpus, &id, &fresh, BPF_ANY);
		history = bpf_map_lookup_elem(&vgpus, &id);
		if (!history)
			return BELFRY_DEFAULT;
	}
	if (now_ns - history->since_ns > within_ns) {
		history->since_ns = now_ns;
		history->faults = 0;
	}
	if (++history->faults >= faults_most)
		history->until_ns = now_ns + out_ns;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(ctx_init)
int quarantine_ctx_init(struct belfry_ctx_init *ctx)
{
	__u64 id = ctx->id;
	struct history *history = bpf_map_lookup_elem(&vgpus, &id);

	if (!history || ctx->head.now_ns >= history->until_ns)
		return BELFRY_DEFAULT;
	history->refused++;
	ctx->refuse = 1;
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("quarantine", "no new context for a vGPU whose programs keep failing on the GPU");

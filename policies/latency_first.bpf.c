// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* latency_first: a latency vGPU never waits for a throughput vGPU. Latency vGPUs go first, in the order of
 * the time left to their deadlines, and preempt at once. Throughput vGPUs share the rest in the ratio of
 * their requests. While there are latency vGPUs, their slices are short, so that a hand-over comes soon.
 *
 * Wrong for: latency vGPUs that are always busy, which leave the others only their requests. Also wrong for
 * throughput beside many bursts: short slices mean many hand-overs, up to 1 ms each.
 */
#include <stdbool.h>

#include "belfry/policy.h"

const volatile __u64 short_slice_ns = 5000000; /* for throughput vGPUs, while there are latency vGPUs */
const volatile __u64 default_ns = 10000000;    /* deadline after wants_since_ns, without an objective */

struct search {
	__u64 now_ns;
	__u32 choice, class;
	__s64 key; /* time left to the deadline, or pass_ns */
	bool has_latency;
};

/* Time left to the deadline; negative: it is late. */
static __s64 slack_ns(const struct belfry_vgpu *vgpu, __u64 now_ns)
{
	__u64 deadline_ns = vgpu->deadline_ns ? vgpu->deadline_ns : vgpu->wants_since_ns + default_ns;

	return (__s64)(deadline_ns - now_ns);
}

static long look_at(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	__s64 key;

	if (!vgpu)
		return 0;
	if (vgpu->class == BELFRY_LATENCY)
		search->has_latency = true;
	if (!(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	key = vgpu->class == BELFRY_LATENCY ? slack_ns(vgpu, search->now_ns) : vgpu->pass_ns;
	if (search->choice != BELFRY_NOBODY &&
	    (vgpu->class != search->class ? vgpu->class != BELFRY_LATENCY : key >= search->key))
		return 0;
	search->choice = entry;
	search->class = vgpu->class;
	search->key = key;
	return 0;
}

BELFRY_HOOK(pick)
int latency_first_pick(struct belfry_pick *ctx)
{
	struct search search = { .now_ns = ctx->head.now_ns, .choice = BELFRY_NOBODY };
	const struct belfry_vgpu *vgpu;

	belfry_each(&ctx->head, look_at, &search);
	vgpu = belfry_vgpu(search.choice);
	if (!vgpu)
		return BELFRY_DEFAULT;
	ctx->choice = search.choice;
	ctx->slice_ns = ctx->head.round_ns * vgpu->part_ppm / BELFRY_WHOLE_PPM;
	if (search.class != BELFRY_LATENCY && search.has_latency && ctx->slice_ns > short_slice_ns)
		ctx->slice_ns = short_slice_ns;
	if (ctx->slice_ns < ctx->head.slice_min_ns)
		ctx->slice_ns = ctx->head.slice_min_ns;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(preempt)
int latency_first_preempt(struct belfry_preempt *ctx)
{
	const struct belfry_vgpu *waiter = belfry_vgpu(ctx->head.vgpu), *holder = belfry_vgpu(ctx->holder);

	if (!waiter || !holder)
		return BELFRY_DEFAULT;
	ctx->stop = waiter->class == BELFRY_LATENCY && holder->class != BELFRY_LATENCY;
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("latency_first", "latency before throughput, always; the earliest deadline first");

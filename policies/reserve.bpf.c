// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* reserve: a part of the GPU is held back for bursts of one class, always or at certain hours. While it is
 * held back, the slices of the other class are shorter by that part. The favoured class goes first and
 * preempts at once, as long as every vGPU receives its request.
 *
 * Hours are a period with a beginning and an end, on the clock that starts at boot, because eBPF cannot read
 * the time of day. To follow the time of day, let a timer set the map, which takes precedence over the hours:
 *
 *	bpftool map update pinned PATH/reserve_now key 0 0 0 0 value 1 0 0 0	# 1: held, 2: not held, 0: by the hours
 *
 * belfry policy ls prints PATH.
 *
 * Wrong for: time that must stay unused. If only the other class has work, it gets the whole GPU: the reserve
 * is a priority, not idle time. Also wrong for steady load of the favoured class, which then always goes
 * first.
 */
#include <stdbool.h>

#include "belfry/policy.h"

const volatile __u32 held_ppm = 200000;
const volatile __u32 for_class = BELFRY_LATENCY;
const volatile __u64 period_ns = 0; /* 0: always; 86400000000000 is a day */
const volatile __u64 from_ns = 0, to_ns = 0;

enum { BY_THE_HOURS, HELD, NOT_HELD };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} reserve_now SEC(".maps");

struct search {
	__u32 choice;
	bool is_favoured;
	__s64 pass_ns;
};

static bool is_held(const struct belfry_head *head)
{
	__u32 key = 0, *now = bpf_map_lookup_elem(&reserve_now, &key);
	__u64 at_ns;

	if (now && *now != BY_THE_HOURS)
		return *now == HELD;
	if (!period_ns)
		return true;
	at_ns = head->now_ns % period_ns;
	return from_ns <= to_ns ? at_ns >= from_ns && at_ns < to_ns : at_ns >= from_ns || at_ns < to_ns;
}

static __u64 without_reserve(__u64 value)
{
	return held_ppm < BELFRY_WHOLE_PPM ? value * (BELFRY_WHOLE_PPM - held_ppm) / BELFRY_WHOLE_PPM : 0;
}

static long look_at(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	bool is_favoured;

	if (!vgpu || !(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	is_favoured = vgpu->class == for_class;
	if (search->choice != BELFRY_NOBODY &&
	    (is_favoured != search->is_favoured ? !is_favoured : vgpu->pass_ns >= search->pass_ns))
		return 0;
	search->choice = entry;
	search->is_favoured = is_favoured;
	search->pass_ns = vgpu->pass_ns;
	return 0;
}

BELFRY_HOOK(pick)
int reserve_pick(struct belfry_pick *ctx)
{
	struct search search = { .choice = BELFRY_NOBODY };
	const struct belfry_vgpu *vgpu;

	if (!is_held(&ctx->head))
		return BELFRY_DEFAULT;
	belfry_each(&ctx->head, look_at, &search);
	vgpu = belfry_vgpu(search.choice);
	if (!vgpu)
		return BELFRY_DEFAULT;
	ctx->choice = search.choice;
	ctx->slice_ns = ctx->head.round_ns * vgpu->part_ppm / BELFRY_WHOLE_PPM;
	if (!search.is_favoured)
		ctx->slice_ns = without_reserve(ctx->slice_ns);
	if (ctx->slice_ns < ctx->head.slice_min_ns)
		ctx->slice_ns = ctx->head.slice_min_ns;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(preempt)
int reserve_preempt(struct belfry_preempt *ctx)
{
	const struct belfry_vgpu *waiter = belfry_vgpu(ctx->head.vgpu), *holder = belfry_vgpu(ctx->holder);

	if (!waiter || !holder || !is_held(&ctx->head))
		return BELFRY_DEFAULT;
	ctx->stop = waiter->class == for_class && holder->class != for_class;
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("reserve",
	      "a part of the GPU is held back for bursts of one class, always or at certain hours");

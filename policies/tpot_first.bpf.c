// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* tpot_first: time per output token first, after CoGPU's TPOT-FIRST. Each latency vGPU with an objective gets
 * the weakest measures that meet it, and the other vGPUs get the rest.
 *
 * - Throughput vGPUs get the longest hardware timeslice that every objective allows. A submission waits for
 *   at most one such timeslice, so it may grow by the difference between the objective and the tail.
 * - A miss that a shorter timeslice would have prevented shortens it at once by that much. The longer one is
 *   not tried again for a hold time, which doubles each time. Other misses change nothing.
 * - When objectives are nearly missed, the tightest latency vGPU gets a high interleave level and the others
 *   a medium one, with timeslices no longer than the others can wait. If two decode steps coincide, the
 *   tighter one goes first.
 * - A vGPU that meets an objective far longer than a round takes tokens, with as much weight as it needs.
 * - In a shared domain, a vGPU gets one SM unit more while its median submission takes most of the objective, and one
 *   less if it would not take so much without it. Slower submissions than the median have other causes than too few
 *   SMs. The other vGPUs of the domain get the rest.
 *
 * Wrong for: latency vGPUs without an objective, which keep the timeslices as short as possible; objectives
 * below the time of a submission alone, which cannot be met; decode programs that must be as fast as
 * possible.
 */
#include <stdbool.h>

#include "belfry/policy.h"

const volatile __u32 room_ppm = 900000; /* part of an objective that longer timeslices may use up */
const volatile __u32 near_ppm = 800000; /* part of an objective from which it is nearly missed, */
const volatile __u32 far_ppm = 600000;	/* until it is below this */
const volatile __u32 units_ppm =
	750000;				/* part of an objective that the median may take in a shared domain */
const volatile __u32 swap_ppm = 150000; /* how much tighter a vGPU must be to replace the tightest */
const volatile __u32 tolerance = 8;	/* allow one of this many misses that the percentile allows */
const volatile __u32 enough_samples = 32;	 /* before timeslices get longer */
const volatile __u64 hold_ns = 1000000000;	 /* first hold time after a longer timeslice failed */
const volatile __u64 hold_most_ns = 32000000000; /* longest hold time */
const volatile __u64 turn_least_us = 2048;	 /* of a riding vGPU: shorter ones split submissions, */
const volatile __u64 split_us = 700;		 /* down to this, if another vGPU needs it */
const volatile __u64 switch_ns = 200000;	 /* time of a context switch (docs/measurements.md) */
const volatile __u32 parks_from_rounds = 4;	 /* objectives of at least this many rounds may use tokens */
const volatile __u32 extra_step_ppm = 50000;	 /* weight added after a miss, and removed in such steps */

static const __u64 ladder_us[] = { 1, 50, 200, 350, 500, 750, 1000, 1500, 2000 };
enum { LADDER_TOP = sizeof(ladder_us) / sizeof(ladder_us[0]) - 1, ALONE_US = 1000000 };
enum { MEDIUM = 1, HIGH = 2 };
enum { NONE, ONE, SEVERAL };

struct program {
	__u64 settled_ns;
	__u64 until_ns, hold_ns; /* end and length of the hold time */
	__u64 samples, missed;	 /* at the last settle() */
	__u64 stepped;		 /* samples when `step` last changed */
	__u64 over_ns;		 /* worst miss since then that a shorter timeslice would have prevented */
	__s64 credit_ppm;	 /* such misses still allowed, in millionths of one */
	__u32 step;		 /* index into ladder_us that its objective allows */
	__u32 extra_ppm;
	__u32 is_near, is_parked;
	__u32 units;	   /* SM units in a shared domain; 0: the built-in number */
	__u64 units_since; /* samples when `units` last changed */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct program);
} programs SEC(".maps");

__u64 tightest_id, tightest_since_ns;
__u32 step_now; /* index into ladder_us in force */

static struct program *program_of(const struct belfry_vgpu *vgpu)
{
	struct program new = { .samples = vgpu->samples,
			       .missed = vgpu->missed,
			       .stepped = vgpu->samples,
			       .units_since = vgpu->samples };
	__u64 id = vgpu->id;
	struct program *program = bpf_map_lookup_elem(&programs, &id);

	if (program)
		return program;
	bpf_map_update_elem(&programs, &id, &new, BPF_NOEXIST);
	return bpf_map_lookup_elem(&programs, &id);
}

/* The part of the objective that took_ns is. 0 for a vGPU that cannot meet its objective even alone. */
static __u64 part_ppm(const struct belfry_vgpu *vgpu, __u64 took_ns)
{
	if (vgpu->class != BELFRY_LATENCY || vgpu->burst_ns >= vgpu->objective_ns)
		return 0;
	return took_ns / 1000 * BELFRY_WHOLE_PPM / (vgpu->objective_ns / 1000 + 1);
}

/* How long it can wait and still meet its objective. */
static __u64 slack_ns(const struct belfry_vgpu *vgpu)
{
	__u64 own_ns = vgpu->burst_ns + switch_ns;

	return vgpu->objective_ns > own_ns ? vgpu->objective_ns - own_ns : 0;
}

static __u64 step_ns(__u32 step)
{
	return step <= LADDER_TOP ? ladder_us[step] * 1000 : 0;
}

/* Shortens the timeslice to one that would have prevented the miss. */
static void step_back(struct program *program, const struct belfry_vgpu *vgpu, __u64 now_ns)
{
	__u64 was_ns = step_ns(step_now), to_ns = was_ns > program->over_ns ? was_ns - program->over_ns : 0;

	for (int i = 0; i < LADDER_TOP && program->step && step_ns(program->step) > to_ns; i++)
		program->step--;
	program->hold_ns = program->hold_ns ? program->hold_ns * 2 : hold_ns;
	if (program->hold_ns > hold_most_ns)
		program->hold_ns = hold_most_ns;
	program->until_ns = now_ns + program->hold_ns;
	program->stepped = vgpu->samples;
	program->credit_ppm = 0;
}

static void step_on(struct program *program, const struct belfry_vgpu *vgpu, __u64 now_ns)
{
	__u64 more_ns = step_ns(program->step + 1) - step_ns(step_now);

	if (program->step >= LADDER_TOP || now_ns < program->until_ns ||
	    vgpu->samples - program->stepped < enough_samples ||
	    vgpu->tail_ns + more_ns > vgpu->objective_ns / 1000 * room_ppm / 1000)
		return;
	program->step++;
	program->stepped = vgpu->samples;
}

/* More units soon, fewer after a longer time. A submission takes at most N / (N - 1) of the time with one unit less. */
static void settle_units(struct program *program, const struct belfry_vgpu *vgpu)
{
	__u64 seen = vgpu->samples - program->units_since, p50_ppm = part_ppm(vgpu, vgpu->p50_ns);
	__u32 now = vgpu->units;

	if (!vgpu->units_all || !now)
		program->units = 0;
	else if (p50_ppm >= units_ppm && seen >= enough_samples && now < vgpu->units_all)
		program->units = now + 1;
	else if (p50_ppm * now < (__u64)units_ppm * (now - 1) && seen >= 8 * (__u64)enough_samples)
		program->units = now - 1;
	else
		return;
	program->units_since = vgpu->samples;
}

static void settle(struct program *program, const struct belfry_vgpu *vgpu, const struct belfry_head *head)
{
	__u64 tail_ppm = part_ppm(vgpu, vgpu->tail_ns), new = vgpu->samples - program->samples;
	bool has_missed = vgpu->missed != program->missed, is_far = tail_ppm < far_ppm;

	program->credit_ppm += new *(BELFRY_WHOLE_PPM - vgpu->percentile_ppm) / (tolerance ? tolerance : 1);
	if (program->credit_ppm > BELFRY_WHOLE_PPM)
		program->credit_ppm = BELFRY_WHOLE_PPM;
	if (program->credit_ppm < 0)
		step_back(program, vgpu, head->now_ns);
	else
		step_on(program, vgpu, head->now_ns);
	if (has_missed && program->extra_ppm < BELFRY_WHOLE_PPM)
		program->extra_ppm += extra_step_ppm;
	else if (is_far)
		program->extra_ppm -= program->extra_ppm < extra_step_ppm ? program->extra_ppm
									  : extra_step_ppm;
	program->is_near = tail_ppm >= near_ppm || (program->is_near && !is_far);
	program->is_parked = !program->is_near && !has_missed && (program->is_parked || is_far) &&
			     vgpu->samples >= enough_samples &&
			     vgpu->objective_ns >= parks_from_rounds * head->round_ns;
	settle_units(program, vgpu);
	program->over_ns = 0;
	program->samples = vgpu->samples;
	program->missed = vgpu->missed;
	program->settled_ns = head->now_ns;
}

/* A summary of all latency vGPUs that ride. */
struct view {
	struct belfry_head head;
	__u32 riders, step; /* step: what all of them allow */
	__u64 tight_id, tight_ppm;
	__u64 was_ppm;			/* of the previously tightest vGPU */
	__u64 pressed_id;		/* the vGPU that can wait the least, */
	__u64 slack_ns, other_slack_ns; /* for how long, and how long all others can */
	__u32 is_near, reserved;	/* an objective is nearly missed */
};

/* The verifier checks a global function once, and not again in each loop iteration. With fewer paths, CAP_BPF
 * alone is enough to load the policy. */
__noinline int take_in(struct view *view, const struct belfry_vgpu *vgpu, struct program *program)
{
	__u64 ppm, slack;

	if (!view || !vgpu || !program)
		return 0;
	if (vgpu->objective_ns && view->head.now_ns - program->settled_ns > view->head.round_ns / 8)
		settle(program, vgpu, &view->head);
	if (program->is_parked)
		return 0;
	view->riders = view->riders ? SEVERAL : ONE;
	view->is_near |= program->is_near;
	if (program->step < view->step)
		view->step = program->step;
	ppm = part_ppm(vgpu, vgpu->p50_ns); /* not the tail: a few long submissions may dominate it */
	if (ppm > view->tight_ppm) {
		view->tight_ppm = ppm;
		view->tight_id = vgpu->id;
	}
	if (vgpu->id == tightest_id)
		view->was_ppm = ppm;
	slack = slack_ns(vgpu);
	if (slack < view->slack_ns) {
		view->other_slack_ns = view->slack_ns;
		view->slack_ns = slack;
		view->pressed_id = vgpu->id;
	} else if (slack < view->other_slack_ns) {
		view->other_slack_ns = slack;
	}
	return 0;
}

static long look_at(__u32 entry, struct view *view)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	struct program *program;

	if (!vgpu || vgpu->class != BELFRY_LATENCY)
		return 0;
	program = program_of(vgpu);
	if (program)
		take_in(view, vgpu, program);
	return 0;
}

/* The tightest vGPU stays the same until another one is clearly tighter. */
static void crown(const struct view *view)
{
	if (view->was_ppm &&
	    (view->tight_ppm < view->was_ppm + swap_ppm || view->head.now_ns - tightest_since_ns < hold_ns))
		return;
	tightest_id = view->tight_id;
	tightest_since_ns = view->head.now_ns;
}

/* Whether the vGPU still meets its objective if timeslices of this length split its submissions. */
static bool can_split(const struct belfry_vgpu *vgpu, __u64 turn_us)
{
	return turn_us &&
	       vgpu->burst_ns / 1000 / turn_us * (2 * switch_ns + step_ns(step_now)) < slack_ns(vgpu) / 2;
}

/* Long enough for a submission, because each split costs two context switches. If possible, not longer than
 * another vGPU can wait. */
static __u64 turn_us(const struct belfry_vgpu *vgpu, const struct program *program, const struct view *view)
{
	__u64 turn = program->is_near ? vgpu->burst_ns / 500 : 0;
	__u64 split = (vgpu->id == view->pressed_id ? view->other_slack_ns : view->slack_ns) / 1000;

	if (view->riders == ONE || turn > ALONE_US)
		return ALONE_US;
	if (turn < turn_least_us)
		turn = turn_least_us;
	if (!view->is_near || split >= turn)
		return turn;
	if (split >= split_us && can_split(vgpu, split))
		return split;
	return can_split(vgpu, turn_least_us) ? turn_least_us : turn;
}

BELFRY_HOOK(tick)
int tpot_first_tick(struct belfry_tick *ctx)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(ctx->head.vgpu);
	struct view view = {
		.head = ctx->head, .step = LADDER_TOP, .slack_ns = ~0ull, .other_slack_ns = ~0ull
	};
	struct program *program;

	if (!vgpu)
		return BELFRY_DEFAULT;
	belfry_each(&ctx->head, look_at, &view);
	crown(&view);
	if (view.riders == NONE)
		return BELFRY_DEFAULT;
	step_now = view.step;
	if (vgpu->class != BELFRY_LATENCY) {
		ctx->timeslice_us = step_ns(view.step) / 1000;
		ctx->interleave = 0;
		return BELFRY_PROPOSE;
	}
	program = program_of(vgpu);
	if (!program)
		return BELFRY_DEFAULT;
	if (program->is_parked)
		ctx->ride = 0;
	if (program->extra_ppm)
		ctx->weight_ppm = vgpu->request_ppm + program->extra_ppm;
	ctx->units = program->units;
	ctx->timeslice_us = turn_us(vgpu, program, &view);
	ctx->interleave = vgpu->id == tightest_id || !view.is_near ? HIGH : MEDIUM;
	return BELFRY_PROPOSE;
}

struct search {
	__u32 choice;
	__u64 ppm;
};

static long find_tightest(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	__u64 ppm;

	if (!vgpu || !(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	ppm = part_ppm(vgpu, vgpu->tail_ns);
	if (ppm >= far_ppm && ppm > search->ppm) {
		search->choice = entry;
		search->ppm = ppm;
	}
	return 0;
}

/* Of the vGPUs that take tokens, the tightest is next. If no objective is near, the built-in policy decides
 * by shares. */
BELFRY_HOOK(pick)
int tpot_first_pick(struct belfry_pick *ctx)
{
	struct search search = { .choice = BELFRY_NOBODY };

	belfry_each(&ctx->head, find_tightest, &search);
	if (search.choice == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	ctx->choice = search.choice;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(preempt)
int tpot_first_preempt(struct belfry_preempt *ctx)
{
	const struct belfry_vgpu *waiter = belfry_vgpu(ctx->head.vgpu), *holder = belfry_vgpu(ctx->holder);
	__u64 ppm;

	if (!waiter || !holder)
		return BELFRY_DEFAULT;
	ppm = part_ppm(waiter, waiter->tail_ns);
	if (ppm < far_ppm)
		return BELFRY_DEFAULT;
	ctx->stop = ppm >= part_ppm(holder, holder->tail_ns) + swap_ppm;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(objective_missed)
int tpot_first_objective_missed(struct belfry_objective *ctx)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(ctx->head.vgpu);
	struct program *program = vgpu ? program_of(vgpu) : NULL;
	__u64 over_ns = ctx->took_ns - ctx->objective_ns;

	if (!program || over_ns > step_ns(step_now))
		return BELFRY_PROPOSE;
	program->credit_ppm -= BELFRY_WHOLE_PPM;
	if (over_ns > program->over_ns)
		program->over_ns = over_ns;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(vgpu_exit)
int tpot_first_vgpu_exit(struct belfry_vgpu_init *ctx)
{
	__u64 id = ctx->id;

	bpf_map_delete_elem(&programs, &id);
	return BELFRY_PROPOSE;
}

/* The verifier requires constant offsets for writes to the context's text. */
static __always_inline void write_number(char *to, __u64 number)
{
#pragma unroll
	for (int i = 0; i < 4; i++, number /= 10)
		to[3 - i] = number || !i ? '0' + number % 10 : ' ';
}

static const char says[] SEC(".rodata") = "turns of at most      us beside latency vGPUs";
enum { NUMBER_AT = 17 };

BELFRY_HOOK(dump)
int tpot_first_dump(struct belfry_dump *ctx)
{
#pragma unroll
	for (unsigned i = 0; i < sizeof(says); i++)
		ctx->text[i] = says[i];
	write_number(ctx->text + NUMBER_AT, step_ns(step_now) / 1000);
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("tpot_first", "time per output token first, with the least that meets each objective");

/* Which vGPUs are active, which ride, and their turns in hardware. Decided four times a round. */
#include "sched/state.h"

enum {
	SETTLES_A_ROUND = 4,
	RIDER_SLICE_US = 1000000, /* the turn of the only rider lasts until it has no more work */
	DEFAULT_SLICE_US = 2048,  /* what libcuda asks for (docs/driver.md) */
	ENOUGH_SAMPLES = 20,	  /* to compare with an objective */
	LEVEL_LOW = 0,
	LEVEL_MEDIUM = 1,
	LEVEL_HIGH = 2,
};

/* The timeslices of vGPUs beside a rider. With the shortest a rider is served at once. Where its objective is met with a
 * margin a longer one is used. */
static const uint64_t ladder_us[] = { 1, 50, 200, 500, 1000, 2000 };
enum { LADDER_TOP = sizeof(ladder_us) / sizeof(ladder_us[0]) - 1 };

static bool is_plain(const struct sched_share *share)
{
	return !share->request_ppm && share->limit_ppm == SCHED_WHOLE_PPM && share->class == SCHED_THROUGHPUT;
}

static void settle_active(struct sched *sched)
{
	sched->is_special = false;
	sched->active_count = 0;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake)) {
		v->is_active = v->is_present && !v->is_held &&
			       (v->is_running || v->is_waiting ||
				(v->active_ns && sched->now_ns - v->active_ns <= sched->options.round_ns));
		/* Time that it did not want, or could not have, is not saved up. */
		if (v->pass < sched->pass - (int64_t)sched->options.round_ns)
			vgpu_set_pass(sched, v, sched->pass - (int64_t)sched->options.round_ns);
		sched->active_count += v->is_active;
		if (!v->is_active)
			v->owed_ns = 0;
		sched->is_special |= v->is_active && !is_plain(&v->share);
	}
	sched->is_free_for_all = sched->options.how == SCHED_TURNS ||
				 (sched->options.how == SCHED_AUTO && !sched->is_special);
	sched_update_line(sched);
}

static double used_part(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return (double)window_used(&vgpu->window, sched->options.window_ns, sched->now_ns) /
	       (double)sched->options.window_ns;
}

/* GPU time of vGPUs while they rode, whether they still ride or not. */
static double rode_part(const struct sched *sched)
{
	return (double)window_used(&sched->rode, sched->options.window_ns, sched->now_ns) /
	       (double)sched->options.window_ns;
}

/* It has had work without a break for a long time. Where GPU time is measured that must agree: short breaks are not noticed. */
static bool is_pressing(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return vgpu_wants(vgpu) && sched->now_ns - vgpu->wants_ns > 2 * sched->options.round_ns &&
	       (!sched->options.is_measured || used_part(sched, vgpu) > 0.5);
}

/* A latency vGPU that used too much takes tokens. It rides again when it uses clearly less than its weight: a vGPU that wants
 * more gets at least its weight. */
static bool has_calmed_down(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return !is_pressing(sched, vgpu) && used_part(sched, vgpu) < 0.8 * vgpu_claim(sched, vgpu);
}

/* From now on it takes tokens. It has no advantage from the time before. */
static void end_ride(struct sched *sched, struct sched_vgpu *vgpu)
{
	vgpu_unpark(sched, vgpu);
	vgpu->is_over_ride = true;
	vgpu->is_rider = false;
	if (vgpu->pass < sched->pass)
		vgpu_set_pass(sched, vgpu, sched->pass);
}

static bool may_ride(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	if (sched->options.how != SCHED_AUTO)
		return false;
	return vgpu->tick.ride >= 0 ? vgpu->tick.ride : vgpu->share.class == SCHED_LATENCY;
}

/* is_over_ride stays set where a policy proposes that the vGPU takes tokens and then again that it rides. */
static void settle_rider(struct sched *sched, struct sched_vgpu *vgpu)
{
	bool is_guest = vgpu->share.class != SCHED_LATENCY;
	bool may_ever = sched->options.how == SCHED_AUTO && (!is_guest || sched->policy.hooks), is_rider;

	if (!vgpu->is_rider)
		vgpu->rides_since_ns = sched->now_ns;
	if (!may_ever || has_calmed_down(sched, vgpu))
		vgpu->is_over_ride = false;
	is_rider = may_ride(sched, vgpu) && !vgpu->is_over_ride && (!is_guest || sched->may_guests_ride);
	if (is_rider != vgpu->is_rider)
		vgpu_unpark(sched, vgpu);
	vgpu->is_rider = is_rider;
}

/* Guests must not cost other vGPUs their requests: while guests have work every vGPU is owed its part of the time. Guests take
 * tokens once half of what may be owed is owed to one vGPU, until it is a quarter. */
static void settle_guests(struct sched *sched)
{
	double most = 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake)) {
		double owed = vgpu_owed_part(sched, v);

		most = owed > most ? owed : most;
	}
	sched->may_guests_ride = most < (sched->may_guests_ride ? 0.5 : 0.25);
}

/* A rider with work need not be on the GPU: it may copy, or its work may not have begun yet. Where GPU time is not measured, or
 * too little of it is known, all time in which a rider has work counts as the riders' time. */
static void settle_riders_take(struct sched *sched)
{
	uint64_t had_ns = window_used(&sched->had_riders, sched->options.window_ns, sched->now_ns);

	sched->riders_take = 1;
	if (sched->options.is_measured && had_ns > sched->options.round_ns)
		sched->riders_take = rode_part(sched) * (double)sched->options.window_ns / (double)had_ns;
	if (sched->riders_take > 1)
		sched->riders_take = 1;
}

/* Riders have no limit of their own as long as the parts of the other vGPUs fit beside them. Otherwise the rider that uses the
 * most above its own part takes tokens until it uses less. A rider that always has work while others wait takes tokens at
 * once. */
static void settle_riders(struct sched *sched)
{
	struct sched_vgpu *worst = NULL;
	double riders = 0, others = 0, most = 0;
	bool is_line = false;

	settle_guests(sched);
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		settle_rider(sched, v);
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake)) {
		double own = vgpu_claim(sched, v), used;

		if (!v->is_rider) {
			others += v->is_active ? own : 0;
			is_line |= vgpu_wants(v) && !v->is_spent;
			continue;
		}
		used = used_part(sched, v);
		riders += used;
		if (used - own > most) {
			worst = v;
			most = used - own;
		}
	}
	if (worst && others > 0 && riders + others > 1.01)
		end_ride(sched, worst);
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v && is_line; v = LIST_NEXT(v, in_awake))
		if (v->is_rider && is_pressing(sched, v))
			end_ride(sched, v);
	sched_update_line(sched);
}

/* What vGPUs that take tokens are owed of the time for which a token is held: their request, divided by the time that riders
 * leave. Where that is less than their weights add up to, they are owed their parts of it, never more than there is. */
static void settle_owed(struct sched *sched)
{
	double left = 1 - rode_part(sched), line = 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		line += v->is_active && !v->is_rider ? vgpu_claim(sched, v) : 0;
	if (line < left)
		line = left;
	sched->owed_part = line > 0 ? 1 / line : 1;
}

/* One step towards longer timeslices while every objective is met; back to the shortest when one is missed. */
static void settle_ladder(struct sched *sched)
{
	bool may_rise = true, has_news = false;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake)) {
		uint64_t tail;

		if (!v->is_rider || !v->is_active)
			continue;
		if (!v->share.objective_ns) {
			sched->ladder = 0;
			return;
		}
		if (v->samples - v->judged_samples < ENOUGH_SAMPLES)
			continue;
		tail = v->tail_ns;
		v->judged_samples = v->samples;
		has_news = true;
		if (tail > v->share.objective_ns) {
			sched->ladder = 0;
			return;
		}
		may_rise &= tail < v->share.objective_ns * 7 / 10;
	}
	if (has_news && may_rise && sched->ladder < LADDER_TOP)
		sched->ladder++;
}

struct riders {
	unsigned count, guests;
};

static struct riders count_riders(const struct sched *sched)
{
	struct riders riders = { 0, 0 };

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake)) {
		riders.count += v->is_rider && v->is_present;
		riders.guests += vgpu_is_guest(v) && v->is_present;
	}
	return riders;
}

static uint64_t no_more(uint64_t us, uint64_t most)
{
	return us < most ? us : most;
}

/* A policy's proposal, within limits. Riders come before others: their turns are long, and turns beside a rider are short. A
 * turn that has begun is not shortened by another order, so a vGPU that may have to leave has no turns longer than what
 * programs ask for. Where guests ride, or turns carry the shares, the built-in policy sets them. */
static void proposed_turns(const struct sched *sched, const struct sched_vgpu *vgpu, struct riders riders,
			   uint64_t *timeslice_us, int *interleave)
{
	bool is_even = riders.guests || (sched->options.how == SCHED_TURNS && sched->is_special);

	*timeslice_us = is_even ? 0 : vgpu->tick.timeslice_us;
	*interleave = is_even ? -1 : vgpu->tick.interleave;
	if (vgpu_is_guest(vgpu)) {
		*timeslice_us = DEFAULT_SLICE_US;
	} else if (vgpu->is_rider) {
		if (*timeslice_us && *timeslice_us < DEFAULT_SLICE_US)
			*timeslice_us = DEFAULT_SLICE_US;
		if (*interleave == LEVEL_LOW)
			*interleave = LEVEL_MEDIUM;
	} else if (riders.count) {
		/* Where GPU time is not measured all time in which a rider has work counts as the rider's. */
		*timeslice_us = no_more(*timeslice_us,
					ladder_us[sched->options.is_measured ? LADDER_TOP : sched->ladder]);
		*interleave = -1;
	} else {
		*timeslice_us = no_more(*timeslice_us, DEFAULT_SLICE_US);
	}
}

/* vGPUs that are on the GPU together, as they are of one domain or there is no token, take turns with each other as well. Most
 * of a shorter turn would be spent on the context switch. */
static uint64_t company_us(const struct sched *sched, const struct sched_vgpu *vgpu, uint64_t timeslice_us)
{
	bool has_company = !vgpu->is_rider && (vgpu->share.domain || sched->is_free_for_all);

	return timeslice_us && has_company && timeslice_us < COMPANY_SLICE_US ? COMPANY_SLICE_US
									      : timeslice_us;
}

/* Its turns in hardware as they should be. Returns whether they differ from those ordered. */
static bool wanted_turns(const struct sched *sched, const struct sched_vgpu *vgpu, struct riders riders,
			 uint64_t *timeslice_us, int *interleave)
{
	bool is_touched = vgpu->timeslice_us || vgpu->interleave >= 0;

	proposed_turns(sched, vgpu, riders, timeslice_us, interleave);
	if (vgpu->share.interleave >= 0)
		*interleave = vgpu->share.interleave;
	if (vgpu->share.timeslice_us)
		*timeslice_us = vgpu->share.timeslice_us;
	if (vgpu->is_rider) {
		if (!*timeslice_us)
			*timeslice_us = riders.count > 1 ? DEFAULT_SLICE_US : RIDER_SLICE_US;
		*interleave = *interleave >= 0 ? *interleave : LEVEL_HIGH;
	} else if (sched->options.how == SCHED_TURNS && sched->is_special) {
		if (!vgpu->is_active) /* when it becomes active, the turns of others change as well */
			return false;
		*timeslice_us = *timeslice_us ? *timeslice_us : vgpu_slice(sched, vgpu) / 1000;
		*interleave = *interleave >= 0 ? *interleave : LEVEL_MEDIUM;
	} else if (riders.count) {
		*timeslice_us = *timeslice_us ? *timeslice_us : ladder_us[sched->ladder];
		*interleave = *interleave >= 0 ? *interleave : LEVEL_LOW;
	} else if (is_touched) {
		*timeslice_us = *timeslice_us ? *timeslice_us : DEFAULT_SLICE_US;
		*interleave = *interleave >= 0 ? *interleave : LEVEL_MEDIUM;
	}
	if (!vgpu->share.timeslice_us)
		*timeslice_us = company_us(sched, vgpu, *timeslice_us);
	return *timeslice_us != vgpu->timeslice_us || *interleave != vgpu->interleave;
}

/* What the orders for all vGPUs depend on, also for those that are asleep. */
struct general {
	bool is_free_for_all, is_special;
	struct riders riders;
	unsigned ladder;
};

static struct general look(const struct sched *sched)
{
	return (struct general){ sched->is_free_for_all, sched->is_special, count_riders(sched),
				 sched->ladder };
}

/* Latency vGPUs stay awake, since riders are counted. */
static bool may_sleep(const struct sched *sched, const struct sched_vgpu *vgpu, struct riders riders)
{
	uint64_t timeslice_us;
	int interleave;

	return !vgpu->is_running && !vgpu->is_waiting && !vgpu->is_active && !vgpu->is_held &&
	       !vgpu->is_stopping && !vgpu->is_resuming && vgpu != sched->holder &&
	       vgpu->share.class != SCHED_LATENCY && !vgpu->is_rider &&
	       vgpu->is_open == vgpu_belongs_open(sched, vgpu) &&
	       !(vgpu->is_present && wanted_turns(sched, vgpu, riders, &timeslice_us, &interleave));
}

static void put_to_sleep(struct sched *sched, struct riders riders)
{
	struct sched_vgpu *v, *next;

	for (v = LIST_FIRST(&sched->awake); v; v = next) {
		next = LIST_NEXT(v, in_awake);
		if (may_sleep(sched, v, riders))
			vgpu_put_to_sleep(sched, v);
	}
}

/* Calls the policy's tick hook. */
static void settle_ticks(struct sched *sched)
{
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		vgpu_update_tail(v);
	ask_ticks(sched);
}

/* A policy fails that leaves a vGPU without the token for two windows, or for the time in which all that want the GPU could
 * have had two rounds. */
static void settle_starved(struct sched *sched)
{
	static const uint32_t deciding = 1u << BELFRY_HOOK_PICK | 1u << BELFRY_HOOK_PREEMPT |
					 1u << BELFRY_HOOK_ENQUEUE | 1u << BELFRY_HOOK_TICK;
	uint64_t limit = 2 * sched->options.window_ns, waiters = 0;

	if (!(sched->policy.hooks & deciding))
		return;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		waiters += vgpu_wants(v);
	if (limit < 2 * waiters * sched->options.round_ns)
		limit = 2 * waiters * sched->options.round_ns;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		if (v->starves_ns > limit) {
			sched_fail_policy(sched, "it left a vGPU without the GPU for too long");
			return;
		}
}

static void catch_up(struct sched *sched)
{
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		vgpu_catch_up(sched, v);
}

void sched_settle(struct sched *sched)
{
	struct general before, after;

	if (sched->now_ns < sched->settle_ns)
		return;
	before = look(sched);
	catch_up(sched);
	settle_active(sched);
	settle_starved(sched);
	settle_ticks(sched);
	sched->settle_ns = sched->now_ns + sched->options.round_ns / SETTLES_A_ROUND;
	sched_update_weights(sched);
	settle_riders(sched);
	settle_riders_take(sched);
	settle_owed(sched);
	if (sched->policy.hooks)
		sched_cap_passes(sched);
	settle_ladder(sched);
	sched_update_slice(sched);
	sched->may_cut = true;
	after = look(sched);
	sched->are_turns_due = true;
	if (before.is_free_for_all != after.is_free_for_all)
		sched_unpark_all(sched);
	if (before.is_free_for_all != after.is_free_for_all || before.is_special != after.is_special ||
	    before.riders.count != after.riders.count || before.riders.guests != after.riders.guests ||
	    before.ladder != after.ladder)
		for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all))
			vgpu_awaken(sched, v);
	put_to_sleep(sched, after.riders);
}

bool sched_next_slice(struct sched *sched, struct sched_order *order)
{
	struct riders riders;
	uint64_t timeslice_us;
	int interleave;

	if (!sched->are_turns_due)
		return false;
	riders = count_riders(sched);
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake)) {
		if (!v->is_present || !wanted_turns(sched, v, riders, &timeslice_us, &interleave))
			continue;
		v->timeslice_us = timeslice_us;
		v->interleave = interleave;
		*order = (struct sched_order){ SCHED_SLICE, v, timeslice_us, interleave };
		return true;
	}
	sched->are_turns_due = false;
	return false;
}

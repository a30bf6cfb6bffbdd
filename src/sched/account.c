/* The accounts: every vGPU is charged for the time since the last step. */
#include "sched/state.h"

#include "base/number.h"

void vgpu_charge(struct sched *sched, struct sched_vgpu *vgpu, uint64_t gpu_ns)
{
	vgpu->gpu_ns += gpu_ns;
	if (vgpu_has_limit(vgpu))
		vgpu->budget_ns -= (int64_t)gpu_ns;
	window_add(&vgpu->window, sched->options.window_ns, sched->now_ns, gpu_ns);
	if (vgpu->is_rider) { /* GPU time that it used before with a token is paid for already */
		uint64_t rides_ns = sched->now_ns - vgpu->rides_since_ns;

		vgpu->owed_ns -= (double)(gpu_ns < rides_ns ? gpu_ns : rides_ns);
		vgpu->owed_ns = vgpu->owed_ns > 0 ? vgpu->owed_ns : 0;
	}
	if (vgpu->is_rider && !vgpu_is_guest(vgpu))
		window_add(&sched->rode, sched->options.window_ns, sched->now_ns, gpu_ns);
}

/* The vGPUs that share the GPU at this moment by the hardware's turns. A rider is served at once, so while a rider has work
 * the time is the riders'; otherwise it is divided among all vGPUs that are on the GPU. */
struct present {
	unsigned riders, guests, others;
	/* While the holder has the token already: the vGPUs that still have to leave; of these, those that are being stopped. */
	unsigned leaving, stopping;
};

static struct present look(const struct sched *sched)
{
	struct present present = { .riders = 0 };
	bool has_holder = sched->holder && !sched->holder->is_resuming;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (vgpu_is_on(v)) {
			bool is_leaving = has_holder && !v->is_open && vgpu_takes_token(sched, v) &&
					  !vgpu_is_with_holder(sched, v);

			present.riders += v->is_rider;
			present.guests += vgpu_is_guest(v);
			present.others += !v->is_rider;
			present.leaving += is_leaving;
			present.stopping += is_leaving && v->is_stopping;
		}
	return present;
}

/* Whether a latency vGPU rides. Guests ride because a policy proposes it. */
static bool has_riders(const struct present *present)
{
	return present->riders > present->guests;
}

/* The time that riders leave to the holder of the token. */
static uint64_t left_by_riders(const struct sched *sched, const struct present *present, uint64_t ns)
{
	return ns - (has_riders(present) ? (uint64_t)(sched->riders_take * (double)ns) : 0);
}

/* A stop takes effect at an unknown time before it is reported: half of the time is an estimate. */
static uint64_t ran_part(const struct sched_vgpu *vgpu, uint64_t ns)
{
	return vgpu->is_stopping ? ns / 2 : ns;
}

static uint64_t gpu_part(const struct present *present, const struct sched_vgpu *vgpu, uint64_t ns)
{
	if (present->riders)
		return vgpu->is_rider ? ran_part(vgpu, ns) / present->riders : 0;
	return present->others ? ran_part(vgpu, ns) / present->others : 0;
}

/* Its part of the time for which vGPUs that take tokens had the GPU. The holder and those that still have to leave have equal
 * parts. The holder also has the parts of those that were stopped. */
static uint64_t token_part(const struct sched *sched, const struct present *present,
			   const struct sched_vgpu *vgpu, uint64_t ns)
{
	uint64_t part = ns / (present->leaving + 1);

	if (!present->leaving)
		return ran_part(vgpu, ns);
	if (vgpu != sched->holder)
		return ran_part(vgpu, part);
	return ns - present->stopping * (part / 2) - (present->leaving - present->stopping) * part;
}

static bool others_want_token(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	if (queue_first(sched))
		return true;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (v != vgpu && vgpu_wants(v) && vgpu_takes_token(sched, v) && !v->is_spent)
			return true;
	return false;
}

/* Of the time for which a vGPU held the token, or a guest had work, every vGPU is owed its part, less the time for which it
 * held the token itself. This includes a vGPU that is spent: its request is within its limit. */
static void owe(const struct sched *sched, struct sched_vgpu *vgpu, uint64_t ns, bool has_guests)
{
	double most = vgpu_owed_most(sched, vgpu);

	if (vgpu_wants(vgpu) && (vgpu_takes_token(sched, vgpu) || has_guests))
		vgpu->owed_ns += vgpu_request(vgpu) * sched->owed_part * (double)ns;
	vgpu->owed_ns -= (double)vgpu->charged_ns;
	if (vgpu->owed_ns > most)
		vgpu->owed_ns = most;
	if (vgpu->owed_ns < 0)
		vgpu->owed_ns = 0;
}

/* The holder is charged while it uses the token, or others want it. It is not charged for the time that riders take, nor for
 * the time until it is resumed. Returns the time of which others are owed their parts. */
static uint64_t charge_token(struct sched *sched, struct sched_vgpu *vgpu, const struct present *present,
			     uint64_t ns)
{
	bool has_it = vgpu == sched->holder || vgpu_is_draining(vgpu);

	if (!has_it || !vgpu_takes_token(sched, vgpu) || present->guests || vgpu->is_resuming)
		return 0;
	if (!vgpu_is_on(vgpu) && !others_want_token(sched, vgpu))
		return 0;
	ns = left_by_riders(sched, present, ns);
	vgpu->charged_ns = token_part(sched, present, vgpu, ns);
	vgpu->pass += (int64_t)((double)vgpu->charged_ns / vgpu_part(sched, vgpu));
	vgpu->slice_left_ns -= (int64_t)ns;
	return present->leaving ? ns : vgpu->charged_ns;
}

/* The vGPU that waiting vGPUs wait for: one that still has to leave the GPU, or the holder. */
static const struct sched_vgpu *blocker_of_waiters(const struct sched *sched)
{
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (vgpu_is_draining(v))
			return v;
	return sched->holder;
}

/* The time that a policy answers for when a vGPU waits. It does not answer for the time that riders took, for a vGPU that
 * takes much longer to leave the GPU than the grace time, or for a resume. It answers for a round at most at once: a longer
 * step means that the caller did not run (a busy or suspended host). */
static uint64_t answered_for_ns(const struct sched *sched, const struct present *present,
				const struct sched_vgpu *other, uint64_t ns)
{
	uint64_t round_ns = sched->options.round_ns;

	if (other &&
	    (other->is_resuming || (vgpu_is_draining(other) && sched->now_ns > other->drain_ns + round_ns)))
		return 0;
	ns = left_by_riders(sched, present, ns);
	return ns < round_ns ? ns : round_ns;
}

static void charge_wait(struct sched_vgpu *vgpu, const struct sched_vgpu *other, uint64_t ns,
			uint64_t policy_ns)
{
	if (!vgpu_wants(vgpu) || vgpu_is_on(vgpu) || vgpu->is_spent)
		vgpu->starves_ns = 0;
	if (!vgpu_wants(vgpu) || vgpu_is_on(vgpu))
		return;
	if (vgpu->is_spent) {
		vgpu->limited_ns += ns;
		return;
	}
	vgpu->waited_ns += ns;
	vgpu->starves_ns += policy_ns;
	if (other && other != vgpu)
		waited_note(vgpu, other, ns);
}

void vgpu_set_state(struct sched *sched, struct sched_vgpu *vgpu)
{
	enum sched_state state = vgpu->is_held	    ? SCHED_IS_HELD
				 : vgpu_is_on(vgpu) ? SCHED_IS_RUNNING
				 : vgpu_wants(vgpu) ? SCHED_IS_WAITING
						    : SCHED_IS_IDLE;

	if (state != vgpu->state) {
		vgpu->state = state;
		vgpu->since_ns = sched->now_ns;
	}
}

/* Sets sched::pass to the least pass of the vGPUs that take tokens and want the GPU. */
static void raise_pass(struct sched *sched)
{
	const struct sched_vgpu *first = queue_first(sched);
	bool is_line = first;
	int64_t least = first ? first->pass : 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if ((vgpu_wants(v) || v == sched->holder) && vgpu_takes_token(sched, v) && !v->is_spent &&
		    (!is_line || v->pass < least)) {
			is_line = true;
			least = v->pass;
		}
	if (is_line && least > sched->pass)
		sched->pass = least;
}

/* Charges the vGPUs that are parked and wait: see park.c. */
static void charge_parked(struct sched *sched, const struct sched_vgpu *other, uint64_t ns,
			  uint64_t policy_ns, uint64_t owed_ns)
{
	sched->policy_ns += policy_ns;
	sched->owed_ns += sched->owed_part * (double)owed_ns;
	if (other && ns)
		wait_log_add(sched, other, ns);
}

void sched_advance(struct sched *sched, uint64_t now_ns)
{
	uint64_t ns = now_ns > sched->now_ns ? now_ns - sched->now_ns : 0;
	struct present present = look(sched);
	uint64_t owed_ns = present.guests ? ns : 0;
	const struct sched_vgpu *other = ns ? blocker_of_waiters(sched) : NULL;
	uint64_t policy_ns;

	sched_unpark_due(sched, sched->now_ns + ns);
	sched->now_ns += ns;
	policy_ns = answered_for_ns(sched, &present, other, ns);
	if (ns && has_riders(&present))
		window_add(&sched->had_riders, sched->options.window_ns, sched->now_ns, ns);
	sched->any_held_ns += present.riders + present.others ? ns : 0;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot)) {
		v->charged_ns = 0;
		if (vgpu_has_limit(v))
			vgpu_earn(sched, v);
		if (ns && !sched->options.is_measured && vgpu_is_on(v))
			vgpu_charge(sched, v, gpu_part(&present, v, ns));
		if (ns) {
			owed_ns = bf_max(owed_ns, charge_token(sched, v, &present, ns));
			charge_wait(v, other, ns, policy_ns);
			v->held_ns += vgpu_is_on(v) ? ns : 0;
			v->alone_ns += vgpu_is_on(v) && present.riders + present.others == 1 ? ns : 0;
			v->stopped_ns += v->is_stopped ? ns : 0;
		}
		if (v->is_running || v->is_waiting)
			v->active_ns = sched->now_ns;
		vgpu_update_spent(sched, v);
		vgpu_set_state(sched, v);
	}
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v && owed_ns; v = LIST_NEXT(v, in_hot))
		owe(sched, v, owed_ns, present.guests);
	charge_parked(sched, other, ns, policy_ns, owed_ns);
	sched_park(sched);
	raise_pass(sched);
}

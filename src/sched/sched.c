/* Events, and reports. */
#include "sched/sched.h"

#include <stdlib.h>
#include <string.h>

#include "sched/state.h"

const struct sched_options sched_default = {
	.window_ns = 1000000000,
	.round_ns = 100000000,
	.slice_min_ns = 2000000,
	.grace_ns = 500000,
	.idle_ns = 1000000,
	.how = SCHED_AUTO,
};

struct sched *sched_new(const struct sched_options *options, uint64_t now_ns)
{
	struct sched *sched = calloc(1, sizeof(*sched));

	if (!sched)
		return NULL;
	sched->options = *options;
	sched->now_ns = now_ns;
	sched->is_free_for_all = options->how != SCHED_TOKENS;
	sched->extra_part = sched->owed_part = 1;
	sched->may_guests_ride = true;
	queue_init(sched);
	return sched;
}

void sched_free(struct sched *sched)
{
	if (!sched)
		return;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->all), *next; v; v = next) {
		next = LIST_NEXT(v, in_all);
		free(v);
	}
	queue_free(sched);
	free(sched->table);
	free(sched->entries);
	free(sched);
}

/* Windows of another length begin empty. */
void sched_configure(struct sched *sched, const struct sched_options *options, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	sched_unpark_all(sched);
	sched->are_turns_due = true;
	if (options->window_ns != sched->options.window_ns) {
		sched->rode = sched->had_riders = (struct window){ .number = 0 };
		for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all)) {
			memset(&v->window, 0, sizeof(v->window));
			v->window_from_ns = now_ns;
		}
	}
	sched->options = *options;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all))
		vgpu_awaken(sched, v);
	sched->elected = NULL;
	sched->settle_ns = 0;
}

static void join_domain(const struct sched *sched, struct sched_vgpu *vgpu)
{
	struct sched_vgpu *v = vgpu->share.domain ? LIST_FIRST(&sched->all) : NULL;

	vgpu->next_in_domain = vgpu;
	while (v && (v == vgpu || v->share.domain != vgpu->share.domain))
		v = LIST_NEXT(v, in_all);
	if (!v)
		return;
	vgpu->next_in_domain = v->next_in_domain;
	v->next_in_domain = vgpu;
}

static void leave_domain(struct sched_vgpu *vgpu)
{
	struct sched_vgpu *before = vgpu;

	while (before->next_in_domain != vgpu)
		before = before->next_in_domain;
	before->next_in_domain = vgpu->next_in_domain;
}

struct sched_vgpu *sched_add(struct sched *sched, const struct sched_share *share, void *owner,
			     uint64_t now_ns)
{
	struct sched_vgpu *vgpu = calloc(1, sizeof(*vgpu));

	if (!vgpu || table_reserve(sched, sched->count + 1) || queue_reserve(sched, sched->count + 1)) {
		free(vgpu);
		return NULL;
	}
	sched_advance(sched, now_ns);
	sched->count++;
	vgpu->id = ++sched->next_id;
	vgpu->tick.interleave = vgpu->tick.ride = -1;
	vgpu->share = *share;
	vgpu->owner = owner;
	vgpu->since_ns = vgpu->idle_ns = vgpu->window_from_ns = vgpu->earned_ns = now_ns;
	vgpu->pass = sched->pass;
	vgpu->interleave = -1;
	vgpu->gap_ns = sched->options.idle_ns / 8; /* not known yet: a short one is assumed */
	vgpu->sched = sched;
	LIST_INSERT_HEAD(&sched->all, vgpu, in_all);
	join_domain(sched, vgpu);
	vgpu_awaken(sched, vgpu);
	sched->promised_ppm += share->request_ppm;
	sched_update_weights(sched);
	sched->settle_ns = 0;
	return vgpu;
}

void sched_remove(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	if (sched->holder == vgpu)
		sched->holder = NULL;
	if (sched->last == vgpu)
		sched->last = NULL;
	sched->elected = NULL;
	sched->count--;
	sched->active_count -= vgpu->is_active;
	sched->are_turns_due = true;
	vgpu_put_to_sleep(sched, vgpu);
	LIST_REMOVE(vgpu, in_all);
	leave_domain(vgpu);
	wait_log_forget(sched, vgpu);
	sched->promised_ppm -= vgpu->share.request_ppm;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all))
		for (unsigned i = 0; i < OTHERS; i++)
			if (v->waited[i].other == vgpu)
				v->waited[i] = (struct sched_waited){ NULL, 0 };
	free(vgpu);
	sched_update_weights(sched);
	sched->settle_ns = 0;
}

void sched_set(struct sched *sched, struct sched_vgpu *vgpu, const struct sched_share *share, uint64_t now_ns)
{
	uint32_t limit_was_ppm = vgpu->share.limit_ppm;
	double was, now;

	sched_advance(sched, now_ns);
	vgpu_unpark(sched, vgpu);
	if (vgpu == sched->holder) /* other vGPUs may be of its domain now */
		sched_unpark_all(sched);
	sched->are_turns_due = true;
	was = vgpu_weight(sched, vgpu);
	sched->promised_ppm += share->request_ppm - vgpu->share.request_ppm;
	leave_domain(vgpu);
	vgpu->share = *share;
	join_domain(sched, vgpu);
	sched_update_weights(sched);
	/* With a greater weight its lead or lag shrinks in proportion; with a smaller one it stays. */
	now = vgpu_weight(sched, vgpu);
	if (now > was)
		vgpu->pass = sched->pass + (int64_t)((double)(vgpu->pass - sched->pass) * was / now);
	sched->elected = NULL;
	vgpu_limit_changed(sched, vgpu, limit_was_ppm);
	vgpu_awaken(sched, vgpu);
	sched->settle_ns = 0;
}

void *sched_owner(const struct sched_vgpu *vgpu)
{
	return vgpu->owner;
}

/* It begins to have work. */
static void wake(struct sched *sched, struct sched_vgpu *vgpu)
{
	uint64_t gap = sched->now_ns - vgpu->idle_ns, most = 2 * sched->options.idle_ns;

	vgpu_awaken(sched, vgpu);
	vgpu_unpark(sched, vgpu);
	if (vgpu->is_waiting || vgpu->is_running)
		return;
	if (gap > most) /* longer gaps do not change the estimate more */
		gap = most;
	vgpu->gap_ns = (7 * vgpu->gap_ns + gap) / 8;
	vgpu->active_ns = vgpu->wants_ns = sched->now_ns;
	vgpu->woke_gpu_ns = vgpu->gpu_ns;
	if (!vgpu->is_active)
		sched->settle_ns = 0;
}

void sched_set_present(struct sched *sched, struct sched_vgpu *vgpu, bool is_present, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	vgpu_unpark(sched, vgpu);
	sched->are_turns_due = true;
	vgpu->is_present = is_present;
	if (!is_present) {
		sched->active_count -= vgpu->is_active;
		vgpu->is_running = vgpu->is_waiting = vgpu->is_active = false;
		vgpu->is_stopped = vgpu->is_stopping = vgpu->is_resuming = false;
		vgpu->idle_ns = now_ns;
		vgpu->timeslice_us = 0;
		vgpu->interleave = -1;
		sched_update_line(sched);
	}
	vgpu_set_state(sched, vgpu);
	vgpu_awaken(sched, vgpu);
	sched->elected = NULL;
	sched->settle_ns = 0;
}

void sched_waits(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	wake(sched, vgpu);
	if (vgpu->is_open) /* the gate was opened meanwhile, and the work has passed */
		vgpu->is_running = true;
	else
		vgpu->is_waiting = true;
	sched_advance(sched, now_ns);
	sched->elected = NULL;
	sched->may_cut = true;
	if (vgpu->is_waiting)
		ask_enqueue(sched, vgpu);
}

void sched_runs(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	wake(sched, vgpu);
	vgpu->is_running = true;
	if (vgpu->is_held) /* the operator has let the work through */
		vgpu->is_waiting = false;
	sched_advance(sched, now_ns);
}

void sched_done(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	vgpu_unpark(sched, vgpu);
	vgpu->is_running = false;
	if (!vgpu->is_waiting) {
		vgpu->idle_ns = now_ns;
		vgpu->burst_ns = (vgpu->burst_ns * 7 + (vgpu->gpu_ns - vgpu->woke_gpu_ns)) / 8;
	}
	sched_advance(sched, now_ns);
}

void sched_stopped(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	vgpu_unpark(sched, vgpu);
	/* Otherwise its programs have ended meanwhile. */
	vgpu->is_stopped |= vgpu->is_stopping || vgpu->is_held;
	vgpu->is_stopping = false;
	sched_advance(sched, now_ns);
}

/* Its slice begins with this event, not with the order. */
void sched_resumed(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	vgpu_unpark(sched, vgpu);
	vgpu->is_stopped = vgpu->is_resuming = false;
	sched_advance(sched, now_ns);
}

void sched_hold(struct sched *sched, struct sched_vgpu *vgpu, bool is_held, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	vgpu_unpark(sched, vgpu);
	vgpu->is_held = is_held;
	vgpu->is_open = false;
	sched->elected = NULL;
	vgpu_awaken(sched, vgpu);
	sched->settle_ns = 0;
	sched_advance(sched, now_ns);
}

void sched_used(struct sched *sched, struct sched_vgpu *vgpu, uint64_t gpu_ns, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	if (vgpu_has_limit(vgpu))
		vgpu_unpark(sched, vgpu);
	vgpu_charge(sched, vgpu, gpu_ns);
	vgpu_update_spent(sched, vgpu);
	sched->may_cut = true;
}

bool sched_next(struct sched *sched, uint64_t now_ns, struct sched_order *order)
{
	sched_advance(sched, now_ns);
	sched_settle(sched);
	return sched_next_token(sched, order) || sched_next_slice(sched, order);
}

uint64_t sched_wake_ns(const struct sched *sched)
{
	uint64_t token = sched_token_wake_ns(sched);

	return sched->active_count && sched->settle_ns < token ? sched->settle_ns : token;
}

void sched_set_units(struct sched_vgpu *vgpu, unsigned units, unsigned all)
{
	vgpu->units = (uint16_t)units;
	vgpu->units_all = (uint16_t)all;
}

unsigned sched_wished_units(const struct sched_vgpu *vgpu)
{
	return vgpu->tick.units ? vgpu->tick.units : vgpu->picked_units;
}

void sched_report(const struct sched *sched, const struct sched_vgpu *vgpu, struct sched_report *report)
{
	sched_report_now(sched, vgpu, sched->now_ns, report);
}

void sched_report_now(const struct sched *sched, const struct sched_vgpu *vgpu, uint64_t now_ns,
		      struct sched_report *report)
{
	uint64_t at_ns = now_ns > sched->now_ns ? now_ns : sched->now_ns;
	uint64_t age = at_ns - vgpu->window_from_ns, window = sched->options.window_ns;
	bool is_waiting = vgpu->state == SCHED_IS_WAITING;
	double weights = 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		weights += v->is_active ? vgpu_weight(sched, v) : 0;
	*report = (struct sched_report){
		.state = vgpu->state,
		.reason = !is_waiting	   ? SCHED_NOT_WAITING
			  : vgpu->is_spent ? SCHED_FOR_LIMIT
					   : SCHED_FOR_TOKEN,
		.holder = is_waiting && !vgpu->is_spent && sched->holder != vgpu ? sched->holder : NULL,
		.since_ns = vgpu->since_ns,
		.gpu_ns = vgpu->gpu_ns,
		.held_ns = vgpu->held_ns,
		.waited_ns = vgpu_waited_ns(sched, vgpu),
		.limited_ns = vgpu_limited_ns(sched, vgpu),
		.window_ns = age < window ? age : window,
		.window_used_ns = window_used(&vgpu->window, window, at_ns),
		.grants = vgpu->grants,
		.expiries = vgpu->expiries,
		.given_back = vgpu->given_back,
		.stops = vgpu->stops,
		.stopped_ns = vgpu_stopped_ns(sched, vgpu),
		.weight_ppm = vgpu->is_active && weights > 0
				      ? (uint32_t)(vgpu_weight(sched, vgpu) / weights * SCHED_WHOLE_PPM)
				      : 0,
		.is_rider = vgpu->is_rider,
		.is_over_ride = vgpu->is_over_ride,
		.slice_ns = vgpu->slice_ns,
		.samples = vgpu->samples,
		.missed = vgpu->missed,
		.p50_ns = vgpu_percentile(vgpu, 500000),
		.tail_ns = vgpu_tail(vgpu),
		.timeslice_us = vgpu->timeslice_us,
		.interleave = vgpu->interleave,
		.owed_ns = (int64_t)vgpu_owed_ns(sched, vgpu),
		.sm_ppm = busy_ppm(vgpu, vgpu->sm),
		.mem_ppm = busy_ppm(vgpu, vgpu->mem),
	};
}

struct sched_counts sched_counts(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return (struct sched_counts){ .gpu_ns = vgpu->gpu_ns,
				      .held_ns = vgpu->held_ns,
				      .alone_ns = vgpu->alone_ns,
				      .any_held_ns = sched->any_held_ns,
				      .limited_ns = vgpu->limited_ns,
				      .grants = vgpu->grants,
				      .stops = vgpu->stops };
}

enum sched_sharing sched_sharing(const struct sched *sched)
{
	unsigned active = 0, takers = 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake)) {
		active += v->is_active;
		takers += v->is_active && vgpu_takes_token(sched, v);
	}
	if (takers > 1)
		return SCHED_SHARING_TOKENS;
	return active > 1 ? SCHED_SHARING_TURNS : SCHED_SHARING_OPEN;
}

uint64_t sched_handovers(const struct sched *sched)
{
	return sched->handovers;
}

/* Which vGPUs a step of sched_advance() looks at. Most vGPUs that are awake only wait for the token, or have no
 * work. Such a vGPU is parked. A step does not look at it: the step adds to counters that are the same for all parked vGPUs, and
 * the vGPU is charged the difference when an event concerns it. While a vGPU is parked
 *  - it is neither on the GPU nor on the way there, and no order is due for it;
 *  - it takes tokens, or it does not want the GPU;
 *  - if it is spent, it stays spent until sched_unpark_due(); if not, it does not become so, as it uses no GPU time;
 *  - it does not hold the token, and may not use it together with the holder. */
#include "sched/state.h"

/* `hot` has the order of `awake`, in which orders are given. The search begins after `before`, which may be NULL. */
static void insert_hot(struct sched *sched, struct sched_vgpu *vgpu, struct sched_vgpu *before)
{
	struct sched_vgpu *at = before ? LIST_NEXT(before, in_hot) : LIST_FIRST(&sched->hot);

	for (; at && at->awake_number > vgpu->awake_number; at = LIST_NEXT(at, in_hot))
		before = at;
	if (before)
		LIST_INSERT_AFTER(before, vgpu, in_hot);
	else
		LIST_INSERT_HEAD(&sched->hot, vgpu, in_hot);
	vgpu->attention = VGPU_HOT;
}

void vgpu_awaken(struct sched *sched, struct sched_vgpu *vgpu)
{
	if (vgpu->attention != VGPU_ASLEEP)
		return;
	vgpu->awake_number = ++sched->awake_count;
	LIST_INSERT_HEAD(&sched->awake, vgpu, in_awake);
	insert_hot(sched, vgpu, NULL);
	sched->are_turns_due = true;
}

void vgpu_put_to_sleep(struct sched *sched, struct sched_vgpu *vgpu)
{
	if (vgpu->attention == VGPU_ASLEEP)
		return;
	vgpu_unpark(sched, vgpu);
	LIST_REMOVE(vgpu, in_hot);
	LIST_REMOVE(vgpu, in_awake);
	vgpu->attention = VGPU_ASLEEP;
}

uint64_t vgpu_waited_ns(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return vgpu->waited_ns + (vgpu_is_parked_waiter(vgpu) ? sched->now_ns - vgpu->parked_ns : 0);
}

uint64_t vgpu_limited_ns(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	bool was_limited = vgpu->attention == VGPU_PARKED && vgpu_wants(vgpu) && vgpu->is_spent;

	return vgpu->limited_ns + (was_limited ? sched->now_ns - vgpu->parked_ns : 0);
}

uint64_t vgpu_stopped_ns(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	bool has_been_stopped = vgpu->attention == VGPU_PARKED && vgpu->is_stopped;

	return vgpu->stopped_ns + (has_been_stopped ? sched->now_ns - vgpu->parked_ns : 0);
}

double vgpu_owed_ns(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	double of_ns = vgpu->attention == VGPU_PARKED ? sched->owed_ns - vgpu->parked_owed_ns : 0;
	double owed_ns = vgpu->owed_ns, most = vgpu_owed_most(sched, vgpu);

	if (of_ns <= 0)
		return owed_ns;
	if (vgpu_wants(vgpu))
		owed_ns += vgpu_request(vgpu) * of_ns;
	return owed_ns < most ? owed_ns : most;
}

/* The vGPU is charged for what the counters grow by from now on. */
static void mark(const struct sched *sched, struct sched_vgpu *vgpu)
{
	vgpu->parked_ns = sched->now_ns;
	vgpu->parked_policy_ns = sched->policy_ns;
	vgpu->parked_owed_ns = sched->owed_ns;
}

void vgpu_catch_up(struct sched *sched, struct sched_vgpu *vgpu)
{
	if (vgpu->attention != VGPU_PARKED)
		return;
	if (vgpu->is_running || vgpu->is_waiting)
		vgpu->active_ns = sched->now_ns;
	if (vgpu_has_limit(vgpu))
		vgpu_earn(sched, vgpu);
	if (vgpu_is_parked_waiter(vgpu))
		vgpu->starves_ns += sched->policy_ns - vgpu->parked_policy_ns;
	else if (sched->now_ns > vgpu->parked_ns)
		vgpu->starves_ns = 0;
	vgpu->waited_ns = vgpu_waited_ns(sched, vgpu);
	vgpu->limited_ns = vgpu_limited_ns(sched, vgpu);
	vgpu->stopped_ns = vgpu_stopped_ns(sched, vgpu);
	vgpu->owed_ns = vgpu_owed_ns(sched, vgpu);
	mark(sched, vgpu);
}

/* Charges the vGPU, and takes it out of the queues. */
static void finish(struct sched *sched, struct sched_vgpu *vgpu)
{
	vgpu_catch_up(sched, vgpu);
	if (vgpu_is_parked_waiter(vgpu))
		wait_log_replay(sched, vgpu);
	queue_remove(sched, vgpu);
}

void vgpu_unpark(struct sched *sched, struct sched_vgpu *vgpu)
{
	if (vgpu->attention != VGPU_PARKED)
		return;
	finish(sched, vgpu);
	insert_hot(sched, vgpu, NULL);
}

void sched_unpark_all(struct sched *sched)
{
	struct sched_vgpu *before = NULL;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake)) {
		if (v->attention == VGPU_PARKED) {
			finish(sched, v);
			insert_hot(sched, v, before);
		}
		before = v;
	}
}

void sched_unpark_due(struct sched *sched, uint64_t now_ns)
{
	while (queue_unspent_ns(sched) <= now_ns)
		vgpu_unpark(sched, queue_first_spent(sched));
}

static bool may_park(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	bool wants = vgpu_wants(vgpu);

	if (vgpu == sched->holder || vgpu->is_stopping || vgpu->is_resuming || vgpu_is_on(vgpu))
		return false;
	if (wants && (!vgpu_takes_token(sched, vgpu) || vgpu_is_with_holder(sched, vgpu)))
		return false;
	return vgpu->is_open == vgpu_belongs_open(sched, vgpu);
}

static void park(struct sched *sched, struct sched_vgpu *vgpu)
{
	LIST_REMOVE(vgpu, in_hot);
	vgpu->attention = VGPU_PARKED;
	mark(sched, vgpu);
	vgpu->wait_mark = wait_log_mark(sched);
	queue_add(sched, vgpu);
}

void sched_park(struct sched *sched)
{
	struct sched_vgpu *v, *next;

	for (v = LIST_FIRST(&sched->hot); v; v = next) {
		next = LIST_NEXT(v, in_hot);
		if (may_park(sched, v))
			park(sched, v);
	}
}

/* Holders that do not give back units that another vGPU waits for. Their library may be stopped or have been tampered with,
 * so the gate is closed, which a program with a lease cannot avoid. When the work that had passed the gate has ended, the
 * units are free. */
#include <stdio.h>

#include "base/log.h"
#include "base/number.h"
#include "gpu/lease.h"

/* While units are waited for, looks are not further apart. */
enum { LOOK_MOST_MS = 25 };

/* The process may answer at any time, so each look asks once. */
static const struct lease *late_lease(const struct lease_holder *holder)
{
	struct lease *l;

	LIST_FOREACH(l, &holder->leases, next)
		if (!lease_has_answered(l))
			return l;
	return NULL;
}

/* What it has launched before may wait behind the closed gate, so it cannot give back its units there. It is enough that its
 * work on the GPU has ended, and that what it launches from now on is on the right units. */
static bool may_open(const struct lease_holder *holder)
{
	struct lease *l;

	LIST_FOREACH(l, &holder->leases, next)
		if (!lease_has_seen(l) || (!lease_has_answered(l) && !holder->has_ended_work))
			return false;
	return true;
}

/* Its work cannot end while another vGPU has the token. That it has used up its own limit is no excuse. */
static bool could_answer(const struct lease_holder *holder)
{
	const struct vgpu *vgpu = holder->vgpu;
	struct sched_report report;

	if (gate_is_open(warden_gate(vgpu->warden)))
		return true;
	sched_report(vgpu->gpu->sched, vgpu->sched, &report);
	return report.reason == SCHED_FOR_LIMIT;
}

static void count_time(struct lease_holder *holder, const struct lease *late, uint64_t passed_ns)
{
	if (!lease_is_behind(holder) || !late) {
		holder->behind_ns = 0;
		holder->trials = 0;
	} else if (could_answer(holder)) {
		holder->behind_ns += passed_ns;
	}
}

static void close_gate(struct lease_holder *holder, const struct lease *late, uint64_t now_ns)
{
	struct vgpu *vgpu = holder->vgpu;
	char text[128];

	snprintf(text, sizeof(text),
		 "process %d has not given back SMs for %d ms; its gate is closed until it has", late->pid,
		 LEASE_ANSWER_MS);
	bf_log(BF_LOG_WARN, "%s: %s", vgpu->name, text);
	holder->closed_ns = now_ns;
	holder->former = holder->used;
	holder->has_ended_work = false;
	vgpu_hold_lease(vgpu, true);
	event_lease(vgpu, text);
}

static void open_gate(struct lease_holder *holder)
{
	holder->closed_ns = holder->behind_ns = 0;
	holder->trials = 0;
	holder->awake_ns = bf_now_ns();
	vgpu_hold_lease(holder->vgpu, false);
	event_lease(holder->vgpu, "it has given back SMs; its gate is open");
}

/* A process that runs again may need the GPU before it can answer, for example to make a partition. So if work waits behind
 * the gate, the gate is opened on trial, less and less often. What runs then may use the former units. */
static bool is_trial_due(const struct lease_holder *holder, uint64_t now_ns)
{
	uint64_t closed_ms = (uint64_t)LEASE_ANSWER_MS << bf_min(holder->trials, (unsigned)LEASE_TRIALS_MOST);

	return holder->has_ended_work && holder->vgpu->order == VGPU_HELD &&
	       now_ns > holder->closed_ns + closed_ms * LEASE_MS_NS &&
	       gate_vgpu_counts(warden_gate(holder->vgpu->warden)).waiting_since_ns;
}

static void open_on_trial(struct lease_holder *holder)
{
	bf_log(BF_LOG_INFO, "%s: its gate is opened on trial", holder->vgpu->name);
	holder->closed_ns = holder->behind_ns = 0;
	holder->has_ended_work = false;
	holder->trials++;
	holder->used |= holder->former;
	vgpu_hold_lease(holder->vgpu, false);
}

/* Without the lock, because this takes a while. */
static bool has_ended_work(struct vgpu *vgpu)
{
	enum warden_progress progress;

	vgpu_pin(vgpu);
	gpu_unlock(vgpu->gpu);
	progress = warden_progress(vgpu->warden);
	gpu_lock(vgpu->gpu);
	vgpu_unpin(vgpu);
	return progress == WARDEN_IS_DONE;
}

/* Whether the work of a vGPU whose gate is closed, by the operator or by close_gate(), has ended. Work that waits behind the gate
 * does not run. */
static void look_behind_gate(struct lease_holder *holder)
{
	struct vgpu *vgpu = holder->vgpu;
	bool had_ended = holder->has_ended_work;

	if (vgpu->order == VGPU_FREE)
		holder->has_ended_work = false;
	else if (vgpu->order == VGPU_STOPPED)
		holder->has_ended_work = true;
	else if (!had_ended && (holder->closed_ns || holder->used != holder->units))
		holder->has_ended_work = has_ended_work(vgpu);
	holder->domain->is_changed |= holder->has_ended_work != had_ended; /* settle again at once */
}

static struct run *run_of(const struct vgpu *vgpu, uint32_t number)
{
	for (struct run *r = vgpu->runs; r; r = r->next)
		if (r->number == number)
			return r;
	return NULL;
}

/* Returns whether there was such a run. */
static bool end_late_run(const struct lease_holder *holder, const struct lease *late)
{
	struct run *run = late ? run_of(holder->vgpu, late->run) : NULL;
	char why[192];

	if (!run)
		return false;
	snprintf(why, sizeof(why),
		 "process %d kept SMs that another vGPU of its domain waits for, and its kernels did not end "
		 "within %d s",
		 late->pid, (LEASE_ANSWER_MS + LEASE_END_MS) / 1000);
	bf_log(BF_LOG_ERROR, "%s: %s; its run is ended", holder->vgpu->name, why);
	run_end(run, why);
	return true;
}

bool lease_look_late(struct lease_domain *domain, uint64_t now_ns)
{
	struct lease_holder *h, *after;

	LIST_FOREACH_SAFE(h, &domain->holders, next, after) {
		const struct lease *late;

		if (!h->vgpu->warden)
			continue;
		look_behind_gate(h);
		late = late_lease(h);
		if (h->closed_ns && may_open(h)) {
			open_gate(h);
		} else if (h->closed_ns && is_trial_due(h, now_ns)) {
			open_on_trial(h);
		} else if (!h->closed_ns) {
			count_time(h, late, bf_min(now_ns - domain->looked_ns, LOOK_MOST_MS * LEASE_MS_NS));
			if (h->behind_ns > LEASE_ANSWER_MS * LEASE_MS_NS)
				close_gate(h, late, now_ns);
		} else if (!h->has_ended_work && now_ns > h->closed_ns + LEASE_END_MS * LEASE_MS_NS) {
			if (end_late_run(h, late))
				return false;
		}
	}
	return true;
}

/* Divides the units of a domain, and brings its processes from the units that they have to those that they get: a unit goes
 * to another vGPU only after the one that has it has given it back. There is no plan that is carried out step by step: each
 * look compares what is with what should be, so a later division replaces an earlier one at any point. */
#include <stdlib.h>

#include "base/number.h"
#include "base/own.h"
#include "gpu/lease.h"

static void read_holder(struct lease_holder *holder)
{
	struct lease *l;

	holder->is_fixed = true;
	LIST_FOREACH(l, &holder->leases, next) {
		lease_read(l);
		holder->is_fixed &= l->is_fixed;
	}
}

static bool has_answered(const struct lease_holder *holder)
{
	struct lease *l;

	LIST_FOREACH(l, &holder->leases, next)
		if (!lease_has_answered(l))
			return false;
	return true;
}

/* When the vGPU last had work, as far as is known. */
static uint64_t last_work_ns(const struct vgpu *vgpu, uint64_t now_ns)
{
	if (!vgpu->warden)
		return 0;
	if (vgpu->is_told_running || vgpu->is_told_waiting)
		return now_ns;
	return gate_vgpu_counts(warden_gate(vgpu->warden)).last_forward_ns;
}

/* The turner holds the lock when it finds work of an idle vGPU, so it sees is_lease_idle or this sees the work. A vGPU whose
 * first process waits for its page is about to work. */
static void note_activity(struct lease_holder *holder, uint64_t now_ns)
{
	bool was_active = holder->is_active, is_free = holder->vgpu->order == VGPU_FREE;
	uint64_t idle_ns = (holder->wish ? LEASE_WISHED_MS : LEASE_ACTIVE_MS) * LEASE_MS_NS;

	if (is_free)
		holder->awake_ns = bf_max(holder->awake_ns, last_work_ns(holder->vgpu, now_ns));
	holder->is_active = is_free && (!holder->units || holder->awake_ns + idle_ns > now_ns);
	holder->vgpu->is_lease_idle = !holder->is_active;
	holder->domain->is_changed |= holder->is_active != was_active;
}

/* Policies know what it has, and may propose what it gets. */
static void note_wish(struct lease_holder *holder)
{
	const struct lease_domain *domain = holder->domain;
	unsigned wish = sched_wished_units(holder->vgpu->sched);

	sched_set_units(holder->vgpu->sched, lease_count(domain, holder->units), domain->unit_count);
	holder->domain->is_changed |= wish != holder->wish;
	holder->wish = wish;
}

static void look_at_holders(struct lease_domain *domain, uint64_t now_ns)
{
	struct lease_holder *h;

	LIST_FOREACH(h, &domain->holders, next) {
		bool was_fixed = h->is_fixed;

		read_holder(h);
		if (was_fixed && !h->is_fixed) { /* with a new process: it has no unit yet */
			h->units = h->used = 0;
			h->joined_ns = now_ns;
			domain->is_changed = true;
		}
		note_activity(h, now_ns);
		note_wish(h);
		if (h->is_fixed)
			h->used = 0; /* its SMs are all of them, and it gives none back */
		else if (h->has_ended_work || has_answered(h))
			h->used = h->units;
	}
	if (domain->unit_count && !domain->reporter)
		lease_forget_units(domain);
}

static size_t fill_parts(const struct lease_domain *domain, struct divide_part *parts)
{
	struct lease_holder *h;
	size_t count = 0;

	LIST_FOREACH(h, &domain->holders, next)
		if (!h->is_fixed)
			parts[count++] =
				(struct divide_part){ .request_ppm = h->vgpu->spec.sm_request_ppm,
						      .limit_ppm = spec_has_sm(&h->vgpu->spec)
									   ? h->vgpu->spec.sm_limit_ppm
									   : SPEC_WHOLE_PPM,
						      .wish = h->wish,
						      .is_active = h->is_active,
						      .before = h->units };
	return count;
}

/* Until the units are known, all programs use all SMs, as without leases. */
static void divide_units(struct lease_domain *domain)
{
	cleanup_free struct divide_part *parts = NULL;
	struct lease_holder *h;
	size_t count = 0, at = 0;

	LIST_FOREACH(h, &domain->holders, next)
		count++;
	parts = domain->unit_count ? calloc(count + 1, sizeof(*parts)) : NULL;
	if (parts)
		divide(parts, fill_parts(domain, parts), domain->unit_count);
	LIST_FOREACH(h, &domain->holders, next) {
		h->target = parts && !h->is_fixed ? parts[at++].after : lease_all(domain);
		if (h->is_fixed)
			h->units = h->target; /* whatever its pages say */
	}
	domain->is_changed = false;
}

/* Units that others still have to give back. Those that they keep are shared on purpose. */
static uint64_t not_given_back(const struct lease_holder *holder)
{
	struct lease_holder *h;
	uint64_t units = 0;

	LIST_FOREACH(h, &holder->domain->holders, next)
		if (h != holder)
			units |= h->used & ~h->target;
	return units;
}

static void publish(struct lease_holder *holder, uint64_t units)
{
	struct lease *l;

	holder->units = units;
	holder->used |= units;
	LIST_FOREACH(l, &holder->leases, next)
		lease_publish(l);
}

/* A process that has come to a vGPU with units gets its page at once. */
static void send_pages(struct lease_holder *holder)
{
	struct lease *l;

	LIST_FOREACH(l, &holder->leases, next)
		if (l->file >= 0)
			lease_publish(l);
}

/* What it may have now. It never has no unit, which would mean all SMs: until one is free it keeps those that it has. If it has
 * none it waits for its page for a limited time, and then shares one unit with the kernels that still run there. */
static uint64_t next_units(const struct lease_holder *holder, uint64_t now_ns)
{
	uint64_t next = holder->target & (holder->units | ~not_given_back(holder));

	if (next || holder->units)
		return next ? next : holder->units;
	return now_ns >= holder->joined_ns + LEASE_JOIN_MS * LEASE_MS_NS ? holder->target & -holder->target
									 : 0;
}

/* Two vGPUs that are to exchange their only units wait for each other. One of them goes first, and they share a while. */
static void break_circle(struct lease_domain *domain)
{
	struct lease_holder *h, *first = NULL;

	LIST_FOREACH(h, &domain->holders, next) {
		if (h->used != h->units && !h->is_fixed)
			return;
		if (h->units && h->units != h->target)
			first = h;
	}
	if (first)
		publish(first, first->target);
}

bool lease_is_behind(const struct lease_holder *holder)
{
	uint64_t kept = holder->used & ~holder->units;
	struct lease_holder *h;

	LIST_FOREACH(h, &holder->domain->holders, next)
		if (h != holder && !h->is_fixed && !holder->is_fixed && h->target & kept)
			return true;
	return false;
}

/* Returns whether all holders have the units that they are to have. */
static bool move_units(struct lease_domain *domain, uint64_t now_ns)
{
	bool is_settled = true, has_moved = false;
	struct lease_holder *h;

	LIST_FOREACH(h, &domain->holders, next) {
		uint64_t next = next_units(h, now_ns);

		if (next && next != h->units) {
			publish(h, next);
			has_moved = true;
		} else if (h->units) {
			send_pages(h);
		}
		is_settled &= h->units == h->target && !lease_is_behind(h);
	}
	if (!is_settled && !has_moved)
		break_circle(domain);
	return is_settled;
}

void lease_settle(struct lease_domain *domain, uint64_t now_ns)
{
	look_at_holders(domain, now_ns);
	if (domain->is_changed)
		divide_units(domain);
	if (move_units(domain, now_ns))
		domain->unsettled_ns = 0;
	else if (!domain->unsettled_ns)
		domain->unsettled_ns = now_ns;
}

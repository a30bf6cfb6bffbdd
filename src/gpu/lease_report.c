/* What the leases of a vGPU are, for reports and for explain. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/own.h"
#include "gpu/lease.h"

/* The last unit has the SMs that remain. */
static unsigned sms_of(const struct lease_domain *domain, uint64_t units)
{
	unsigned count = (unsigned)__builtin_popcountll(units);

	if (!domain->unit_count)
		return 0;
	return units >> (domain->unit_count - 1) & 1 ? (count - 1) * domain->unit_sms + domain->last_unit_sms
						     : count * domain->unit_sms;
}

/* The vGPU that has not given back what this one is to get. */
static const struct lease_holder *awaited(const struct lease_holder *holder)
{
	uint64_t lacks = holder->target & ~holder->units;
	const struct lease_holder *h;

	LIST_FOREACH(h, &holder->domain->holders, next)
		if (h != holder && lacks & h->used & ~h->target)
			return h;
	return NULL;
}

struct json_object *lease_json(const struct vgpu *vgpu)
{
	const struct lease_holder *holder = vgpu->lease, *other = holder ? awaited(holder) : NULL;
	const struct lease_domain *domain = holder ? holder->domain : NULL;
	struct json_object *to;
	char mask[24];

	if (!holder)
		return NULL;
	to = json_object_new_object();
	snprintf(mask, sizeof(mask), "0x%" PRIx64, domain->unit_count ? holder->units : 0);
	json_add_number(to, "processes", holder->count);
	json_add_number(to, "units", lease_count(domain, holder->units));
	json_add_number(to, "wanted", lease_count(domain, holder->target));
	json_add_number(to, "unit_count", domain->unit_count);
	json_add_text(to, "mask", mask);
	json_add_number(to, "sms", sms_of(domain, holder->units));
	json_add_bool(to, "active", holder->is_active);
	json_add_bool(to, "fixed", holder->is_fixed);
	json_add_bool(to, "late", holder->closed_ns != 0);
	json_add_text(to, "waits_for", other ? other->vgpu->name : NULL);
	return to;
}

static bool has_lease(const struct vgpu *vgpu, pid_t pid)
{
	const struct lease *l;

	if (vgpu->lease)
		LIST_FOREACH(l, &vgpu->lease->leases, next)
			if (l->pid == pid)
				return true;
	return false;
}

/* The library was left out (belfry run --no-lease), or the program does not use it. A process without memory on the GPU has no
 * context yet. */
static void say_without(FILE *to, const struct vgpu *vgpu)
{
	cleanup_free struct warden_report *report = calloc(1, sizeof(*report));
	unsigned without = 0;

	if (!report || !vgpu->warden || !vgpu_is_shared(vgpu))
		return;
	gpu_unlock(vgpu->gpu); /* it may wait for a driver call */
	warden_report(vgpu->warden, report);
	gpu_lock(vgpu->gpu);
	for (uint32_t i = 0; i < report->processes && i < WARDEN_REPORT_PROCESSES; i++)
		without += report->process[i].used_bytes && !has_lease(vgpu, report->process[i].pid);
	if (without)
		fprintf(to, "%u of its processes %s no lease, and use%s all SMs (belfry run --no-lease).\n",
			without, without == 1 ? "has" : "have", without == 1 ? "s" : "");
}

void lease_say(FILE *to, const struct vgpu *vgpu)
{
	const struct lease_holder *holder = vgpu->lease, *other = holder ? awaited(holder) : NULL;
	const struct lease_domain *domain = holder ? holder->domain : NULL;

	say_without(to, vgpu);
	if (!holder || !domain->unit_count)
		return;
	if (holder->is_fixed)
		fprintf(to, "Its programs use all SMs: they do not follow their leases.\n");
	else
		fprintf(to, "Its programs may use %u of %u units of SMs, which have %u of %u SMs.\n",
			lease_count(domain, holder->units), domain->unit_count, sms_of(domain, holder->units),
			sms_of(domain, lease_all(domain)));
	if (other)
		fprintf(to, "It is to have %u units, and waits until %s has given them back.\n",
			lease_count(domain, holder->target), other->vgpu->name);
	if (vgpu->lease_fell_back)
		fprintf(to, "%" PRIu64 " launches ran on all SMs because they did not fit on its units.\n",
			vgpu->lease_fell_back);
}

void lease_say_hold(FILE *to, const struct vgpu *vgpu)
{
	const struct lease_holder *holder = vgpu->lease;
	struct lease *l;

	if (!holder)
		return;
	LIST_FOREACH(l, &holder->leases, next)
		if (!lease_has_answered(l)) {
			fprintf(to,
				"Its gate is closed, since %.1f s: process %d has not given back SMs that another vGPU "
				"waits for.\n",
				(double)(bf_now_ns() - holder->closed_ns) / 1e9, l->pid);
			return;
		}
	fprintf(to, "Its gate is about to be opened: its SMs are given back.\n");
}

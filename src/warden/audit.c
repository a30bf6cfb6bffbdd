/* The ledger against the driver's own figure. Every call that makes memory is made by us, so that the two agree; if they
 * ever do not, something got past us. */
#include <stdio.h>
#include <string.h>

#include "warden/state.h"

/* More than one look: a call of the program's may be under way between the driver's count and ours. */
enum { SURPLUS_LOOKS = 2 };

static void end_all(struct warden *warden, uint64_t found, uint64_t known)
{
	char why[256];

	snprintf(why, sizeof(why), "the vGPU holds %llu bytes of device memory but was given %llu",
		 (unsigned long long)found, (unsigned long long)known);
	for (struct process *p = warden->processes; p; p = p->next)
		process_end(p, why);
}

static void audit(struct warden *warden)
{
	uint64_t known, found;

	if (!warden->clients)
		return;
	warden_look_for_faults(warden);
	known = warden_named_bytes(warden);
	found = warden_driver_bytes(warden);
	if (found <= known)
		warden->surplus_seen = 0;
	else if (++warden->surplus_seen >= SURPLUS_LOOKS)
		end_all(warden, found, known);
}

void warden_audit(struct warden *warden)
{
	warden_audit_managed(warden);
	pthread_mutex_lock(&warden->lock);
	audit(warden);
	pthread_mutex_unlock(&warden->lock);
}

static enum warden_gate gate_of(struct warden *warden)
{
	enum warden_gate gate;

	pthread_mutex_lock(&warden->turn_lock);
	gate = warden->is_stopped ? WARDEN_STOPPED : warden->is_held ? WARDEN_HELD : WARDEN_OPEN;
	pthread_mutex_unlock(&warden->turn_lock);
	return gate;
}

static void report_gate(struct warden *warden, struct warden_report *report)
{
	struct gate_vgpu_counts own = gate_vgpu_counts(warden->gate_vgpu);
	struct gate_counts all = gate_counts(warden->gate);

	report->gate = gate_of(warden);
	report->rings = own.rings;
	report->forwards = own.forwards;
	report->strange = all.strange;
	report->swept = all.swept;
	report->gate_cpu_ns = gate_cpu_ns(warden->gate);
}

void warden_report(struct warden *warden, struct warden_report *report)
{
	memset(report, 0, sizeof(*report));
	pthread_mutex_lock(&warden->lock);
	for (struct process *p = warden->processes; p; p = p->next) {
		if (report->processes < WARDEN_REPORT_PROCESSES) {
			report->process[report->processes].pid = p->pid;
			report->process[report->processes].used_bytes = process_named_bytes(p);
		}
		report->processes++;
	}
	report->mem_named_bytes = warden_named_bytes(warden);
	report->mem_driver_bytes = warden_driver_bytes(warden);
	report->mem_limit_bytes = ledger_limit(warden->ledger);
	report->mem_used_bytes = ledger_used(warden->ledger);
	report->mem_most_bytes = ledger_most_used(warden->ledger);
	report->mem_managed_bytes = ledger_managed(warden->ledger);
	report->timeslice_us = warden->options.timeslice_us;
	report->interleave = warden->options.interleave;
	report->channels = warden->channels;
	report->calls = warden->calls;
	report->refusals = warden->refusals;
	report->continued = warden->continued;
	report->unknown = warden->unknown;
	memcpy(report->unknowns, warden->unknowns, sizeof(report->unknowns));
	report_gate(warden, report);
	pthread_mutex_unlock(&warden->lock);
}

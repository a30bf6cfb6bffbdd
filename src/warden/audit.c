/* Trust, and check: the ledger against the driver's own figures. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "warden/state.h"

/* More than one look: a call of the program's may be under way between the driver's count and ours. */
enum { SURPLUS_LOOKS = 2 };
/* Reading the maps of every process is not cheap: only every so many audits. */
enum { MANAGED_EVERY = 4 };

static void audit(struct warden *warden)
{
	char why[256];

	roots_audit(warden);
	if (!warden->clients)
		return;
	warden_look_for_faults(warden);
	warden_reconcile(warden);
	if (++warden->audits % MANAGED_EVERY == 0)
		warden_audit_managed(warden);
	for (struct process *p = warden->processes; p; p = p->next) {
		uint64_t known = warden_ledger_sum(warden, p->pid).named_bytes;
		uint64_t found = warden_driver_bytes(warden, p->pid);

		if (found <= known) {
			p->surplus_seen = 0;
			continue;
		}
		bf_log(BF_LOG_DEBUG, "process %d: the driver counts %llu bytes, the ledger %llu", p->pid,
		       (unsigned long long)found, (unsigned long long)known);
		if (++p->surplus_seen < SURPLUS_LOOKS)
			continue;
		snprintf(why, sizeof(why), "it holds %llu bytes of device memory but was given %llu",
			 (unsigned long long)found, (unsigned long long)known);
		process_end(p, why);
	}
}

void warden_audit(struct warden *warden)
{
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
	warden_reconcile(warden);
	for (struct process *p = warden->processes; p; p = p->next) {
		uint64_t driver = warden_driver_bytes(warden, p->pid);

		report->mem_driver_bytes += driver;
		if (report->processes < WARDEN_REPORT_PROCESSES) {
			report->process[report->processes].pid = p->pid;
			report->process[report->processes].used_bytes =
				warden_ledger_sum(warden, p->pid).named_bytes;
			report->process[report->processes].driver_bytes = driver;
		}
		report->processes++;
	}
	report->mem_limit_bytes = ledger_limit(warden->ledger);
	report->mem_used_bytes = ledger_used(warden->ledger);
	report->mem_most_bytes = ledger_most_used(warden->ledger);
	report->mem_managed_bytes = ledger_managed(warden->ledger);
	report->timeslice_us = warden->options.timeslice_us;
	report->interleave = warden->options.interleave;
	report->channels = warden->channels;
	report->calls = warden->calls;
	report->refusals = warden->refusals;
	report_gate(warden, report);
	pthread_mutex_unlock(&warden->lock);
}

/* The figures of a vGPU for the GPU server: memory, processes, calls, gate. */
#include <string.h>

#include "warden/state.h"

static void report_gate(struct warden *warden, struct warden_report *report)
{
	struct gate_vgpu_counts own = gate_vgpu_counts(warden->gate_vgpu);
	struct gate_counts all = gate_counts(warden->gate);

	report->gate = gate_state(warden->gate_vgpu);
	report->rings = own.rings;
	report->forwards = own.forwards;
	report->strange = all.strange;
	report->swept = all.found_unrung;
	report->gate_cpu_ns = gate_cpu_ns(warden->gate);
}

void warden_report(struct warden *warden, struct warden_report *report)
{
	memset(report, 0, sizeof(*report));
	pthread_mutex_lock(&warden->lock);
	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next)) {
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

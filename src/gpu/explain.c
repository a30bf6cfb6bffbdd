/* Explains why a vGPU waits, or what it does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "gpu/policy.h"

static const char *format_ns(uint64_t ns, char *to, size_t room)
{
	if (ns >= 10000000000ull)
		snprintf(to, room, "%.1f s", (double)ns / 1e9);
	else if (ns >= 10000000)
		snprintf(to, room, "%.0f ms", (double)ns / 1e6);
	else
		snprintf(to, room, "%.2f ms", (double)ns / 1e6);
	return to;
}

static const char *name_of(const struct sched_vgpu *vgpu)
{
	return ((const struct vgpu *)sched_owner(vgpu))->name;
}

static void say_now(FILE *to, const struct vgpu *vgpu, const struct sched_report *report)
{
	char since[32];

	format_ns(bf_now_ns() - report->since_ns, since, sizeof(since));
	if (!vgpu->runs) {
		fprintf(to, "No program runs on it.\n");
	} else if (vgpu->order == VGPU_STOPPED) {
		fprintf(to, "It was stopped by belfry stop; belfry resume %s resumes it.\n", vgpu->name);
		if (vgpu->holds & VGPU_HOLD_OPERATOR)
			fprintf(to, "Its gate was also closed by belfry hold; belfry open %s ends both.\n",
				vgpu->name);
	} else if (vgpu->order == VGPU_HELD && !(vgpu->holds & VGPU_HOLD_OPERATOR)) {
		lease_say_hold(to, vgpu);
	} else if (vgpu->order == VGPU_HELD) {
		fprintf(to, "Its gate was closed by belfry hold; belfry open %s opens it.\n", vgpu->name);
	} else if (report->state == SCHED_IS_IDLE) {
		fprintf(to, "Its programs have given the GPU nothing to do for %s.\n", since);
	} else if (report->state == SCHED_IS_RUNNING) {
		fprintf(to, "It has been running for %s.\n", since);
	} else if (report->reason == SCHED_FOR_LIMIT) {
		fprintf(to,
			"It waits for its own limit, since %s: it has had the %.4g %% of the GPU's time that it may have.\n",
			since, vgpu->spec.limit_ppm / 1e4);
	} else if (report->holder) {
		fprintf(to, "It waits for the token, since %s: %s has it.\n", since, name_of(report->holder));
	} else {
		fprintf(to, "It waits for the token, since %s: it is about to change hands.\n", since);
	}
}

static void say_share(FILE *to, const struct vgpu *vgpu, const struct sched_report *report)
{
	double share = report->window_ns ? 100.0 * (double)report->window_used_ns / (double)report->window_ns
					 : 0;
	char window[32], time[32], slice[32];

	fprintf(to, "Of the last %s it had %.1f %% of the GPU; its time is %s (request:limit).\n",
		format_ns(report->window_ns, window, sizeof(window)), share,
		spec_format_time(&vgpu->spec, time, sizeof(time)));
	if (report->weight_ppm)
		fprintf(to, "Its part among the vGPUs that have work now is %.1f %%.\n",
			report->weight_ppm / 1e4);
	if (report->is_rider)
		fprintf(to, "As a latency vGPU it rides: its gate stays open, and its turn comes at once.\n");
	else if (report->is_over_ride)
		fprintf(to, "It is a latency vGPU, but with its use the others would not get their requested "
			    "shares: it takes tokens until it uses less.\n");
	else if (report->grants)
		fprintf(to, "Its slice is %s.\n", format_ns(report->slice_ns, slice, sizeof(slice)));
}

static void say_past(FILE *to, const struct vgpu *vgpu, const struct sched_report *report)
{
	struct sched_waited waited[8];
	size_t count = sched_waited_for(vgpu->sched, waited, 8);
	char text[32];

	fprintf(to, "So far it waited %s", format_ns(report->waited_ns, text, sizeof(text)));
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%s for %s", i ? ", " : ": ", format_ns(waited[i].ns, text, sizeof(text)),
			name_of(waited[i].other));
	fprintf(to, ".\n");
	if (report->limited_ns)
		fprintf(to, "And %s for its limit.\n", format_ns(report->limited_ns, text, sizeof(text)));
	if (report->stops)
		fprintf(to, "It was stopped in mid-kernel %llu times at the end of its slice.\n",
			(unsigned long long)report->stops);
	if (vgpu->spec.percentile_ppm && report->samples) {
		char objective[32];

		fprintf(to, "Its objective is %s: that percentile is %.3f ms, %llu of %llu took longer.\n",
			spec_format_objective(&vgpu->spec, objective, sizeof(objective)),
			(double)report->tail_ns / 1e6, (unsigned long long)report->missed,
			(unsigned long long)report->samples);
	}
}

static void say_fault(FILE *to, const struct vgpu *vgpu)
{
	const struct fault *fault = &vgpu->last_fault;
	const char *what = fault_words(fault->code);
	char ago[32];

	if (!vgpu->fault_count)
		return;
	fprintf(to,
		"A fault on the GPU ended a context of process %d, %s ago: Xid %u%s%s%s. There were %llu.\n",
		fault->pid, format_ns(bf_now_ns() - fault->at_ns, ago, sizeof(ago)), fault->code,
		what ? " (" : "", what ? what : "", what ? ")" : "", (unsigned long long)vgpu->fault_count);
}

static void say_mps(FILE *to, const struct vgpu *vgpu)
{
	for (const struct run *r = vgpu->runs; r; r = r->next)
		if (r->has_lost_mps) {
			fprintf(to, "For %s (process %d): %s.\n", r->program, r->program_pid,
				mps_last_end(r->mps));
			return;
		}
}

static void say_attached(FILE *to, const struct vgpu *vgpu)
{
	for (const struct run *r = vgpu->runs; r; r = r->next)
		if (r->attached)
			attached_say(to, r);
}

static char *words(const struct vgpu *vgpu, const struct sched_report *report)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (!to)
		return NULL;
	say_now(to, vgpu, report);
	say_share(to, vgpu, report);
	say_past(to, vgpu, report);
	say_fault(to, vgpu);
	say_mps(to, vgpu);
	lease_say(to, vgpu);
	say_attached(to, vgpu);
	decisions_say(to, vgpu);
	if (fclose(to)) {
		free(text);
		return NULL;
	}
	return text;
}

char *gpu_explain(struct vgpu *vgpu, size_t *bytes)
{
	static const char *const reasons[] = { "none", "token", "limit" };
	struct json_object *top, *facts;
	struct sched_report report;
	char *text;

	sched_report_now(vgpu->gpu->sched, vgpu->sched, bf_now_ns(), &report);
	text = words(vgpu, &report);
	if (!text)
		return NULL;
	top = json_object_new_object();
	facts = json_object_new_object();
	json_add_text(facts, "reason", reasons[report.reason % 3]);
	json_add_text(facts, "holder", report.holder ? name_of(report.holder) : NULL);
	json_add_number(facts, "since_ns", bf_now_ns() - report.since_ns);
	json_add_number(facts, "waited_ns", report.waited_ns);
	json_add_number(facts, "limited_ns", report.limited_ns);
	json_add_number(facts, "window_ns", report.window_ns);
	json_add_number(facts, "window_used_ns", report.window_used_ns);
	json_add(facts, "policy", decisions_json(vgpu));
	json_add_text(top, "name", vgpu->name);
	json_add_number(top, "owner", vgpu->owner);
	json_add_text(top, "text", text);
	json_add(top, "facts", facts);
	free(text);
	return json_text(top, bytes);
}

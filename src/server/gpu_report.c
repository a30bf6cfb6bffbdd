/* Everything that is counted, as JSON: `belfry ls`, `stats` and `top`, and the metrics are made of this. */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/gpu.h"

static const char *const gate_names[] = { "open", "held", "stopped" };
static const char *const state_names[] = { "idle", "running", "waiting", "held" };
static const char *const sharing_names[] = { "open", "turns", "tokens" };

static void put_number(struct json_object *to, const char *key, uint64_t value)
{
	json_object_object_add(to, key, json_object_new_int64((int64_t)value));
}

static void put_real(struct json_object *to, const char *key, double value)
{
	json_object_object_add(to, key, json_object_new_double(value));
}

static void put_text(struct json_object *to, const char *key, const char *value)
{
	json_object_object_add(to, key, json_object_new_string(value));
}

static const char *gpu_name(const struct gpu *gpu, char *to, size_t room)
{
	snprintf(to, room, gpu->which.kind == PROTOCOL_GPU_SOFT ? "soft:%u" : "%u", gpu->which.index);
	return to;
}

static struct json_object *objective_json(const struct spec *spec)
{
	struct json_object *objective;

	if (!spec->percentile_ppm)
		return NULL;
	objective = json_object_new_object();
	put_real(objective, "percentile", spec->percentile_ppm / 1e4);
	put_number(objective, "us", spec->objective_us);
	return objective;
}

static struct json_object *mem_json(const struct vgpu *vgpu, const struct warden_report *report)
{
	struct json_object *mem = json_object_new_object();

	put_number(mem, "limit", vgpu->spec.mem_bytes);
	put_number(mem, "used", report->mem_used_bytes);
	put_number(mem, "most", report->mem_most_bytes);
	put_number(mem, "managed", report->mem_managed_bytes);
	put_number(mem, "driver", report->mem_driver_bytes);
	return mem;
}

static struct json_object *time_json(const struct vgpu *vgpu, const struct sched_report *report)
{
	struct json_object *time = json_object_new_object();

	put_real(time, "request", (double)vgpu->spec.request_ppm / SPEC_WHOLE_PPM);
	put_real(time, "limit", (double)vgpu->spec.limit_ppm / SPEC_WHOLE_PPM);
	put_real(time, "share",
		 report->window_ns ? (double)report->window_used_ns / (double)report->window_ns : 0);
	put_real(time, "weight", (double)report->weight_ppm / SCHED_WHOLE_PPM);
	put_number(time, "gpu_ns", report->gpu_ns);
	put_number(time, "held_ns", report->held_ns);
	put_number(time, "waited_ns", report->waited_ns);
	put_number(time, "limited_ns", report->limited_ns);
	put_number(time, "slice_ns", report->slice_ns);
	return time;
}

static struct json_object *waits_json(const struct vgpu *vgpu, const struct sched_report *report)
{
	struct json_object *list = json_object_new_array();
	struct sched_waited waited[16];
	size_t count = sched_waited_for(vgpu->sched, waited, 16);

	for (size_t i = 0; i < count; i++) {
		struct json_object *wait = json_object_new_object();

		put_text(wait, "for", ((const struct vgpu *)sched_owner(waited[i].other))->name);
		put_number(wait, "ns", waited[i].ns);
		json_object_array_add(list, wait);
	}
	if (report->limited_ns) {
		struct json_object *wait = json_object_new_object();

		put_text(wait, "for", "its limit");
		put_number(wait, "ns", report->limited_ns);
		json_object_array_add(list, wait);
	}
	return list;
}

static struct json_object *tokens_json(const struct sched_report *report)
{
	struct json_object *tokens = json_object_new_object();

	put_number(tokens, "granted", report->grants);
	put_number(tokens, "expired", report->expiries);
	put_number(tokens, "given_back", report->given_back);
	put_number(tokens, "stops", report->stops);
	put_number(tokens, "stopped_ns", report->stopped_ns);
	return tokens;
}

static struct json_object *latency_json(const struct sched_report *report)
{
	struct json_object *latency = json_object_new_object();

	put_number(latency, "samples", report->samples);
	put_real(latency, "p50_us", (double)report->p50_ns / 1e3);
	put_real(latency, "p99_us", (double)report->tail_ns / 1e3);
	put_number(latency, "missed", report->missed);
	return latency;
}

static struct json_object *submissions_json(const struct warden_report *report)
{
	struct json_object *submissions = json_object_new_object();

	put_number(submissions, "rings", report->rings);
	put_number(submissions, "forwards", report->forwards);
	put_number(submissions, "strange", report->strange);
	put_number(submissions, "swept", report->swept);
	put_number(submissions, "cpu_ns", report->gate_cpu_ns);
	return submissions;
}

static struct json_object *processes_json(const struct warden_report *report)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < report->processes && i < WARDEN_REPORT_PROCESSES; i++) {
		struct json_object *process = json_object_new_object();

		put_number(process, "pid", (uint64_t)report->process[i].pid);
		put_number(process, "used", report->process[i].used_bytes);
		put_number(process, "driver", report->process[i].driver_bytes);
		json_object_array_add(list, process);
	}
	return list;
}

static struct json_object *runs_json(const struct vgpu *vgpu)
{
	struct json_object *list = json_object_new_array();

	for (const struct run *r = vgpu->runs; r; r = r->next) {
		struct json_object *run = json_object_new_object();

		put_number(run, "pid", (uint64_t)r->program_pid);
		put_text(run, "program", r->program);
		json_object_array_add(list, run);
	}
	return list;
}

static void put_turns(struct json_object *to, const struct sched_report *report)
{
	put_number(to, "timeslice_us", report->timeslice_us);
	json_object_object_add(
		to, "interleave",
		report->interleave < 0
			? NULL
			: json_object_new_string(spec_interleave_names[report->interleave % 3]));
	json_object_object_add(to, "rides", json_object_new_boolean(report->is_rider));
}

static struct json_object *faults_json(const struct vgpu *vgpu)
{
	struct json_object *faults = json_object_new_object();

	put_number(faults, "count", vgpu->fault_count);
	if (!vgpu->fault_count)
		return faults;
	put_number(faults, "xid", vgpu->last_fault.code);
	put_number(faults, "pid", (uint64_t)vgpu->last_fault.pid);
	put_number(faults, "age_ns", bf_now_ns() - vgpu->last_fault.at_ns);
	return faults;
}

static struct json_object *busy_json(uint32_t sm_ppm, uint32_t mem_ppm)
{
	struct json_object *busy = json_object_new_object();

	put_real(busy, "sm", sm_ppm / 1e6);
	put_real(busy, "memory", mem_ppm / 1e6);
	return busy;
}

static struct json_object *vgpu_json(struct vgpu *vgpu, const struct warden_report *warden)
{
	struct json_object *to = json_object_new_object();
	struct sched_report report;
	char gpu[24];

	sched_report(vgpu->gpu->sched, vgpu->sched, &report);
	put_text(to, "name", vgpu->name);
	put_number(to, "id", vgpu->id);
	put_text(to, "gpu", gpu_name(vgpu->gpu, gpu, sizeof(gpu)));
	put_number(to, "pid", (uint64_t)getpid());
	put_number(to, "owner", vgpu->owner);
	json_object_object_add(to, "public", json_object_new_boolean(vgpu->spec.is_public));
	json_object_object_add(to, "ephemeral", json_object_new_boolean(vgpu->is_ephemeral));
	put_text(to, "class", spec_class_names[vgpu->spec.class % 2]);
	json_object_object_add(to, "objective", objective_json(&vgpu->spec));
	put_text(to, "domain", vgpu->spec.domain);
	json_object_object_add(to, "policy",
			       vgpu->seat ? json_object_new_string(policy_name_of(vgpu->gpu, vgpu)) : NULL);
	put_text(to, "state", vgpu->order == VGPU_STOPPED ? "stopped" : state_names[report.state % 4]);
	put_text(to, "gate", gate_names[vgpu->order % 3]);
	json_object_object_add(to, "mem", mem_json(vgpu, warden));
	json_object_object_add(to, "time", time_json(vgpu, &report));
	json_object_object_add(to, "waits", waits_json(vgpu, &report));
	json_object_object_add(to, "tokens", tokens_json(&report));
	json_object_object_add(to, "latency", latency_json(&report));
	put_turns(to, &report);
	put_number(to, "channels", warden->channels);
	put_number(to, "calls", warden->calls);
	put_number(to, "refusals", warden->refusals);
	put_number(to, "probes", vgpu->probes);
	json_object_object_add(to, "busy", report.sm_ppm ? busy_json(report.sm_ppm, report.mem_ppm) : NULL);
	json_object_object_add(to, "faults", faults_json(vgpu));
	json_object_object_add(to, "submissions", submissions_json(warden));
	json_object_object_add(to, "processes", processes_json(warden));
	json_object_object_add(to, "runs", runs_json(vgpu));
	return to;
}

static uint64_t thread_cpu_ns(pthread_t thread)
{
	struct timespec used;
	clockid_t clock;

	if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &used))
		return 0;
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static struct json_object *gpu_json(struct gpu *gpu, uint64_t used_bytes, uint64_t busy_ns)
{
	struct json_object *to = json_object_new_object(), *mem = json_object_new_object();
	char name[24];

	put_text(to, "gpu", gpu_name(gpu, name, sizeof(name)));
	put_text(to, "kind", gpu->which.kind == PROTOCOL_GPU_SOFT ? "soft" : "nv");
	put_number(to, "index", gpu->which.index);
	put_number(to, "pid", (uint64_t)getpid());
	put_text(to, "driver", gpu->device->driver_version);
	put_number(mem, "total", gpu->device->mem_bytes);
	put_number(mem, "reserved", gpu_reserved_bytes(gpu, NULL));
	put_number(mem, "used", used_bytes);
	json_object_object_add(to, "mem", mem);
	put_text(to, "sharing", sharing_names[sched_sharing(gpu->sched) % 3]);
	put_text(to, "policy", policy_name_of(gpu, NULL));
	put_text(to, "time_source", gpu->time_source);
	if (gpu->turns) {
		put_number(to, "time_error_ns", turns_error_ns(gpu->turns));
		put_number(to, "records_lost", turns_lost(gpu->turns));
	}
	put_number(to, "now_ns", bf_now_ns());
	put_number(to, "uptime_ns", bf_now_ns() - gpu->started_ns);
	put_number(to, "busy_ns", busy_ns);
	put_number(to, "handovers", sched_handovers(gpu->sched));
	put_real(to, "request", (double)sched_promised_ppm(gpu->sched) / SPEC_WHOLE_PPM);
	put_number(to, "gate_cpu_ns", gate_cpu_ns(gpu->gate));
	put_number(to, "turner_cpu_ns", thread_cpu_ns(gpu->turner));
	json_object_object_add(to, "busy",
			       gpu->has_busy ? busy_json(gpu->busy.sm_ppm, gpu->busy.mem_ppm) : NULL);
	return to;
}

/* The warden is asked without the lock: a driver call may be in its way. The main thread alone changes the list, and
 * is here. */
static void ask_warden(struct vgpu *vgpu, struct warden_report *report)
{
	memset(report, 0, sizeof(*report));
	if (!vgpu->warden)
		return;
	gpu_unlock(vgpu->gpu);
	warden_report(vgpu->warden, report);
	gpu_lock(vgpu->gpu);
}

char *gpu_report(struct gpu *gpu, const char *name, size_t *bytes)
{
	struct json_object *top = json_object_new_object(), *list = json_object_new_array();
	uint64_t used_bytes = 0, busy_ns = gpu->past_gpu_ns;
	const char *text;
	char *copy;

	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		struct warden_report warden;
		struct sched_report report;

		sched_report(gpu->sched, v->sched, &report);
		busy_ns += report.gpu_ns;
		ask_warden(v, &warden);
		used_bytes += warden.mem_used_bytes;
		if (!name[0] || !strcmp(name, v->name))
			json_object_array_add(list, vgpu_json(v, &warden));
	}
	json_object_object_add(top, "gpu", gpu_json(gpu, used_bytes, busy_ns));
	json_object_object_add(top, "vgpus", list);
	text = json_object_to_json_string_length(top, JSON_C_TO_STRING_PLAIN, bytes);
	copy = text ? strdup(text) : NULL;
	json_object_put(top);
	return copy;
}

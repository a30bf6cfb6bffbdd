/* Everything that is counted, as JSON: the source of `belfry ls`, `stats`, `top` and the metrics. */
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "gpu/gpu.h"

#define SENSE_EVERY_NS 1000000000u

static const char *const gate_names[] = { "open", "held", "stopped" };
static const char *const state_names[] = { "idle", "running", "waiting", "held" };
static const char *const sharing_names[] = { "open", "turns", "tokens" };

static struct json_object *objective_json(const struct spec *spec)
{
	struct json_object *objective;

	if (!spec->percentile_ppm)
		return NULL;
	objective = json_object_new_object();
	json_add_real(objective, "percentile", spec->percentile_ppm / 1e4);
	json_add_number(objective, "us", spec->objective_us);
	return objective;
}

static struct json_object *mem_json(const struct vgpu *vgpu, const struct warden_report *report)
{
	struct json_object *mem = json_object_new_object();

	json_add_number(mem, "limit", vgpu->spec.mem_bytes);
	json_add_number(mem, "used", report->mem_used_bytes);
	json_add_number(mem, "most", report->mem_most_bytes);
	json_add_number(mem, "managed", report->mem_managed_bytes);
	json_add_number(mem, "named", report->mem_named_bytes);
	json_add_number(mem, "driver", report->mem_driver_bytes);
	return mem;
}

static struct json_object *time_json(const struct vgpu *vgpu, const struct sched_report *report)
{
	struct json_object *time = json_object_new_object();

	json_add_real(time, "request", (double)vgpu->spec.request_ppm / SPEC_WHOLE_PPM);
	json_add_real(time, "limit", (double)vgpu->spec.limit_ppm / SPEC_WHOLE_PPM);
	json_add_real(time, "share",
		      report->window_ns ? (double)report->window_used_ns / (double)report->window_ns : 0);
	json_add_real(time, "weight", (double)report->weight_ppm / SCHED_WHOLE_PPM);
	json_add_number(time, "gpu_ns", report->gpu_ns);
	json_add_number(time, "held_ns", report->held_ns);
	json_add_number(time, "waited_ns", report->waited_ns);
	json_add_number(time, "limited_ns", report->limited_ns);
	json_add_number(time, "slice_ns", report->slice_ns);
	return time;
}

static void add_wait(struct json_object *list, const char *what_for, uint64_t ns)
{
	struct json_object *wait = json_object_new_object();

	json_add_text(wait, "for", what_for);
	json_add_number(wait, "ns", ns);
	json_object_array_add(list, wait);
}

static struct json_object *waits_json(const struct vgpu *vgpu, const struct sched_report *report)
{
	struct json_object *list = json_object_new_array();
	struct sched_waited waited[16];
	size_t count = sched_waited_for(vgpu->sched, waited, 16);

	for (size_t i = 0; i < count; i++)
		add_wait(list, ((const struct vgpu *)sched_owner(waited[i].other))->name, waited[i].ns);
	if (report->limited_ns)
		add_wait(list, "its limit", report->limited_ns);
	return list;
}

static struct json_object *tokens_json(const struct sched_report *report)
{
	struct json_object *tokens = json_object_new_object();

	json_add_number(tokens, "granted", report->grants);
	json_add_number(tokens, "expired", report->expiries);
	json_add_number(tokens, "given_back", report->given_back);
	json_add_number(tokens, "stops", report->stops);
	json_add_number(tokens, "stopped_ns", report->stopped_ns);
	return tokens;
}

static struct json_object *latency_json(const struct sched_report *report)
{
	struct json_object *latency = json_object_new_object();

	json_add_number(latency, "samples", report->samples);
	json_add_real(latency, "p50_us", (double)report->p50_ns / 1e3);
	json_add_real(latency, "p99_us", (double)report->tail_ns / 1e3);
	json_add_number(latency, "missed", report->missed);
	return latency;
}

static struct json_object *submissions_json(const struct warden_report *report)
{
	struct json_object *submissions = json_object_new_object();

	json_add_number(submissions, "rings", report->rings);
	json_add_number(submissions, "forwards", report->forwards);
	json_add_number(submissions, "strange", report->strange);
	json_add_number(submissions, "swept", report->swept);
	json_add_number(submissions, "cpu_ns", report->gate_cpu_ns);
	return submissions;
}

/* The number of refusals of each control that Belfry does not know, with keys such as "0x20801234". */
static struct json_object *unknown_json(const struct warden_report *report)
{
	struct json_object *unknown = json_object_new_object();
	char control[16];

	for (unsigned i = 0; i < WARDEN_UNKNOWNS && report->unknowns[i].count; i++) {
		snprintf(control, sizeof(control), "0x%08x", report->unknowns[i].control);
		json_add_number(unknown, control, report->unknowns[i].count);
	}
	return unknown;
}

static struct json_object *processes_json(const struct warden_report *report)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < report->processes && i < WARDEN_REPORT_PROCESSES; i++) {
		struct json_object *process = json_object_new_object();

		json_add_number(process, "pid", (uint64_t)report->process[i].pid);
		json_add_number(process, "used", report->process[i].used_bytes);
		json_object_array_add(list, process);
	}
	return list;
}

static struct json_object *runs_json(const struct vgpu *vgpu)
{
	struct json_object *list = json_object_new_array();

	for (const struct run *r = vgpu->runs; r; r = r->next) {
		struct json_object *run = json_object_new_object();

		json_add_number(run, "pid", (uint64_t)r->program_pid);
		json_add_text(run, "program", r->program);
		attached_put_json(run, r);
		json_object_array_add(list, run);
	}
	return list;
}

static void put_turns(struct json_object *to, const struct sched_report *report)
{
	json_add_number(to, "timeslice_us", report->timeslice_us);
	json_add_text(to, "interleave",
		      report->interleave < 0 ? NULL : spec_interleave_names[report->interleave % 3]);
	json_add_bool(to, "rides", report->is_rider);
}

static struct json_object *faults_json(const struct vgpu *vgpu)
{
	struct json_object *faults = json_object_new_object();

	json_add_number(faults, "count", vgpu->fault_count);
	if (!vgpu->fault_count)
		return faults;
	json_add_number(faults, "xid", vgpu->last_fault.code);
	json_add_number(faults, "pid", (uint64_t)vgpu->last_fault.pid);
	json_add_number(faults, "age_ns", bf_now_ns() - vgpu->last_fault.at_ns);
	return faults;
}

static struct json_object *busy_json(uint32_t sm_ppm, uint32_t mem_ppm)
{
	struct json_object *busy = json_object_new_object();

	json_add_real(busy, "sm", sm_ppm / 1e6);
	json_add_real(busy, "memory", mem_ppm / 1e6);
	return busy;
}

/* A vGPU of a shared domain that has no --sm may use all SMs, and none are reserved for it. */
static struct json_object *sm_json(const struct vgpu *vgpu)
{
	const struct spec *spec = &vgpu->spec;
	struct json_object *sm;

	if (!vgpu_is_shared(vgpu))
		return NULL;
	sm = json_object_new_object();
	json_add_real(sm, "request", (double)spec->sm_request_ppm / SPEC_WHOLE_PPM);
	json_add_real(sm, "limit", spec_has_sm(spec) ? (double)spec->sm_limit_ppm / SPEC_WHOLE_PPM : 1);
	json_add_number(sm, "moves", vgpu->lease_moves);
	json_add_number(sm, "fell_back", vgpu->lease_fell_back);
	json_add(sm, "lease", lease_json(vgpu));
	return sm;
}

static struct json_object *vgpu_json(struct vgpu *vgpu, const struct warden_report *warden)
{
	struct json_object *to = json_object_new_object();
	struct sched_report report;
	char gpu[24];

	sched_report_now(vgpu->gpu->sched, vgpu->sched, bf_now_ns(), &report);
	json_add_text(to, "name", vgpu->name);
	json_add_number(to, "id", vgpu->id);
	json_add_text(to, "gpu", protocol_gpu_name(&vgpu->gpu->which, gpu, sizeof(gpu)));
	json_add_number(to, "pid", (uint64_t)getpid());
	json_add_number(to, "owner", vgpu->owner);
	json_add_bool(to, "public", vgpu->spec.is_public);
	json_add_bool(to, "ephemeral", vgpu->is_ephemeral);
	if (vgpu->is_hidden)
		json_add_bool(to, "mps_server", true);
	json_add_text(to, "class", spec_class_names[vgpu->spec.class % 2]);
	json_add(to, "objective", objective_json(&vgpu->spec));
	json_add_text(to, "domain", vgpu->spec.domain);
	json_add(to, "sm", sm_json(vgpu));
	json_add_text(to, "policy", vgpu->seat ? policy_name_of(vgpu->gpu, vgpu) : NULL);
	json_add_text(to, "state", vgpu->order == VGPU_STOPPED ? "stopped" : state_names[report.state % 4]);
	json_add_text(to, "gate", gate_names[vgpu->order % 3]);
	json_add_bool(to, "held", vgpu->holds & VGPU_HOLD_OPERATOR);
	if (vgpu->warden) /* its programs, as the driver and nvidia-smi know them */
		json_add_number(to, "driver_pid", (uint64_t)warden_owner(vgpu->warden));
	json_add(to, "mem", mem_json(vgpu, warden));
	json_add(to, "time", time_json(vgpu, &report));
	json_add(to, "waits", waits_json(vgpu, &report));
	json_add(to, "tokens", tokens_json(&report));
	json_add(to, "latency", latency_json(&report));
	put_turns(to, &report);
	json_add_number(to, "channels", warden->channels);
	json_add_number(to, "calls", warden->calls);
	json_add_number(to, "refusals", warden->refusals);
	json_add_number(to, "continued", warden->continued);
	json_add(to, "unknown_controls", unknown_json(warden));
	json_add_number(to, "probes", vgpu->probes);
	/* The values of a vGPU are measured while it runs, and apply only then. */
	json_add(to, "busy",
		 !report.sm_ppm		 ? NULL
		 : report.window_used_ns ? busy_json(report.sm_ppm, report.mem_ppm)
					 : busy_json(0, 0));
	json_add(to, "faults", faults_json(vgpu));
	json_add(to, "submissions", submissions_json(warden));
	json_add(to, "processes", processes_json(warden));
	json_add(to, "runs", runs_json(vgpu));
	return to;
}

/* Reads the sensors without the lock, which takes milliseconds, and at most once a second. */
static void sense(struct gpu *gpu)
{
	uint64_t now_ns = bf_now_ns();

	if (!gpu->device->ops->sense || (gpu->sensed_ns && now_ns - gpu->sensed_ns < SENSE_EVERY_NS))
		return;
	gpu->sensed_ns = now_ns;
	gpu_unlock(gpu);
	gpu->device->ops->sense(gpu->device, &gpu->sensors);
	gpu_lock(gpu);
}

bool gpu_uuid_text(const struct gpu *gpu, char *to, size_t room)
{
	const uint8_t *u = gpu->device->uuid;

	snprintf(to, room, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
		 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
		 u[15]);
	return gpu->device->has_uuid;
}

static void put_identity(struct json_object *to, const struct gpu *gpu)
{
	char text[48];

	json_add_text(to, "uuid", gpu_uuid_text(gpu, text, sizeof(text)) ? text : NULL);
	json_add_text(to, "model", gpu->device->model[0] ? gpu->device->model : NULL);
	snprintf(text, sizeof(text), "%s%u", gpu->which.kind == PROTOCOL_GPU_SOFT ? "soft" : "nvidia",
		 gpu->which.index);
	json_add_text(to, "device", text);
}

static void put_sensors(struct json_object *to, const struct gpu *gpu)
{
	if (gpu->sensors.has_temperature)
		json_add_number(to, "temperature_c", gpu->sensors.temperature_c);
	if (gpu->sensors.has_power)
		json_add_real(to, "power_w", gpu->sensors.power_mw / 1e3);
}

static struct json_object *gpu_json(struct gpu *gpu, uint64_t used_bytes, uint64_t busy_ns)
{
	struct json_object *to = json_object_new_object(), *mem = json_object_new_object();
	char name[24];

	json_add_text(to, "gpu", protocol_gpu_name(&gpu->which, name, sizeof(name)));
	json_add_text(to, "kind", gpu->which.kind == PROTOCOL_GPU_SOFT ? "soft" : "nv");
	json_add_number(to, "index", gpu->which.index);
	json_add_number(to, "pid", (uint64_t)getpid());
	put_identity(to, gpu);
	put_sensors(to, gpu);
	json_add_text(to, "driver", gpu->device->driver_version);
	json_add_number(mem, "total", gpu->device->mem_bytes);
	json_add_number(mem, "reserved", gpu_reserved_bytes(gpu, NULL));
	json_add_number(mem, "used", used_bytes);
	json_add_number(mem, "shared", pool_use(gpu->pool).shared_bytes);
	json_add(to, "mem", mem);
	json_add_text(to, "sharing", sharing_names[sched_sharing(gpu->sched) % 3]);
	json_add_text(to, "policy", policy_name_of(gpu, NULL));
	json_add_text(to, "time_source", gpu->time_source);
	if (gpu->turns) {
		json_add_number(to, "time_error_ns", turns_error_ns(gpu->turns));
		json_add_number(to, "records_lost", turns_lost(gpu->turns));
	}
	json_add_number(to, "now_ns", bf_now_ns());
	json_add_number(to, "uptime_ns", bf_now_ns() - gpu->started_ns);
	json_add_number(to, "busy_ns", busy_ns);
	json_add_number(to, "handovers", sched_handovers(gpu->sched));
	json_add_real(to, "request", (double)sched_promised_ppm(gpu->sched) / SPEC_WHOLE_PPM);
	json_add_number(to, "gate_cpu_ns", gate_cpu_ns(gpu->gate));
	json_add_number(to, "turner_cpu_ns", bf_thread_cpu_ns(gpu->turner));
	json_add(to, "busy", gpu->has_busy ? busy_json(gpu->busy.sm_ppm, gpu->busy.mem_ppm) : NULL);
	return to;
}

/* The warden is asked without the lock, because this may wait for a driver call. Only the main thread changes the
 * list, and this is the main thread. */
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

	sense(gpu);
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
	json_add(top, "gpu", gpu_json(gpu, used_bytes, busy_ns));
	json_add(top, "vgpus", list);
	return json_text(top, bytes);
}

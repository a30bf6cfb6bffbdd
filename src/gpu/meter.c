/* Measures the GPU time of each vGPU, and reports it to sched. The software GPU counts it. The NVIDIA driver records
 * which context was on the GPU (docs/driver.md). This time counts only as far as the vGPU had work: a context without
 * work stays on the GPU until another one comes. */
#include <string.h>

#include "base/log.h"
#include "gpu/gpu.h"

static const uint64_t often_ns = 5000000, seldom_ns = 20000000;
enum { TURNS_AT_ONCE = 256 };

static bool has_limit(const struct vgpu *vgpu)
{
	return vgpu->spec.limit_ppm < SPEC_WHOLE_PPM;
}

/* Limits apply to measured time, so it is measured more often while a vGPU with a limit has programs. */
static uint64_t interval_ns(const struct gpu *gpu)
{
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->runs && has_limit(v))
			return often_ns;
	return seldom_ns;
}

static bool is_anybody_running(const struct gpu *gpu)
{
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->runs && (v->is_told_running || v->is_told_waiting))
			return true;
	return false;
}

uint64_t meter_next_ns(const struct gpu *gpu)
{
	return is_anybody_running(gpu) ? gpu->meter_ns + interval_ns(gpu) : SCHED_NEVER;
}

static void use(struct vgpu *vgpu, uint64_t ns, uint64_t now_ns)
{
	if (!ns)
		return;
	sched_used(vgpu->gpu->sched, vgpu->sched, ns, now_ns);
	busy_used(vgpu->gpu);
}

static void count_by_device(struct vgpu *vgpu)
{
	struct gpu *gpu = vgpu->gpu;
	uint64_t gpu_ns = 0;
	int rc;

	vgpu_pin(vgpu);
	gpu_unlock(gpu);
	rc = warden_gpu_time(vgpu->warden, &gpu_ns);
	gpu_lock(gpu);
	if (!rc && gpu_ns > vgpu->seen_gpu_ns) {
		use(vgpu, gpu_ns - vgpu->seen_gpu_ns, bf_now_ns());
		vgpu->seen_gpu_ns = gpu_ns;
	}
	vgpu_unpin(vgpu);
}

void meter_split_burst(struct vgpu *vgpu, uint64_t until_ns)
{
	struct gate_came next;
	struct burst_span span;

	if (vgpu->spec.class != SPEC_LATENCY || !vgpu->burst.end_ns)
		return;
	next = gate_vgpu_came_after(warden_gate(vgpu->warden), vgpu->burst.seen_ns);
	if (next.found_ns > until_ns || !burst_split(&vgpu->burst, next, &span))
		return;
	turner_took(vgpu, &span);
	work_done(vgpu, span.end_ns, vgpu->burst.came_ns);
	vgpu->burst_ns = next.found_ns;
}

void meter_take_done(struct vgpu *vgpu, const struct device_done *done, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		meter_split_burst(vgpu, done[i].seen_ns);
		burst_record(&vgpu->burst, done[i].seen_ns, done[i].end_ns);
	}
}

/* The context left the GPU, then work was passed on, then the context came back: it had left because its work was
 * done. */
static void take_turn(struct vgpu *vgpu, const struct device_turn *turn)
{
	meter_split_burst(vgpu, turn->start_ns);
	if (!turn->is_open)
		burst_record(&vgpu->burst, turn->end_ns, turn->end_ns);
}

static void count_turn(struct gpu *gpu, const struct device_turn *turn)
{
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		uint64_t from = turn->start_ns > gpu->turns_ns ? turn->start_ns : gpu->turns_ns;

		if (!v->runs || !v->warden || warden_owner(v->warden) != turn->pid)
			continue;
		if (turn->end_ns > from)
			v->residence_ns += turn->end_ns - from;
		take_turn(v, turn);
		return;
	}
	gpu->strange_turns++; /* of a process outside Belfry, or one whose ID is not visible */
}

/* At most the time for which the vGPU had work, by the clock. Exactly this time if the records do not show the vGPU. */
static uint64_t used_ns(const struct gpu *gpu, const struct vgpu *vgpu, bool has_records, uint64_t held_ns)
{
	if (!has_records || (!vgpu->residence_ns && gpu->strange_turns))
		return held_ns;
	return vgpu->residence_ns < held_ns ? vgpu->residence_ns : held_ns;
}

static void settle_residence(struct gpu *gpu, bool has_records, uint64_t now_ns)
{
	struct sched_report report;

	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		uint64_t held;

		v->has_run = v->is_told_running;
		if (!v->runs && !v->residence_ns)
			continue;
		sched_report(gpu->sched, v->sched, &report);
		held = report.held_ns - v->seen_held_ns;
		v->seen_held_ns = report.held_ns;
		use(v, used_ns(gpu, v, has_records, held), now_ns);
		v->residence_ns = 0;
	}
}

/* A vGPU that runs alone causes no records, and its time is measured by the clock. */
static bool have_many_run(const struct gpu *gpu)
{
	unsigned count = 0;

	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		count += v->has_run;
	return count > 1;
}

void meter_read_turns(struct gpu *gpu)
{
	struct device_turn turns[TURNS_AT_ONCE];
	int count;

	do {
		count = turns_read(gpu->turns, turns, TURNS_AT_ONCE);
		for (int i = 0; i < count; i++)
			count_turn(gpu, &turns[i]);
		gpu->meter_has_records |= count > 0;
	} while (count == TURNS_AT_ONCE);
	gpu->turns_ns = bf_now_ns();
}

static void count_by_turns(struct gpu *gpu, uint64_t now_ns)
{
	if (have_many_run(gpu))
		meter_read_turns(gpu);
	settle_residence(gpu, gpu->meter_has_records, now_ns);
	gpu->meter_has_records = false;
	gpu->strange_turns = 0;
}

void meter_look(struct gpu *gpu, uint64_t now_ns)
{
	if (!gpu->meter_ns)
		gpu->meter_ns = now_ns;
	if (now_ns < gpu->meter_ns + interval_ns(gpu) || (!is_anybody_running(gpu) && !gpu->meter_was_busy))
		return;
	gpu->meter_was_busy = is_anybody_running(gpu);
	if (gpu->which.kind == PROTOCOL_GPU_SOFT) {
		for (struct vgpu *v = gpu->vgpus; v; v = v->next)
			if (v->runs && v->warden)
				count_by_device(v);
	} else if (gpu->turns) {
		count_by_turns(gpu, now_ns);
	}
	work_read(gpu);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		limit_time(v);
	gpu->meter_ns = now_ns;
}

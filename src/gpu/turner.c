/* The turner: watches the gates and the GPU, reports to sched, and carries out its orders. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/number.h"
#include "gpu/gpu.h"

/* How often to ask whether the work of a vGPU is done. On the real driver this takes 0.1 ms of the driver's time
 * (docs/driver.md), so it is frequent only where another vGPU waits. */
static const uint64_t probe_often_ns = 300000, probe_seldom_ns = 5000000;
static const uint64_t probe_soon_ns = 100000, probe_later_ns = 2000000;
/* A vGPU that submitted this recently has work. */
static const uint64_t rang_lately_ns = 100000;
/* So long after the last report of a request, reports count and estimates do not. */
static const uint64_t requests_count_ns = 2000000000;

enum { WAIT_S = 1, DONE_AT_ONCE = 256 };

void turner_wake(struct gpu *gpu)
{
	uint64_t one = 1;

	if (write(gpu->turner_wake, &one, sizeof(one)) < 0)
		return; /* it is awake already */
}

void turner_wait(struct gpu *gpu)
{
	uint64_t want = ++gpu->turner_want;
	struct timespec limit;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += WAIT_S;
	turner_wake(gpu);
	while (gpu->has_turner && gpu->turner_seen < want)
		if (pthread_cond_timedwait(&gpu->turned, &gpu->lock, &limit))
			return;
}

void turner_note(struct vgpu *vgpu)
{
	sched_set_present(vgpu->gpu->sched, vgpu->sched, vgpu->runs != NULL, bf_now_ns());
	vgpu->is_told_waiting = false;
	work_note(vgpu);
	if (vgpu->runs)
		return;
	/* Before the next run the gate is closed, whether or not sched has ordered it by then. */
	sched_hold(vgpu->gpu->sched, vgpu->sched, vgpu->order != VGPU_FREE, bf_now_ns());
	vgpu->is_told_running = false;
	vgpu->burst = (struct burst){ 0 }; /* it is never done */
	if (vgpu->warden) {		   /* the next submission counts as new */
		gate_vgpu_quiet(warden_gate(vgpu->warden));
		vgpu->is_quiet = true;
	}
}

static bool others_wait(const struct gpu *gpu, const struct vgpu *vgpu)
{
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v != vgpu && v->is_told_waiting)
			return true;
	return false;
}

/* A latency vGPU has short bursts. Their ends show how long they took, and how much time the vGPU wants. */
static uint64_t probe_interval(const struct vgpu *vgpu)
{
	uint64_t quarter = vgpu->usual_ns / 4;

	if (vgpu->spec.class == SPEC_LATENCY)
		return quarter < probe_soon_ns	  ? probe_soon_ns
		       : quarter > probe_later_ns ? probe_later_ns
						  : quarter;
	return others_wait(vgpu->gpu, vgpu) ? probe_often_ns : probe_seldom_ns;
}

/* When to ask for the first time whether the burst is done. */
static uint64_t first_probe_ns(const struct vgpu *vgpu, uint64_t now_ns)
{
	uint64_t likely_ns = vgpu->burst_ns +
			     vgpu->usual_ns / 4 * 3; /* earlier than usual, to find shorter bursts */

	if (vgpu->spec.class == SPEC_LATENCY && likely_ns > now_ns && vgpu->usual_ns < probe_seldom_ns)
		return likely_ns;
	return now_ns + probe_interval(vgpu);
}

/* Work was passed on, or waits at the closed gate. */
static void look_at_gate(struct vgpu *vgpu, uint64_t now_ns)
{
	struct gpu *gpu = vgpu->gpu;
	struct gate_vgpu_counts counts = gate_vgpu_counts(warden_gate(vgpu->warden));

	if (counts.waiting_since_ns && !vgpu->is_told_waiting) {
		vgpu->is_told_waiting = true;
		lease_stir(vgpu);
		sched_waits(gpu->sched, vgpu->sched, now_ns);
		gpu_trace(vgpu, TRACE_WAIT, counts.waiting_since_ns, 0);
		work_came(vgpu, counts.waiting_since_ns);
	}
	if (!counts.waiting_since_ns)
		vgpu->is_told_waiting = false;
	if (counts.woke_ns && vgpu->is_quiet) {
		vgpu->is_quiet = false;
		vgpu->burst_ns = counts.woke_ns;
		burst_came(&vgpu->burst, counts.woke);
		vgpu->probe_ns = first_probe_ns(vgpu, now_ns);
		sched_runs(gpu->sched, vgpu->sched, now_ns);
		if (!vgpu->is_told_running)
			gpu_trace(vgpu, TRACE_RUN, counts.woke_ns, 0);
		vgpu->is_told_running = vgpu->has_run = true;
		lease_stir(vgpu);
		work_came(vgpu, counts.woke_ns);
	}
}

/* The library in its programs reports how long requests take. In a shared domain the driver cannot tell (docs/driver.md). */
static bool is_told_requests(const struct vgpu *vgpu)
{
	return vgpu->request_ns && bf_now_ns() - vgpu->request_ns < requests_count_ns;
}

void turner_took(struct vgpu *vgpu, const struct burst_span *span)
{
	if (span->end_ns > vgpu->burst_ns)
		vgpu->usual_ns = (vgpu->usual_ns + span->end_ns - vgpu->burst_ns) / 2;
	if (vgpu->spec.class == SPEC_LATENCY && !is_told_requests(vgpu)) /* includes the wait at the gate */
		sched_took(vgpu->gpu->sched, vgpu->sched, span->end_ns - span->came_ns, bf_now_ns());
}

/* Everything submitted is done. The next submission counts as new. */
static void is_done(struct vgpu *vgpu, uint64_t forwards, uint64_t now_ns)
{
	struct gate_vgpu *gate = warden_gate(vgpu->warden);
	struct burst_span span;

	gate_vgpu_quiet(gate);
	if (gate_vgpu_counts(gate).forwards != forwards) {
		vgpu->is_quiet = true; /* a submission came meanwhile: woke_ns shows it or the next one */
		return;
	}
	vgpu->is_quiet = true;
	vgpu->is_told_running = false;
	/* If the driver records when the context left the GPU, this is when the work was done. */
	if (vgpu->spec.class == SPEC_LATENCY && vgpu->gpu->turns)
		meter_read_turns(vgpu->gpu);
	sched_done(vgpu->gpu->sched, vgpu->sched, now_ns);
	meter_split_burst(vgpu, now_ns);
	if (burst_done(&vgpu->burst, gate_vgpu_came_after(gate, vgpu->burst.seen_ns), now_ns, &span))
		turner_took(vgpu, &span);
	work_done(vgpu, span.end_ns, vgpu->is_told_waiting ? gate_vgpu_counts(gate).waiting_since_ns : 0);
	gpu_trace(vgpu, TRACE_DONE, span.end_ns, 0);
}

/* Ask the GPU, without the lock, because it takes a while. */
static void probe(struct vgpu *vgpu, uint64_t now_ns)
{
	struct gpu *gpu = vgpu->gpu;
	struct gate_vgpu_counts counts = gate_vgpu_counts(warden_gate(vgpu->warden));
	struct device_done done[DONE_AT_ONCE];
	bool is_latency = vgpu->spec.class == SPEC_LATENCY; /* may change without the lock */
	enum warden_progress progress;
	unsigned count = 0;

	if (!vgpu->is_told_running || vgpu_is_stopped(vgpu) || now_ns < vgpu->probe_ns)
		return;
	if (now_ns - counts.last_forward_ns < rang_lately_ns) {
		vgpu->probe_ns = counts.last_forward_ns + rang_lately_ns;
		return;
	}
	vgpu_pin(vgpu);
	gpu_unlock(gpu);
	progress = warden_progress(vgpu->warden);
	if (is_latency)
		count = warden_done(vgpu->warden, done, DONE_AT_ONCE);
	gpu_lock(gpu);
	meter_take_done(vgpu, done, count);
	vgpu->probes++;
	now_ns = bf_now_ns();
	vgpu->probe_ns = now_ns + probe_interval(vgpu);
	if (progress == WARDEN_IS_DONE && vgpu->is_told_running)
		is_done(vgpu, counts.forwards, now_ns);
	vgpu_unpin(vgpu);
}

/* Look at every vGPU. Only the main thread changes the list, and it waits for vGPUs that are pinned. */
static void look(struct gpu *gpu)
{
	for (struct vgpu *v = gpu->vgpus, *next; v; v = next) {
		vgpu_pin(v);
		if (v->runs && v->warden && v->order == VGPU_FREE) {
			look_at_gate(v, bf_now_ns());
			probe(v, bf_now_ns());
		}
		next = v->next;
		vgpu_unpin(v);
	}
}

static void let_in(struct vgpu *vgpu)
{
	struct bf_error err = { 0 };

	warden_open(vgpu->warden);
	if (warden_resume(vgpu->warden, &err))
		bf_log(BF_LOG_WARN, "%s: %s", vgpu->name, err.text);
}

static void stop(struct vgpu *vgpu)
{
	struct bf_error err = { 0 };

	if (!warden_stop(vgpu->warden, &err))
		return;
	/* Another vGPU is about to get the GPU, and would share it with a program that cannot be stopped. */
	bf_log(BF_LOG_ERROR, "%s: %s; its programs are ended", vgpu->name, err.text);
	warden_end_processes(vgpu->warden, "it cannot be stopped");
}

static void set_turns(struct vgpu *vgpu, const struct sched_order *order)
{
	struct bf_error err = { 0 };

	if ((order->timeslice_us && warden_set_timeslice(vgpu->warden, order->timeslice_us, &err)) ||
	    (order->interleave >= 0 && warden_set_interleave(vgpu->warden, order->interleave, &err)))
		bf_log(BF_LOG_INFO, "%s: %s", vgpu->name, err.text);
}

static void carry_out(struct gpu *gpu, const struct sched_order *order)
{
	struct vgpu *vgpu = sched_owner(order->vgpu);
	uint64_t start_ns = bf_now_ns();

	if (!vgpu->warden)
		return;
	if (order->kind == SCHED_CLOSE) { /* takes microseconds, so under the lock */
		warden_close(vgpu->warden);
		gpu_trace(vgpu, TRACE_CLOSE, start_ns, 0);
		return;
	}
	vgpu_pin(vgpu);
	gpu_unlock(gpu);
	if (order->kind == SCHED_OPEN)
		let_in(vgpu);
	else if (order->kind == SCHED_STOP)
		stop(vgpu);
	else
		set_turns(vgpu, order);
	gpu_lock(gpu);
	if (order->kind == SCHED_OPEN) {
		/* For sched the waiting work has been passed on, but the process that submitted it may have died. So
		 * the vGPU is probed like a running one. */
		vgpu->is_told_running = vgpu->has_run = true;
		vgpu->burst_ns = bf_now_ns();
		vgpu->probe_ns = bf_now_ns() + probe_interval(vgpu);
		sched_resumed(gpu->sched, vgpu->sched, bf_now_ns());
		vgpu->is_told_waiting = false;
		gpu_trace(vgpu, TRACE_OPEN, bf_now_ns(), 0);
	} else if (order->kind == SCHED_STOP) {
		sched_stopped(gpu->sched, vgpu->sched, bf_now_ns());
		gpu_trace(vgpu, TRACE_STOP, start_ns, 0);
	} else {
		gpu_trace(vgpu, TRACE_SLICE, start_ns, order->timeslice_us);
	}
	vgpu_unpin(vgpu);
}

static uint64_t next_look_ns(const struct gpu *gpu)
{
	uint64_t next = bf_min(sched_wake_ns(gpu->sched), meter_next_ns(gpu));

	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->is_told_running && !vgpu_is_stopped(v) && v->order == VGPU_FREE)
			next = bf_min(next, v->probe_ns);
	return next;
}

static void wait_until(struct gpu *gpu, uint64_t until_ns)
{
	struct pollfd fd = { gpu->turner_wake, POLLIN, 0 };
	uint64_t now_ns = bf_now_ns(), ns = until_ns > now_ns ? until_ns - now_ns : 0, count;
	struct timespec limit = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	if (ppoll(&fd, 1, until_ns == SCHED_NEVER ? NULL : &limit, NULL) > 0 &&
	    read(gpu->turner_wake, &count, sizeof(count)) < 0)
		bf_log(BF_LOG_DEBUG, "turner: %s", strerror(errno));
}

static void *turner_main(void *arg)
{
	struct gpu *gpu = arg;
	struct sched_order order;
	uint64_t next_ns, want;

	prctl(PR_SET_NAME, "belfry-turner");
	prctl(PR_SET_TIMERSLACK, 1);
	while (!gpu->is_ending) {
		gpu_lock(gpu);
		want = gpu->turner_want;
		look(gpu);
		meter_look(gpu, bf_now_ns());
		while (sched_next(gpu->sched, bf_now_ns(), &order))
			carry_out(gpu, &order);
		next_ns = next_look_ns(gpu);
		gpu->turner_seen = want;
		pthread_cond_broadcast(&gpu->turned);
		gpu_unlock(gpu);
		wait_until(gpu, next_ns);
	}
	return NULL;
}

int turner_start(struct gpu *gpu, struct bf_error *err)
{
	int rc = pthread_create(&gpu->turner, NULL, turner_main, gpu);

	if (rc)
		return bf_fail(err, rc, "no thread for the turns: %s", strerror(rc));
	gpu->has_turner = true;
	return 0;
}

void turner_end(struct gpu *gpu)
{
	gpu->is_ending = true;
	turner_wake(gpu);
	if (gpu->has_turner)
		pthread_join(gpu->turner, NULL);
	gpu->has_turner = false;
}

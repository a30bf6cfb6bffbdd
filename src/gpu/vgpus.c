/* Creates, changes and removes vGPUs. Only the main thread does this. The turner may use a vGPU meanwhile. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/units.h"
#include "gpu/gpu.h"

enum { AGAIN_MS = 1000 };

struct sched_share gpu_sched_share(const struct spec *spec, uint32_t domain)
{
	return (struct sched_share){ .request_ppm = spec->request_ppm,
				     .limit_ppm = spec->limit_ppm,
				     .class = spec->class == SPEC_LATENCY ? SCHED_LATENCY : SCHED_THROUGHPUT,
				     .objective_ns = spec->percentile_ppm ? spec->objective_us * 1000 : 0,
				     .percentile_ppm = spec->percentile_ppm,
				     .domain = domain,
				     .timeslice_us = spec->timeslice_us,
				     .interleave = spec->interleave };
}

struct vgpu *vgpu_by_id(const struct gpu *gpu, uint64_t id)
{
	for (struct vgpu *v = gpu->vgpus; id && v; v = v->next)
		if (v->id == id)
			return v;
	return NULL;
}

struct vgpu *vgpu_find(const struct gpu *gpu, const char *name)
{
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (!strcmp(v->name, name))
			return v;
	return NULL;
}

bool vgpu_may_change(const struct vgpu *vgpu, uid_t uid)
{
	return uid == 0 || uid == vgpu->owner;
}

bool vgpu_may_use(const struct vgpu *vgpu, uid_t uid)
{
	return vgpu->spec.is_public || vgpu_may_change(vgpu, uid);
}

uint64_t gpu_reserved_bytes(const struct gpu *gpu, const struct vgpu *but)
{
	uint64_t sum = 0;

	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		sum += v == but ? 0 : v->spec.mem_bytes;
	return sum;
}

/* For a vGPU without a warden, which has had no run yet. Otherwise warden_set_mem() changes the promise. */
static int promise_mem(const struct gpu *gpu, uint64_t before, uint64_t after, struct bf_error *err)
{
	struct pool_change change = { .promised_before = before, .promised_after = after };

	return pool_promise(gpu->pool, &change, err);
}

static int check_mem(const struct gpu *gpu, uint64_t bytes, struct bf_error *err)
{
	uint64_t total = gpu->device->mem_bytes;
	char want[24], all[24];

	if (bytes <= total)
		return 0;
	return bf_fail(err, ERANGE, "memory %s: larger than the GPU, which has %s; ask for less",
		       bf_format_size(bytes, want, sizeof(want)), bf_format_size(total, all, sizeof(all)));
}

static struct vgpu *add(struct gpu *gpu, const struct vgpu *values, const struct sched_share *share)
{
	struct vgpu *vgpu = calloc(1, sizeof(*vgpu));

	if (!vgpu)
		return NULL;
	*vgpu = *values;
	vgpu->sched = sched_add(gpu->sched, share, vgpu, bf_now_ns());
	if (!vgpu->sched) {
		free(vgpu);
		return NULL;
	}
	vgpu->id = sched_id(vgpu->sched);
	vgpu->next = gpu->vgpus;
	gpu->vgpus = vgpu;
	gpu->vgpu_count++;
	return vgpu;
}

struct vgpu *vgpu_create(struct gpu *gpu, const char *name, const struct spec *spec, uid_t owner,
			 unsigned flags, struct bf_error *err)
{
	struct sched_share share;
	struct vgpu *vgpu, values;

	if (spec_check_name(name, err) || spec_check(spec, err))
		return NULL;
	if (vgpu_find(gpu, name)) {
		bf_fail(err, EEXIST, "name '%s': a vGPU of this name is there already; choose another", name);
		return NULL;
	}
	share = gpu_sched_share(spec, domain_number(gpu, NULL, spec->domain, owner));
	if (check_mem(gpu, spec->mem_bytes, err) || domain_check_sm(gpu, NULL, spec, owner, err) ||
	    sched_check(gpu->sched, &share, NULL, err) || promise_mem(gpu, 0, spec->mem_bytes, err))
		return NULL;
	values = (struct vgpu){ .gpu = gpu,
				.spec = *spec,
				.owner = owner,
				.domain = share.domain,
				.is_ephemeral = flags & VGPU_IS_EPHEMERAL,
				.is_hidden = flags & VGPU_IS_HIDDEN,
				.worker_wake = -1,
				.is_quiet = true,
				.made_s = (uint64_t)time(NULL),
				.track = ++gpu->next_track };
	snprintf(values.name, sizeof(values.name), "%s", name);
	vgpu = add(gpu, &values, &share);
	if (!vgpu) {
		promise_mem(gpu, spec->mem_bytes, 0, NULL);
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	trace_name(vgpu);
	gpu_trace(vgpu, TRACE_HERE, bf_now_ns(), 0);
	if (!vgpu->is_hidden)
		gpu_hall_tell_vgpu(gpu, vgpu);
	policy_tell(vgpu, BELFRY_HOOK_VGPU_INIT);
	work_share(vgpu);
	return vgpu;
}

void vgpu_pin(struct vgpu *vgpu)
{
	vgpu->pins++;
}

void vgpu_unpin(struct vgpu *vgpu)
{
	if (!--vgpu->pins)
		pthread_cond_broadcast(&vgpu->gpu->unpinned);
}

static void wait_unpinned(struct vgpu *vgpu)
{
	while (vgpu->pins)
		pthread_cond_wait(&vgpu->gpu->unpinned, &vgpu->gpu->lock);
}

/* The warden is called without the lock, because this may wait for a driver call. */
static int set_mem(struct vgpu *vgpu, uint64_t bytes, struct bf_error *err)
{
	int rc = check_mem(vgpu->gpu, bytes, err);

	if (rc)
		return rc;
	if (!vgpu->warden)
		return promise_mem(vgpu->gpu, vgpu->spec.mem_bytes, bytes, err);
	gpu_unlock(vgpu->gpu);
	rc = warden_set_mem(vgpu->warden, bytes, err);
	gpu_lock(vgpu->gpu);
	return rc;
}

/* In another domain there is another MPS server, or none. */
static void set_lenders(struct gpu *gpu)
{
	if (LIST_EMPTY(&gpu->mps))
		return;
	gpu_unlock(gpu);
	mps_lend(gpu);
	gpu_lock(gpu);
}

/* A client of an MPS server cannot change to another one. */
static int check_leave(const struct vgpu *vgpu, struct bf_error *err)
{
	for (const struct run *r = vgpu->runs; r; r = r->next)
		if (r->mps)
			return bf_fail(
				err, EBUSY,
				"%s: its programs share a GPU context with domain '%s'; end them first",
				vgpu->name, vgpu->spec.domain);
	return 0;
}

int vgpu_set(struct vgpu *vgpu, const struct spec *spec, uint32_t parts, struct bf_error *err)
{
	struct gpu *gpu = vgpu->gpu;
	struct spec next = vgpu->spec;
	struct sched_share share;
	uint32_t domain = vgpu->domain;
	int rc;

	spec_merge(&next, spec, parts);
	rc = spec_check(&next, err);
	if (rc)
		return rc;
	if (strcmp(next.domain, vgpu->spec.domain)) {
		rc = check_leave(vgpu, err);
		if (rc)
			return rc;
		domain = domain_number(gpu, vgpu, next.domain, vgpu->owner);
	}
	share = gpu_sched_share(&next, domain);
	rc = domain_check_sm(gpu, vgpu, &next, vgpu->owner, err);
	if (!rc)
		rc = sched_check(gpu->sched, &share, vgpu->sched, err);
	if (!rc && parts & SPEC_MEM)
		rc = set_mem(vgpu, next.mem_bytes, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&gpu->policy_lock); /* the worker reads it without gpu::lock */
	vgpu->spec = next;
	pthread_mutex_unlock(&gpu->policy_lock);
	vgpu->domain = domain;
	sched_set(gpu->sched, vgpu->sched, &share, bf_now_ns());
	gpu_trace(vgpu, TRACE_SET, bf_now_ns(), next.request_ppm);
	gpu_hall_tell_vgpu(gpu, vgpu);
	policy_tell(vgpu, BELFRY_HOOK_VGPU_SET);
	work_share(vgpu);
	if (parts & SPEC_DOMAIN)
		set_lenders(gpu);
	lease_changed(vgpu);
	turner_wait(gpu);
	return 0;
}

static struct hall_account account_of(const struct vgpu *vgpu, const struct sched_report *report)
{
	struct warden_report warden = { 0 };

	if (vgpu->warden)
		warden_report(vgpu->warden, &warden);
	return (struct hall_account){ .made_s = vgpu->made_s,
				      .gpu_ns = report->gpu_ns,
				      .waited_ns = report->waited_ns,
				      .mem_most_bytes = warden.mem_most_bytes,
				      .mem_promised_bytes = vgpu->spec.mem_bytes,
				      .runs = vgpu->runs_ever };
}

void vgpu_remove(struct vgpu *vgpu, const char *why)
{
	struct gpu *gpu = vgpu->gpu;
	struct sched_report report;
	struct hall_account account;
	struct vgpu **at;

	vgpu->is_ephemeral = false; /* run_end() must not remove it again */
	while (vgpu->runs)
		run_end(vgpu->runs, why);
	/* A client that was about to run on it gets an error. */
	for (struct talker *t = LIST_FIRST(&gpu->talkers); t; t = LIST_NEXT(t, next))
		if (t->vgpu == vgpu)
			t->vgpu = NULL;
	lease_leave(vgpu);
	probes_leave(vgpu);
	wait_unpinned(vgpu);
	limits_end(vgpu);
	faults_end(vgpu);
	policy_leave(vgpu);
	wait_unpinned(vgpu); /* policy_leave() has released the lock */
	sched_report(gpu->sched, vgpu->sched, &report);
	gpu->past_gpu_ns += report.gpu_ns;
	sched_remove(gpu->sched, vgpu->sched, bf_now_ns());
	for (at = &gpu->vgpus; *at != vgpu; at = &(*at)->next)
		;
	*at = vgpu->next;
	gpu->vgpu_count--;
	gpu_trace(vgpu, TRACE_GONE, bf_now_ns(), 0);
	gpu_unlock(gpu);
	account = account_of(vgpu, &report); /* without the lock: may wait for a driver call */
	gpu_lock(gpu);
	if (!vgpu->is_hidden)
		gpu_hall_tell_gone(gpu, vgpu, &account);
	gpu_unlock(gpu);
	vgpu_end_worker(vgpu);
	warden_free(vgpu->warden);
	promise_mem(gpu, vgpu->spec.mem_bytes, 0, NULL); /* not before its memory is free */
	faults_log(vgpu);
	free(vgpu);
	gpu_lock(gpu);
}

static bool is_free(enum protocol_op op)
{
	return op == PROTOCOL_OPEN || op == PROTOCOL_RESUME;
}

/* Without the lock, because a stop takes a while. */
static int tell_warden(struct vgpu *vgpu, enum protocol_op op, struct bf_error *err)
{
	int rc = 0;

	if (!vgpu->warden)
		return 0;
	vgpu_pin(vgpu);
	gpu_unlock(vgpu->gpu);
	if (!is_free(op))
		warden_close(vgpu->warden);
	if (op == PROTOCOL_STOP)
		rc = warden_stop(vgpu->warden, err);
	else if (is_free(op))
		rc = warden_resume(vgpu->warden, err);
	gpu_lock(vgpu->gpu);
	vgpu_unpin(vgpu);
	return rc;
}

/* Report the order to sched, which schedules the vGPU again if it is free. */
static void tell_sched(struct vgpu *vgpu, enum protocol_op op)
{
	struct sched *sched = vgpu->gpu->sched;
	uint64_t now_ns = bf_now_ns();

	if (op == PROTOCOL_STOP)
		sched_stopped(sched, vgpu->sched, now_ns);
	else if (is_free(op))
		sched_resumed(sched, vgpu->sched, now_ns);
	sched_hold(sched, vgpu->sched, vgpu->order != VGPU_FREE, now_ns);
	turner_note(vgpu);
	turner_wait(vgpu->gpu); /* the answer follows when the gate is open, or waits for its turn */
}

/* The state that an order leads to. Hold and stop are independent: resume ends a stop and leaves a hold. Open ends
 * both, so that it never succeeds without an effect. docs/sharing.md has the table. */
static enum vgpu_order next_order(const struct vgpu *vgpu, enum protocol_op op, unsigned *holds)
{
	bool is_stopped = op == PROTOCOL_STOP || (op == PROTOCOL_HOLD && vgpu->order == VGPU_STOPPED);

	*holds = vgpu->holds;
	if (op == PROTOCOL_HOLD)
		*holds |= VGPU_HOLD_OPERATOR;
	else if (op == PROTOCOL_OPEN)
		*holds &= ~(unsigned)VGPU_HOLD_OPERATOR;
	return is_stopped ? VGPU_STOPPED : *holds ? VGPU_HELD : VGPU_FREE;
}

/* A hold has a time, a stop keeps that of the hold before, and the operator holds nothing after open. */
static void note_hold(struct vgpu *vgpu, enum protocol_op op, unsigned holds, uint64_t for_us)
{
	vgpu->holds = holds;
	if (op == PROTOCOL_HOLD && for_us)
		vgpu->open_ns = bf_now_ns() + for_us * 1000;
	else if (op == PROTOCOL_HOLD || !(holds & VGPU_HOLD_OPERATOR))
		vgpu->open_ns = 0;
}

/* The operator's order takes precedence over sched, which regards the vGPU as held until it is free again. */
int vgpu_order(struct vgpu *vgpu, enum protocol_op op, uint64_t for_us, struct bf_error *err)
{
	static const enum trace_kind traces[] = {
		[VGPU_FREE] = TRACE_RESUME, [VGPU_HELD] = TRACE_CLOSE, [VGPU_STOPPED] = TRACE_STOP
	};
	struct gpu *gpu = vgpu->gpu;
	enum vgpu_order next;
	unsigned holds;
	int rc;

	wait_unpinned(vgpu);
	if (op == PROTOCOL_OPEN && vgpu->order == VGPU_HELD && vgpu->holds == VGPU_HOLD_LEASE)
		return bf_fail(err, EBUSY,
			       "%s: its gate is closed until its programs have given back SMs; see belfry "
			       "explain %s",
			       vgpu->name, vgpu->name);
	next = next_order(vgpu, op, &holds);
	if (next == vgpu->order) {
		note_hold(vgpu, op, holds, for_us);
		return 0;
	}
	sched_hold(gpu->sched, vgpu->sched, true, bf_now_ns());
	rc = tell_warden(vgpu, op, err);
	if (rc) {
		sched_hold(gpu->sched, vgpu->sched, vgpu->order != VGPU_FREE, bf_now_ns());
		turner_wake(gpu);
		return rc;
	}
	vgpu->order = next;
	note_hold(vgpu, op, holds, for_us);
	if (op == PROTOCOL_RESUME)
		gpu_trace(vgpu, TRACE_RESUME, bf_now_ns(), 0);
	if (op != PROTOCOL_RESUME || next == VGPU_HELD)
		gpu_trace(vgpu, traces[next], bf_now_ns(), 0);
	event_order(vgpu);
	tell_sched(vgpu, op);
	return 0;
}

/* Work that sched has stopped runs to its end: the holder must be able to give back its SMs. */
static void close_for_lease(struct vgpu *vgpu)
{
	struct bf_error err = { 0 };

	vgpu_pin(vgpu);
	gpu_unlock(vgpu->gpu);
	warden_close(vgpu->warden);
	if (warden_resume(vgpu->warden, &err))
		bf_log(BF_LOG_WARN, "%s: %s", vgpu->name, err.text);
	gpu_lock(vgpu->gpu);
	vgpu_unpin(vgpu);
}

void vgpu_hold_lease(struct vgpu *vgpu, bool is_held)
{
	struct sched *sched = vgpu->gpu->sched;
	enum vgpu_order next;

	wait_unpinned(vgpu);
	if (is_held)
		vgpu->holds |= VGPU_HOLD_LEASE;
	else
		vgpu->holds &= ~(unsigned)VGPU_HOLD_LEASE;
	next = vgpu->order == VGPU_STOPPED ? VGPU_STOPPED : vgpu->holds ? VGPU_HELD : VGPU_FREE;
	if (next == vgpu->order)
		return;
	sched_hold(sched, vgpu->sched, true, bf_now_ns());
	if (is_held && vgpu->warden)
		close_for_lease(vgpu);
	vgpu->order = next;
	gpu_trace(vgpu, next == VGPU_HELD ? TRACE_CLOSE : TRACE_RESUME, bf_now_ns(), 0);
	sched_resumed(sched, vgpu->sched, bf_now_ns());
	sched_hold(sched, vgpu->sched, next != VGPU_FREE, bf_now_ns());
	turner_note(vgpu);
	turner_wake(vgpu->gpu);
}

uint64_t vgpus_due_ns(const struct gpu *gpu)
{
	uint64_t due = 0;

	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->open_ns && v->holds & VGPU_HOLD_OPERATOR && (!due || v->open_ns < due))
			due = v->open_ns;
	return due;
}

/* The time of a hold is over. A stop stays. */
static void end_hold(struct vgpu *vgpu, uint64_t now_ns)
{
	struct bf_error err = { 0 };

	if (vgpu->order == VGPU_STOPPED) {
		note_hold(vgpu, PROTOCOL_OPEN, vgpu->holds & ~(unsigned)VGPU_HOLD_OPERATOR, 0);
	} else if (vgpu_order(vgpu, PROTOCOL_OPEN, 0, &err)) {
		bf_log(BF_LOG_WARN, "%s: %s", vgpu->name, err.text);
		vgpu->open_ns = now_ns + AGAIN_MS * 1000000ull;
	}
}

void vgpus_end_holds(struct gpu *gpu, uint64_t now_ns)
{
	if (!vgpus_due_ns(gpu) || vgpus_due_ns(gpu) > now_ns)
		return;

	gpu_lock(gpu);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->open_ns && v->open_ns <= now_ns && v->holds & VGPU_HOLD_OPERATOR)
			end_hold(v, now_ns);
	gpu_unlock(gpu);
}

/* Events of a GPU, for belfryd: what programs and policies do. The server does not wait for belfryd: events that its
 * socket does not accept are counted, and the next event carries the count. Events that a program can cause at any
 * rate are reported at intervals, with a count. Main thread only, unless noted otherwise. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/units.h"
#include "gpu/policy.h"

static const uint64_t memory_every_ns = 10000000000ull, time_every_ns = 60000000000ull;

void gpu_event(struct gpu *gpu, const struct vgpu *vgpu, struct event *event)
{
	protocol_gpu_name(&gpu->which, event->gpu, sizeof(event->gpu));
	if (vgpu) {
		event->flags |= EVENT_HAS_OWNER;
		event->owner = vgpu->owner;
		memcpy(event->vgpu, vgpu->name, sizeof(event->vgpu));
	}
	event->lost = gpu->events_lost;
	if (gpu_hall_tell_event(gpu, event))
		gpu->events_lost = 0;
	else
		gpu->events_lost++;
}

static struct event event_of_run(enum event_kind kind, const struct run *run)
{
	struct event event = event_make(kind);

	event.pid = run->program_pid;
	memcpy(event.subject, run->program, sizeof(event.subject));
	if (run->attached) {
		snprintf(event.kind_of, sizeof(event.kind_of), "%s", attached_kind(run->attached));
		snprintf(event.id, sizeof(event.id), "%s", attached_id(run->attached));
	}
	return event;
}

void event_run_started(const struct run *run)
{
	struct event event = event_of_run(EVENT_RUN_STARTED, run);

	if (run->attached)
		event_say(&event, "%s %s, attached by user %u", event.kind_of, run->program, run->uid);
	else
		event_say(&event, "%s (process %d) of user %u", run->program, run->program_pid, run->uid);
	gpu_event(run->vgpu->gpu, run->vgpu, &event);
}

void event_run_ended(const struct run *run, const char *why)
{
	struct event event = event_of_run(EVENT_RUN_ENDED, run);
	const char *program = run->program;
	int pid = run->program_pid;

	if (run->has_status) {
		event.flags = EVENT_HAS_STATUS;
		event.status = run->status;
	}
	if (why)
		event_say(&event, "%s (process %d): %s", program, pid, why);
	else if (run->attached)
		event_say(&event, "%s %s: its last process has ended", event.kind_of, program);
	else if (!run->has_status)
		event_say(&event, "%s (process %d): its belfry has ended", program, pid);
	else if (WIFSIGNALED(run->status))
		event_say(&event, "%s (process %d): signal %d", program, pid, WTERMSIG(run->status));
	else
		event_say(&event, "%s (process %d): exit status %d", program, pid, WEXITSTATUS(run->status));
	gpu_event(run->vgpu->gpu, run->vgpu, &event);
}

void event_order(struct vgpu *vgpu)
{
	struct event event = event_make(EVENT_VGPU_CHANGED);

	event_say(&event, "%s",
		  vgpu->order == VGPU_STOPPED ? "stopped"
		  : vgpu->order == VGPU_HELD  ? "its gate is closed"
					      : "its gate is open");
	gpu_event(vgpu->gpu, vgpu, &event);
}

void event_mps_ended(struct vgpu *vgpu, const char *text)
{
	struct event event = event_make(EVENT_MPS_ENDED);

	event_say(&event, "%s", text);
	gpu_event(vgpu->gpu, vgpu, &event);
}

void event_lease(struct vgpu *vgpu, const char *text)
{
	struct event event = event_make(EVENT_VGPU_CHANGED);

	event_say(&event, "%s", text);
	gpu_event(vgpu->gpu, vgpu, &event);
}

void event_fault(struct vgpu *vgpu, const struct fault *fault)
{
	struct event event = event_make(EVENT_FAULT);
	const char *what = fault_words(fault->code);

	event.pid = fault->pid;
	event_say(&event, "Xid %u%s%s ended a context of process %d", fault->code, what ? ", " : "",
		  what ? what : "", fault->pid);
	gpu_event(vgpu->gpu, vgpu, &event);
}

void event_policy(struct gpu *gpu, const struct vgpu *vgpu, enum event_kind kind, const char *policy,
		  const char *text)
{
	struct event event = event_make(kind);

	snprintf(event.subject, sizeof(event.subject), "%s", policy);
	event_say(&event, "%s: %s", policy, text);
	gpu_event(gpu, vgpu, &event);
}

/* Under the warden's lock, and so without gpu::lock. */
void limit_memory(struct vgpu *vgpu, pid_t pid, uint64_t bytes)
{
	pthread_mutex_lock(&vgpu->gpu->policy_lock);
	vgpu->limited.pid = pid;
	vgpu->limited.bytes = bytes;
	vgpu->limited.memory++;
	pthread_mutex_unlock(&vgpu->gpu->policy_lock);
	/* The main thread is woken once, not again until it has reported. */
	if (!atomic_exchange(&vgpu->limited.has_memory, true))
		gpu_wake(vgpu->gpu);
}

/* With the lock. Called by the turner when it measures. */
void limit_time(struct vgpu *vgpu)
{
	uint64_t limited_ns = sched_counts(vgpu->gpu->sched, vgpu->sched).limited_ns;

	if (limited_ns > vgpu->limited.told_ns && !atomic_exchange(&vgpu->limited.has_time, true))
		gpu_wake(vgpu->gpu);
}

static void tell_memory(struct vgpu *vgpu, uint64_t now_ns)
{
	struct event event = event_make(EVENT_MEMORY_REFUSED);
	char size[24], limit[24];
	uint64_t count;

	vgpu->limited.memory_ns = now_ns + memory_every_ns;
	vgpu->limited.has_memory = false;
	pthread_mutex_lock(&vgpu->gpu->policy_lock);
	event.pid = vgpu->limited.pid;
	bf_format_size(vgpu->limited.bytes, size, sizeof(size));
	count = vgpu->limited.memory;
	vgpu->limited.memory = 0;
	pthread_mutex_unlock(&vgpu->gpu->policy_lock);
	if (vgpu->spec.mem_bytes)
		bf_format_size(vgpu->spec.mem_bytes, limit, sizeof(limit));
	else
		snprintf(limit, sizeof(limit), "none");
	event_say(&event, "process %d was refused %s, the limit is %s; %" PRIu64 " refusal%s", event.pid,
		  size, limit, count, count == 1 ? "" : "s");
	gpu_event(vgpu->gpu, vgpu, &event);
}

static void tell_time(struct vgpu *vgpu, uint64_t now_ns)
{
	struct event event = event_make(EVENT_TIME_LIMITED);
	uint64_t limited_ns = sched_counts(vgpu->gpu->sched, vgpu->sched).limited_ns;

	event_say(&event, "its time limit of %.4g %% has held it up for %.3f s", vgpu->spec.limit_ppm / 1e4,
		  (double)(limited_ns - vgpu->limited.told_ns) / 1e9);
	vgpu->limited.time_ns = now_ns + time_every_ns;
	vgpu->limited.told_ns = limited_ns;
	vgpu->limited.has_time = false;
	gpu_event(vgpu->gpu, vgpu, &event);
}

uint64_t limits_due_ns(const struct gpu *gpu)
{
	uint64_t due = 0;

	for (const struct vgpu *v = gpu->vgpus; v; v = v->next) {
		if (v->limited.has_memory && (!due || v->limited.memory_ns < due))
			due = v->limited.memory_ns ? v->limited.memory_ns : 1;
		if (v->limited.has_time && (!due || v->limited.time_ns < due))
			due = v->limited.time_ns ? v->limited.time_ns : 1;
	}
	return due;
}

void limits_tell(struct gpu *gpu, uint64_t now_ns)
{
	uint64_t due_ns = limits_due_ns(gpu);

	if (!due_ns || due_ns > now_ns)
		return;
	gpu_lock(gpu);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		if (v->limited.has_memory && v->limited.memory_ns <= now_ns)
			tell_memory(v, now_ns);
		if (v->limited.has_time && v->limited.time_ns <= now_ns)
			tell_time(v, now_ns);
	}
	gpu_unlock(gpu);
}

void limits_end(struct vgpu *vgpu)
{
	if (vgpu->limited.has_memory)
		tell_memory(vgpu, bf_now_ns());
	if (vgpu->limited.has_time)
		tell_time(vgpu, bf_now_ns());
}

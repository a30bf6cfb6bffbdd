/* Faults of programs on the GPU. A warden finds them. Policies are called with gpu::lock and the table, which wardens
 * must not wait for, so the main thread reports them. */
#include "base/log.h"
#include "gpu/policy.h"

const char *fault_words(uint32_t code)
{
	switch (code) {
	case 13:
		return "an error in a kernel";
	case 31:
		return "an invalid address";
	case 32:
		return "invalid GPU commands";
	case 43:
		return "its context was reset";
	case 48:
	case 94:
	case 95:
		return "a memory error of the hardware";
	default:
		return NULL;
	}
}

void fault_came(struct vgpu *vgpu, pid_t pid, uint32_t code)
{
	struct fault fault = { .at_ns = bf_now_ns(), .pid = pid, .code = code };

	pthread_mutex_lock(&vgpu->gpu->policy_lock);
	/* Faults beyond the size of the array are dropped. */
	if (vgpu->new_fault_count < VGPU_FAULTS)
		vgpu->new_faults[vgpu->new_fault_count++] = fault;
	pthread_mutex_unlock(&vgpu->gpu->policy_lock);
	gpu_wake(vgpu->gpu);
}

static unsigned take(struct vgpu *vgpu, struct fault *to)
{
	unsigned count;

	pthread_mutex_lock(&vgpu->gpu->policy_lock);
	count = vgpu->new_fault_count;
	for (unsigned i = 0; i < count; i++)
		to[i] = vgpu->new_faults[i];
	vgpu->new_fault_count = 0;
	pthread_mutex_unlock(&vgpu->gpu->policy_lock);
	return count;
}

static void log_fault(const struct vgpu *vgpu, const struct fault *fault)
{
	const char *what = fault_words(fault->code);

	bf_log(BF_LOG_WARN, "%s: a fault on the GPU ended a context of process %d: Xid %u%s%s", vgpu->name,
	       fault->pid, fault->code, what ? ", " : "", what ? what : "");
}

static void tell(struct vgpu *vgpu, const struct fault *fault)
{
	struct belfry_fault ctx = { .id = vgpu->id, .pid = (uint32_t)fault->pid, .code = fault->code },
			    own = ctx;

	vgpu->fault_count++;
	vgpu->last_fault = *fault;
	log_fault(vgpu, fault);
	event_fault(vgpu, fault);
	gpu_trace(vgpu, TRACE_FAULT, fault->at_ns, fault->code);
	sched_ask(vgpu->gpu->sched, BELFRY_HOOK_FAULT, vgpu->sched, &ctx, sizeof(ctx), bf_now_ns());
	seat_call(vgpu->seat, BELFRY_HOOK_FAULT, &own, sizeof(own));
}

static void tell_all(struct vgpu *vgpu)
{
	struct fault faults[VGPU_FAULTS];
	unsigned count = take(vgpu, faults);

	for (unsigned i = 0; i < count; i++)
		tell(vgpu, &faults[i]);
}

void faults_tell(struct gpu *gpu)
{
	gpu_lock(gpu);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		tell_all(v);
	gpu_unlock(gpu);
}

void faults_find(struct gpu *gpu)
{
	gpu->device->ops->hear_fault(gpu->device);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->warden)
			warden_tell_faults(v->warden);
	faults_tell(gpu);
}

/* Does not wait for a busy warden, because a client may wait for the name of this vGPU. */
void faults_end(struct vgpu *vgpu)
{
	if (vgpu->warden)
		warden_try_tell_faults(vgpu->warden);
	tell_all(vgpu);
}

void faults_log(struct vgpu *vgpu)
{
	struct fault faults[VGPU_FAULTS];
	unsigned count = take(vgpu, faults);

	for (unsigned i = 0; i < count; i++)
		log_fault(vgpu, &faults[i]);
}

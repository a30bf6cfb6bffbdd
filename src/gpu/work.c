/* Records of work, for followers: when it came, when it was done, and the counters at that time. src/replay replays
 * them under another policy. Without such a follower only the times are kept. */
#include <stdio.h>

#include "gpu/policy.h"

static bool is_wanted(const struct follower *follower, uint64_t id)
{
	return follower->wants_work && (!follower->id || !id || follower->id == id);
}

static bool is_anybody_told(const struct gpu *gpu)
{
	for (const struct follower *f = gpu->followers; f; f = f->next)
		if (f->wants_work)
			return true;
	return false;
}

/* To one follower, or to all that want it. */
static void tell(struct gpu *gpu, struct follower *only, enum record_kind kind, uint64_t id, const void *what,
		 size_t bytes)
{
	if (!record_make_other(kind, bf_now_ns(), what, bytes, gpu->follow_entry, RECORD_ENTRY_MAX))
		return;
	for (struct follower *f = gpu->followers; f; f = f->next)
		if ((!only || f == only) && is_wanted(f, id))
			follower_tell(f, gpu->follow_entry);
}

static void tell_setup(struct gpu *gpu, struct follower *only)
{
	struct sched_options options = gpu_sched_options(gpu);
	struct record_setup setup = record_setup_of(&options);

	setup.is_soft = gpu->which.kind == PROTOCOL_GPU_SOFT;
	snprintf(setup.policy, sizeof(setup.policy), "%s", policy_name_of(gpu, NULL));
	tell(gpu, only, RECORD_SETUP, 0, &setup, sizeof(setup));
}

static void tell_share(struct vgpu *vgpu, struct follower *only)
{
	struct sched_share is = gpu_sched_share(&vgpu->spec, vgpu->domain);
	struct record_share share = record_share_of(&is);

	share.id = vgpu->id;
	snprintf(share.name, sizeof(share.name), "%.*s", (int)sizeof(share.name) - 1, vgpu->name);
	tell(vgpu->gpu, only, RECORD_SHARE, vgpu->id, &share, sizeof(share));
}

static void tell_work(struct vgpu *vgpu, struct follower *only, enum record_work_what what, uint64_t came_ns,
		      uint64_t end_ns)
{
	struct record_work work = { .id = vgpu->id, .what = what, .came_ns = came_ns, .end_ns = end_ns };
	struct sched_counts counts = sched_counts(vgpu->gpu->sched, vgpu->sched);

	if (!is_anybody_told(vgpu->gpu))
		return;
	work.gpu_ns = counts.gpu_ns;
	work.held_ns = counts.held_ns;
	work.alone_ns = counts.alone_ns;
	work.anybody_ns = counts.any_held_ns;
	work.grants = counts.grants;
	work.stops = counts.stops;
	if (vgpu->warden)
		work.submitted = gate_vgpu_counts(warden_gate(vgpu->warden)).forwards;
	tell(vgpu->gpu, only, RECORD_WORK, vgpu->id, &work, sizeof(work));
}

void work_came(struct vgpu *vgpu, uint64_t came_ns)
{
	if (vgpu->came_ns)
		return; /* not the first */
	vgpu->came_ns = came_ns;
	tell_work(vgpu, NULL, RECORD_CAME, came_ns, 0);
}

void work_done(struct vgpu *vgpu, uint64_t end_ns, uint64_t next_ns)
{
	uint64_t came_ns = vgpu->came_ns;

	vgpu->came_ns = 0;
	if (came_ns)
		tell_work(vgpu, NULL, RECORD_DONE, came_ns, end_ns > came_ns ? end_ns : came_ns);
	if (next_ns)
		work_came(vgpu, next_ns);
}

void work_note(struct vgpu *vgpu)
{
	bool is_here = vgpu->runs != NULL, is_held = vgpu->order != VGPU_FREE;

	if (!is_here)
		vgpu->came_ns = 0;
	if (is_here != vgpu->is_told_here)
		tell_work(vgpu, NULL, is_here ? RECORD_HERE : RECORD_GONE, 0, 0);
	if (is_held != vgpu->is_told_held)
		tell_work(vgpu, NULL, is_held ? RECORD_HELD : RECORD_FREE, 0, 0);
	vgpu->is_told_here = is_here;
	vgpu->is_told_held = is_held;
}

void work_read(struct gpu *gpu)
{
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->runs)
			tell_work(v, NULL, RECORD_READ, 0, 0);
}

void work_share(struct vgpu *vgpu)
{
	if (is_anybody_told(vgpu->gpu))
		tell_share(vgpu, NULL);
}

void work_setup(struct gpu *gpu)
{
	if (is_anybody_told(gpu))
		tell_setup(gpu, NULL);
}

void work_introduce(struct gpu *gpu, struct follower *follower)
{
	tell_setup(gpu, follower);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		tell_share(v, follower);
		tell_work(v, follower, RECORD_READ, 0, 0);
		if (v->is_told_held)
			tell_work(v, follower, RECORD_HELD, 0, 0);
		if (v->is_told_here)
			tell_work(v, follower, RECORD_HERE, 0, 0);
		if (v->came_ns)
			tell_work(v, follower, RECORD_CAME, v->came_ns, 0);
	}
}

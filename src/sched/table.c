/* The table of vGPUs that a decision is made on, in the ABI of policies (belfry/policy.h). */
#include <errno.h>
#include <stdlib.h>

#include "sched/state.h"

int table_reserve(struct sched *sched, size_t count)
{
	size_t room = sched->room ? 2 * sched->room : 16;
	struct belfry_vgpu *table;
	struct sched_vgpu **entries;

	if (count <= sched->room)
		return 0;
	table = realloc(sched->table, room * sizeof(*table));
	if (!table)
		return -ENOMEM;
	sched->table = table;
	entries = realloc(sched->entries, room * sizeof(void *));
	if (!entries)
		return -ENOMEM;
	sched->entries = entries;
	sched->room = room;
	return 0;
}

static uint32_t flags_of(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	bool may_have = vgpu_may_have_token(sched, vgpu) && !vgpu_is_with_holder(sched, vgpu);

	return (vgpu->is_waiting ? BELFRY_WAITS : 0u) | (vgpu->is_running ? BELFRY_RUNS : 0u) |
	       (may_have ? BELFRY_MAY_HAVE : 0u) | (vgpu == sched->holder ? BELFRY_HOLDS : 0u) |
	       (vgpu->is_rider ? BELFRY_RIDES : 0u) | (vgpu->is_spent ? BELFRY_SPENT : 0u) |
	       (vgpu_is_overdue(sched, vgpu) ? BELFRY_OVERDUE : 0u);
}

static void describe(const struct sched *sched, const struct sched_vgpu *v, struct belfry_vgpu *to)
{
	uint64_t window = sched->options.window_ns;

	*to = (struct belfry_vgpu){
		.id = v->id,
		.flags = flags_of(sched, v),
		.class = v->share.class == SCHED_LATENCY ? BELFRY_LATENCY : BELFRY_THROUGHPUT,
		.request_ppm = v->share.request_ppm,
		.limit_ppm = v->share.limit_ppm,
		.weight_ppm = (uint32_t)(vgpu_weight(sched, v) * SCHED_WHOLE_PPM + 0.5),
		.part_ppm = part_ppm(vgpu_part(sched, v)),
		.domain = v->share.domain,
		.percentile_ppm = v->share.percentile_ppm,
		.objective_ns = v->share.objective_ns,
		.tail_ns = v->tail_ns,
		.p50_ns = v->p50_ns,
		.samples = v->samples,
		.missed = v->missed,
		.pass_ns = v->pass,
		.owed_ns = (int64_t)v->owed_ns,
		.gpu_ns = v->gpu_ns,
		.window_used_ns = window_used(&v->window, window, sched->now_ns),
		.window_promised_ns = vgpu_window_promised_ns(sched, v),
		.allowance_ns = vgpu_allowance(sched, v),
		.slice_ns = v->slice_ns,
		.slice_left_ns = v->slice_left_ns,
		.wants_since_ns = vgpu_wants(v) ? v->wants_ns : 0,
		.deadline_ns = v->deadline_ns,
		.gap_ns = v->gap_ns,
		.burst_ns = v->burst_ns,
		.waited_ns = v->waited_ns,
		.grants = v->grants,
		.sm_ppm = busy_ppm(v, v->sm),
		.mem_ppm = busy_ppm(v, v->mem),
		.timeslice_us = v->timeslice_us,
		.interleave = v->interleave,
		.units = v->units,
		.units_all = v->units_all,
	};
}

uint32_t table_entry(const struct sched *sched, uint32_t count, const struct sched_vgpu *vgpu)
{
	for (uint32_t i = 0; vgpu && i < count; i++)
		if (sched->entries[i] == vgpu)
			return i;
	return BELFRY_NOBODY;
}

/* Which vGPUs are in the table: all with programs; where these are too many, those with work. Hundreds of idle vGPUs do not
 * keep a policy from deciding about the others. */
static bool belongs(const struct sched_vgpu *v, enum belfry_hook hook, bool is_full)
{
	switch (hook) {
	case BELFRY_HOOK_INIT:
	case BELFRY_HOOK_EXIT:
	case BELFRY_HOOK_VGPU_INIT:
	case BELFRY_HOOK_VGPU_EXIT:
	case BELFRY_HOOK_VGPU_SET:
		return false; /* except the vGPU that the hook is about */
	case BELFRY_HOOK_MEM_PRESSURE:
		return !is_full || v->is_present;
	default:
		return vgpu_is_on(v) || vgpu_wants(v) || v->is_active || (v->is_present && !is_full);
	}
}

static uint32_t fill(struct sched *sched, enum belfry_hook hook, const struct sched_vgpu *about, bool is_full)
{
	uint32_t count = 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		if (v == about || belongs(v, hook, is_full)) {
			vgpu_catch_up(sched, v);
			describe(sched, v, &sched->table[count]);
			sched->entries[count++] = v;
		}
	return count;
}

struct belfry_head table_head(const struct sched *sched, enum belfry_hook hook, size_t size)
{
	return (struct belfry_head){ .now_ns = sched->now_ns,
				     .hook = hook,
				     .size = (uint32_t)size,
				     .vgpu = BELFRY_NOBODY,
				     .window_ns = sched->options.window_ns,
				     .round_ns = sched->options.round_ns,
				     .slice_min_ns = sched->options.slice_min_ns,
				     .pass_ns = sched->pass };
}

struct belfry_head table_fill(struct sched *sched, enum belfry_hook hook, size_t size,
			      const struct sched_vgpu *about)
{
	struct belfry_head head = table_head(sched, hook, size);

	head.count = fill(sched, hook, about, false);
	if (head.count > BELFRY_VGPUS_MAX)
		head.count = fill(sched, hook, about, true);
	head.vgpu = table_entry(sched, head.count, about);
	return head;
}

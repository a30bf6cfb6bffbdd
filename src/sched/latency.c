/* How long submissions take. The last samples are kept in order of arrival, and sorted, so that a percentile is one lookup. */
#include <string.h>

#include "sched/state.h"

static size_t count_of(const struct sched_vgpu *vgpu)
{
	return vgpu->samples < SAMPLES ? (size_t)vgpu->samples : SAMPLES;
}

/* The index of the first element that is not less than the value. */
static size_t find(const uint64_t *sorted, size_t count, uint64_t value)
{
	size_t from = 0, to = count;

	while (from < to) {
		size_t middle = (from + to) / 2;

		if (sorted[middle] < value)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static void keep(struct sched_vgpu *vgpu, uint64_t took_ns)
{
	uint64_t *sorted = vgpu->sorted_ns, *oldest = &vgpu->took_ns[vgpu->samples % SAMPLES];
	size_t count = count_of(vgpu), at;

	if (count == SAMPLES) {
		at = find(sorted, count, *oldest);
		memmove(&sorted[at], &sorted[at + 1], (--count - at) * sizeof(sorted[0]));
	}
	at = find(sorted, count, took_ns);
	memmove(&sorted[at + 1], &sorted[at], (count - at) * sizeof(sorted[0]));
	sorted[at] = *oldest = took_ns;
	vgpu->samples++;
}

/* Of the last SAMPLES; 0: there are none. */
uint64_t vgpu_percentile(const struct sched_vgpu *vgpu, uint32_t ppm)
{
	size_t count = count_of(vgpu), at = (size_t)((uint64_t)count * ppm / SCHED_WHOLE_PPM);

	return !count ? 0 : vgpu->sorted_ns[at < count ? at : count - 1];
}

uint64_t vgpu_tail(const struct sched_vgpu *vgpu)
{
	return vgpu_percentile(vgpu, vgpu->share.percentile_ppm ? vgpu->share.percentile_ppm : 990000);
}

void vgpu_update_tail(struct sched_vgpu *vgpu)
{
	if (vgpu->seen_samples == vgpu->samples)
		return;
	vgpu->seen_samples = vgpu->samples;
	vgpu->tail_ns = vgpu_tail(vgpu);
	vgpu->p50_ns = vgpu_percentile(vgpu, SCHED_WHOLE_PPM / 2);
}

void sched_took(struct sched *sched, struct sched_vgpu *vgpu, uint64_t took_ns, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	keep(vgpu, took_ns);
	if (!vgpu->share.objective_ns || took_ns <= vgpu->share.objective_ns)
		return;
	vgpu->missed++;
	tell_missed(sched, vgpu, took_ns);
}

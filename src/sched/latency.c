/* How long submissions take. */
#include <stdlib.h>
#include <string.h>

#include "sched/state.h"

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Of the last SAMPLES; 0 if there are none. */
uint64_t vgpu_percentile(const struct sched_vgpu *vgpu, uint32_t ppm)
{
	size_t count = vgpu->samples < SAMPLES ? (size_t)vgpu->samples : SAMPLES, at;
	uint64_t sorted[SAMPLES];

	if (!count)
		return 0;
	memcpy(sorted, vgpu->took_ns, count * sizeof(sorted[0]));
	qsort(sorted, count, sizeof(sorted[0]), compare);
	at = (size_t)((uint64_t)count * ppm / SCHED_WHOLE_PPM);
	return sorted[at < count ? at : count - 1];
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
	vgpu->took_ns[vgpu->samples++ % SAMPLES] = took_ns;
	if (!vgpu->share.objective_ns || took_ns <= vgpu->share.objective_ns)
		return;
	vgpu->missed++;
	tell_missed(sched, vgpu, took_ns);
}

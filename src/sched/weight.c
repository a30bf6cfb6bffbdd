/* Promises: what was requested, what that makes of the GPU when not everybody wants it, and how long a slice is. */
#include <errno.h>

#include "sched/state.h"

/* What those without a request get of what nobody has requested, at the least. */
static const double least_weight = 0.01;

uint32_t sched_promised_ppm(const struct sched *sched)
{
	return sched->promised_ppm;
}

int sched_check(const struct sched *sched, const struct sched_share *share,
		const struct sched_vgpu *instead_of, struct bf_error *err)
{
	uint32_t others = sched_promised_ppm(sched) - (instead_of ? instead_of->share.request_ppm : 0);
	uint32_t left = others < SCHED_WHOLE_PPM ? SCHED_WHOLE_PPM - others : 0;

	if (!share->limit_ppm || share->limit_ppm > SCHED_WHOLE_PPM || share->request_ppm > share->limit_ppm)
		return bf_fail(err, EINVAL, "time %.4g:%.4g: not a request up to a limit, both up to 100",
			       share->request_ppm / 1e4, share->limit_ppm / 1e4);
	if (share->request_ppm > left)
		return bf_fail(
			err, ENOSPC,
			"%.6g %% of the GPU's time cannot be promised: %.6g %% are promised to others, %.6g %% are left",
			share->request_ppm / 1e4, others / 1e4, left / 1e4);
	return 0;
}

/* Requests are weights. Those who requested nothing share what nobody requested. */
double vgpu_weight(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	if (vgpu->tick.weight_ppm)
		return (double)vgpu->tick.weight_ppm / SCHED_WHOLE_PPM;
	return vgpu->share.request_ppm ? (double)vgpu->share.request_ppm / SCHED_WHOLE_PPM
				       : sched->rest_weight;
}

void sched_update_weights(struct sched *sched)
{
	double rest = 1 - (double)sched->promised_ppm / SCHED_WHOLE_PPM;
	unsigned count = 0;

	for (const struct sched_vgpu *v = sched->awake; v; v = v->next_awake)
		count += v->is_active && !v->share.request_ppm;
	rest /= count ? count : 1;
	sched->rest_weight = rest > least_weight ? rest : least_weight;
}

/* Of what those in line share. */
double vgpu_part(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	double own = vgpu_weight(sched, vgpu), sum = vgpu->is_active && !vgpu->is_rider ? 0 : own;

	for (const struct sched_vgpu *v = sched->awake; v; v = v->next_awake)
		sum += v->is_active && !v->is_rider ? vgpu_weight(sched, v) : 0;
	return own / sum;
}

uint32_t vgpu_part_ppm(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	uint32_t ppm = (uint32_t)(vgpu_part(sched, vgpu) * SCHED_WHOLE_PPM + 0.5);

	return ppm ? ppm : 1;
}

uint64_t vgpu_slice(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	uint64_t slice = sched->options.round_ns * vgpu_part_ppm(sched, vgpu) / SCHED_WHOLE_PPM;

	return slice < sched->options.slice_min_ns ? sched->options.slice_min_ns : slice;
}

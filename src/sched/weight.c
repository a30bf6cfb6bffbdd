/* Requests, the weights that follow from them, and the lengths of slices. */
#include <errno.h>

#include "sched/state.h"

/* The least weight of a vGPU without a request. */
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
			"a requested share of %.6g %% of the GPU's time does not fit: other vGPUs have requested %.6g %%, %.6g %% are left",
			share->request_ppm / 1e4, others / 1e4, left / 1e4);
	return 0;
}

/* A request is a weight. vGPUs without a request share what is not requested. */
double vgpu_claim(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return vgpu->share.request_ppm ? (double)vgpu->share.request_ppm / SCHED_WHOLE_PPM
				       : sched->rest_weight;
}

/* Its least weight, whatever a policy proposes. */
static double least(const struct sched_vgpu *vgpu)
{
	return vgpu->share.request_ppm ? (double)vgpu->share.request_ppm / SCHED_WHOLE_PPM : least_weight;
}

/* The weight above the least that a policy proposes, or that it has by its share. */
static double extra(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	double wanted = vgpu->tick.weight_ppm ? (double)vgpu->tick.weight_ppm / SCHED_WHOLE_PPM
					      : vgpu_claim(sched, vgpu);

	return wanted > least(vgpu) ? wanted - least(vgpu) : 0;
}

double vgpu_weight(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return sched->extra_part < 1 || vgpu->tick.weight_ppm
		       ? least(vgpu) + sched->extra_part * extra(sched, vgpu)
		       : vgpu_claim(sched, vgpu);
}

/* Proposed weights share what the least weights leave of the whole, so that a part is never below the request. */
static void update_extra(struct sched *sched)
{
	double taken = 0, wanted = 0;
	bool is_proposed = false;

	sched->extra_part = 1;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake)) {
		if (!v->is_active)
			continue;
		taken += least(v);
		wanted += extra(sched, v);
		is_proposed |= v->tick.weight_ppm != 0;
	}
	if (is_proposed && wanted > 0 && taken + wanted > 1)
		sched->extra_part = taken < 1 ? (1 - taken) / wanted : 0;
}

void sched_update_line(struct sched *sched)
{
	double line = 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		line += v->is_active && !v->is_rider ? vgpu_weight(sched, v) : 0;
	sched->line = line;
}

void sched_update_weights(struct sched *sched)
{
	double rest = 1 - (double)sched->promised_ppm / SCHED_WHOLE_PPM;
	unsigned count = 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		count += v->is_active && !v->share.request_ppm;
	rest /= count ? count : 1;
	sched->rest_weight = rest > least_weight ? rest : least_weight;
	update_extra(sched);
	sched_update_line(sched);
}

double vgpu_part(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	double own = vgpu_weight(sched, vgpu);

	return own / (vgpu->is_active && !vgpu->is_rider ? sched->line : sched->line + own);
}

uint32_t part_ppm(double part)
{
	uint32_t ppm = (uint32_t)(part * SCHED_WHOLE_PPM + 0.5);

	return ppm ? ppm : 1;
}

static uint64_t slice_of(const struct sched *sched, double part)
{
	uint64_t slice = sched->options.round_ns * part_ppm(part) / SCHED_WHOLE_PPM;

	return slice < sched->options.slice_min_ns ? sched->options.slice_min_ns : slice;
}

uint64_t vgpu_slice(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return slice_of(sched, vgpu_part(sched, vgpu));
}

void sched_cap_passes(struct sched *sched)
{
	for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all)) {
		double part = vgpu_part(sched, v);
		int64_t most = sched->pass + (int64_t)(2 * (double)slice_of(sched, part) / part);

		if (v->pass > most)
			vgpu_set_pass(sched, v, most);
	}
}

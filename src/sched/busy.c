/* How busy each vGPU keeps the SMs and the memory bus while it runs. Only the sum over all vGPUs can be
 * measured, but the GPU time of each is known, and it differs from one measurement to the next. So each measurement is an
 * equation
 *
 *	what was measured = sum over vGPUs of (its part of the time * how busy it keeps them)
 *
 * and the estimates are corrected so that it holds, uncertain ones more than certain ones: a Kalman filter that keeps variances
 * and no covariances. The estimate of a vGPU that ran alone for a while is certain, so that of a vGPU that joins it can be
 * found. Of vGPUs that always ran together in the same ratio only the sum is known. */
#include "sched/state.h"

static const double least_part = 0.01; /* a vGPU with less is left out */
static const double least_all = 0.05;  /* a measurement with less in total is left out */
/* Variances: of an unknown figure, of a measurement, and of the change of a program between two measurements. */
static const double unknown = 1.0 / 12, noise = 0.003, drift = 0.0001;

static double part_of(const struct sched_vgpu *vgpu, uint64_t elapsed_ns)
{
	double part = (double)(vgpu->gpu_ns - vgpu->busy_gpu_ns) / (double)elapsed_ns;

	return part > 1 ? 1 : part < least_part ? 0 : part;
}

static double clamp(double value)
{
	return value < 0 ? 0 : value > 1 ? 1 : value;
}

struct sum {
	double parts, doubt, sm, mem;
};

static struct sum add_up(const struct sched *sched, uint64_t elapsed_ns)
{
	struct sum sum = { 0 };

	for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all)) {
		double part = part_of(v, elapsed_ns);

		sum.parts += part;
		sum.doubt += part * part * v->doubt;
		sum.sm += part * v->sm;
		sum.mem += part * v->mem;
	}
	return sum;
}

/* Every vGPU that ran may have changed; the figures of a new one are unknown. */
static void doubt(struct sched *sched, uint64_t elapsed_ns)
{
	for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all)) {
		if (part_of(v, elapsed_ns) <= 0)
			continue;
		if (!v->has_busy) {
			v->has_busy = true;
			v->sm = v->mem = 0.5;
			v->doubt = unknown;
		}
		v->doubt = v->doubt + drift < unknown ? v->doubt + drift : unknown;
	}
}

static void learn(struct sched *sched, double sm, double mem, uint64_t elapsed_ns)
{
	struct sum sum = add_up(sched, elapsed_ns);

	if (sum.parts < least_all)
		return;
	doubt(sched, elapsed_ns);
	sum = add_up(sched, elapsed_ns);
	for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all)) {
		double part = part_of(v, elapsed_ns), gain = part * v->doubt / (sum.doubt + noise);

		v->sm = clamp(v->sm + gain * (sm - sum.sm));
		v->mem = clamp(v->mem + gain * (mem - sum.mem));
		v->doubt *= 1 - gain * part;
	}
}

void sched_busy(struct sched *sched, uint32_t sm_ppm, uint32_t mem_ppm, uint64_t over_ns, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	if (sched->busy_told_ns && sched->now_ns > sched->busy_told_ns)
		learn(sched, (double)sm_ppm / SCHED_WHOLE_PPM, (double)mem_ppm / SCHED_WHOLE_PPM,
		      over_ns ? over_ns : sched->now_ns - sched->busy_told_ns);
	sched->busy_told_ns = sched->now_ns;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all))
		v->busy_gpu_ns = v->gpu_ns;
}

uint32_t busy_ppm(const struct sched_vgpu *vgpu, double part)
{
	uint32_t ppm = (uint32_t)(part * SCHED_WHOLE_PPM);

	return !vgpu->has_busy ? 0 : ppm ? ppm : 1;
}

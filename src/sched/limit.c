/* Limits. A budget fills at the limit's rate, and GPU time is taken from it, so that the use is even. Where more was used the
 * budget is below 0, and the vGPU waits. The GPU time over the window is counted as well, and cut off at the limit. */
#include "sched/state.h"

bool vgpu_has_limit(const struct sched_vgpu *vgpu)
{
	return vgpu->share.limit_ppm < SCHED_WHOLE_PPM;
}

static uint64_t part_of(uint64_t ns, uint32_t ppm)
{
	return (uint64_t)((double)ns * ppm / SCHED_WHOLE_PPM);
}

/* The budget holds at most what a round fills. */
static int64_t budget_most(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return (int64_t)part_of(sched->options.round_ns, vgpu->share.limit_ppm);
}

/* Fractions of nanoseconds are kept in earned_rest, so that the budget does not depend on the number of steps. */
void vgpu_earn(const struct sched *sched, struct sched_vgpu *vgpu)
{
	uint64_t ns = sched->now_ns - vgpu->earned_ns, limit_ppm = vgpu->share.limit_ppm;
	uint64_t rest = ns % SCHED_WHOLE_PPM * limit_ppm + vgpu->earned_rest;
	int64_t most = budget_most(sched, vgpu);

	vgpu->budget_ns += (int64_t)(ns / SCHED_WHOLE_PPM * limit_ppm + rest / SCHED_WHOLE_PPM);
	vgpu->earned_rest = rest % SCHED_WHOLE_PPM;
	vgpu->earned_ns = sched->now_ns;
	if (vgpu->budget_ns >= most) {
		vgpu->budget_ns = most;
		vgpu->earned_rest = 0;
	}
}

/* GPU time under a higher limit before is not counted, and the budget of that time is lost. */
void vgpu_limit_changed(const struct sched *sched, struct sched_vgpu *vgpu, uint32_t was_ppm)
{
	if (vgpu->share.limit_ppm >= was_ppm)
		return;
	vgpu->budget_ns = 0;
	vgpu->earned_rest = 0;
	vgpu->earned_ns = vgpu->window_from_ns = sched->now_ns;
	vgpu->window = (struct window){ .number = 0 };
}

uint64_t vgpu_allowance(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	uint64_t most, used, left;

	if (!vgpu_has_limit(vgpu))
		return SCHED_NEVER;
	most = part_of(sched->options.window_ns, vgpu->share.limit_ppm);
	used = window_used(&vgpu->window, sched->options.window_ns, sched->now_ns);
	left = used < most ? most - used : 0;
	if (vgpu->budget_ns <= 0)
		return 0;
	return (uint64_t)vgpu->budget_ns < left ? (uint64_t)vgpu->budget_ns : left;
}

/* A spent vGPU waits until it may run long enough for the hand-over to be worth it. The runs and waits even out over the
 * window as long as both are short compared to it. */
static uint64_t enough(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	uint64_t round = part_of(sched->options.round_ns, vgpu->share.limit_ppm);
	uint64_t least = sched->options.slice_min_ns < round / 2 ? sched->options.slice_min_ns : round / 2;
	uint64_t worth = part_of(round, SCHED_WHOLE_PPM - vgpu->share.limit_ppm) / 4;

	return worth > least ? worth : least;
}

void vgpu_update_spent(const struct sched *sched, struct sched_vgpu *vgpu)
{
	uint64_t left = vgpu_allowance(sched, vgpu);

	if (!left)
		vgpu->is_spent = true;
	else if (left >= enough(sched, vgpu))
		vgpu->is_spent = false;
}

/* The budget falls by GPU time and fills at the limit's rate at the same time. */
uint64_t vgpu_spent_ns(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	uint32_t loss_ppm = SCHED_WHOLE_PPM - vgpu->share.limit_ppm;
	uint64_t left = vgpu_allowance(sched, vgpu), by_budget;

	if (!left)
		return sched->now_ns;
	by_budget = (uint64_t)((double)vgpu->budget_ns * SCHED_WHOLE_PPM / loss_ppm);
	if (left < (uint64_t)vgpu->budget_ns) /* the window is full first */
		by_budget = left < by_budget ? left : by_budget;
	return sched->now_ns + by_budget + 1;
}

/* The shortest time in which the budget grows by ns, which is not 0. */
static uint64_t earns_in_ns(const struct sched_vgpu *vgpu, uint64_t ns)
{
	uint64_t limit_ppm = vgpu->share.limit_ppm, whole = ns / limit_ppm;
	uint64_t rest = ns % limit_ppm * SCHED_WHOLE_PPM;

	if (rest < vgpu->earned_rest) {
		whole--;
		rest += limit_ppm * SCHED_WHOLE_PPM;
	}
	return whole * SCHED_WHOLE_PPM + (rest - vgpu->earned_rest + limit_ppm - 1) / limit_ppm;
}

uint64_t vgpu_unspent_ns(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	uint64_t needed = enough(sched, vgpu), most;

	if (vgpu->budget_ns < (int64_t)needed)
		return sched->now_ns + earns_in_ns(vgpu, (uint64_t)((int64_t)needed - vgpu->budget_ns));
	most = part_of(sched->options.window_ns, vgpu->share.limit_ppm);
	return window_falls_ns(&vgpu->window, sched->options.window_ns, sched->now_ns,
			       most > needed ? most - needed : 0);
}

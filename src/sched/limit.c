/* Limits. A budget that fills at the limit's rate keeps the use even, and goes below zero when more was used than there
 * was: what was too much is waited for. Over the window itself the use is counted, and cut off at the limit. */
#include "sched/state.h"

bool vgpu_has_limit(const struct sched_vgpu *vgpu)
{
	return vgpu->share.limit_ppm < SCHED_WHOLE_PPM;
}

static uint64_t part_of(uint64_t ns, uint32_t ppm)
{
	return (uint64_t)((double)ns * ppm / SCHED_WHOLE_PPM);
}

/* No more than one round's worth is kept for later. */
static int64_t budget_most(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return (int64_t)part_of(sched->options.round_ns, vgpu->share.limit_ppm);
}

/* What one step brings is rarely a whole number of nanoseconds. The rest is kept, so that the budget does not depend on how
 * many steps there were. */
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

/* What was used before under a higher limit is not held against it, nor does it bring anything. */
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

/* It waits until it has enough for a run that is worth the change. What it runs then, and what it waits, is evened out
 * over the window as long as both are short against it. */
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

/* Its budget goes down by what it uses and up by what it earns meanwhile. */
uint64_t vgpu_spent_ns(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	uint32_t loss_ppm = SCHED_WHOLE_PPM - vgpu->share.limit_ppm;
	uint64_t left = vgpu_allowance(sched, vgpu), by_budget;

	if (!left)
		return sched->now_ns;
	by_budget = (uint64_t)((double)vgpu->budget_ns * SCHED_WHOLE_PPM / loss_ppm);
	if (left < (uint64_t)vgpu->budget_ns) /* the window ends it first */
		by_budget = left < by_budget ? left : by_budget;
	return sched->now_ns + by_budget + 1;
}

/* How long it takes to earn so much, which is not 0, and no longer. */
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

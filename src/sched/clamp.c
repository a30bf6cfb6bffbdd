/* Clamps: whatever a policy proposes, no vGPU exceeds its limit, and no vGPU loses its request. */
#include "sched/state.h"

enum {
	SLACK_PARTS = 4, /* 1 / this part of a window's request may be owed to a vGPU */
};

double vgpu_owed_part(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	double promised = (double)sched->options.window_ns * vgpu->share.request_ppm / SCHED_WHOLE_PPM;

	return promised > 0 ? vgpu->owed_ns / (promised / SLACK_PARTS) : 0;
}

double vgpu_owed_most(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return vgpu_request(vgpu) * (double)sched->options.window_ns;
}

bool vgpu_is_overdue(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return vgpu_owed_part(sched, vgpu) > 1;
}

static bool may_have(const struct belfry_vgpu *table, const struct belfry_head *head, uint32_t entry)
{
	return entry < head->count && table[entry].flags & BELFRY_MAY_HAVE;
}

/* Compares what is owed in proportion to the requests. */
static bool is_more_overdue(const struct belfry_vgpu *a, const struct belfry_vgpu *b)
{
	return (double)a->owed_ns * b->request_ppm > (double)b->owed_ns * a->request_ppm;
}

static uint32_t most_overdue(const struct belfry_vgpu *table, const struct belfry_head *head)
{
	uint32_t most = BELFRY_NOBODY;

	for (uint32_t i = 0; i < head->count; i++)
		if (may_have(table, head, i) && table[i].flags & BELFRY_OVERDUE &&
		    (most == BELFRY_NOBODY || is_more_overdue(&table[i], &table[most])))
			most = i;
	return most;
}

/* What is owed to it, and no longer than its usual slice. */
static uint64_t debt_slice(const struct belfry_head *head, const struct belfry_vgpu *vgpu)
{
	uint64_t most = fair_slice(head, vgpu->part_ppm), owed = (uint64_t)vgpu->owed_ns;

	if (owed < head->slice_min_ns)
		owed = head->slice_min_ns;
	return owed < most ? owed : most;
}

static uint32_t clamp_choice(const struct belfry_vgpu *table, struct belfry_pick *ctx)
{
	uint32_t clamps = may_have(table, &ctx->head, ctx->choice) ? 0 : SCHED_CLAMP_CHOICE;
	uint32_t overdue = most_overdue(table, &ctx->head);

	if (overdue != BELFRY_NOBODY && (clamps || !(table[ctx->choice].flags & BELFRY_OVERDUE) ||
					 is_more_overdue(&table[overdue], &table[ctx->choice]))) {
		ctx->choice = overdue;
		ctx->beside = BELFRY_NOBODY; /* they were proposed for another vGPU */
		ctx->units = 0;
		ctx->slice_ns = debt_slice(&ctx->head, &table[overdue]);
		return clamps | SCHED_CLAMP_PROMISE;
	}
	if (clamps)
		sched_fair_pick(table, ctx);
	return clamps;
}

static uint32_t clamp_slice(const struct belfry_vgpu *table, struct belfry_pick *ctx)
{
	uint64_t asked = ctx->slice_ns;

	if (ctx->choice == BELFRY_NOBODY)
		return 0;
	if (!asked) /* the built-in policy's length */
		ctx->slice_ns = fair_slice(&ctx->head, table[ctx->choice].part_ppm);
	if (ctx->slice_ns < ctx->head.slice_min_ns)
		ctx->slice_ns = ctx->head.slice_min_ns;
	if (ctx->slice_ns > ctx->head.round_ns && ctx->head.round_ns >= ctx->head.slice_min_ns)
		ctx->slice_ns = ctx->head.round_ns;
	return asked && ctx->slice_ns != asked ? SCHED_CLAMP_SLICE : 0;
}

/* Only vGPUs of a shared domain use part of the SMs. The division holds the number to their requests and limits. */
static uint32_t clamp_units(const struct belfry_vgpu *vgpu, uint32_t *units)
{
	uint32_t asked = *units, all = vgpu ? vgpu->units_all : 0;

	if (*units > all)
		*units = all;
	return *units != asked ? SCHED_CLAMP_SPACE : 0;
}

/* Only vGPUs of one domain run side by side. */
static uint32_t clamp_space(const struct belfry_vgpu *table, struct belfry_pick *ctx)
{
	bool is_alone = ctx->beside == BELFRY_NOBODY;
	bool may = is_alone ||
		   (ctx->choice != BELFRY_NOBODY && may_have(table, &ctx->head, ctx->beside) &&
		    table[ctx->choice].domain && table[ctx->beside].domain == table[ctx->choice].domain);

	if (!may)
		ctx->beside = BELFRY_NOBODY;
	return clamp_units(ctx->choice == BELFRY_NOBODY ? NULL : &table[ctx->choice], &ctx->units) |
	       (may ? 0 : SCHED_CLAMP_SPACE);
}

static uint32_t fair_choice(const struct belfry_vgpu *table, const struct belfry_head *head)
{
	struct belfry_pick fair = { .head = *head };

	sched_fair_pick(table, &fair);
	return fair.choice;
}

uint32_t sched_clamp_pick(const struct belfry_vgpu *table, struct belfry_pick *ctx)
{
	uint32_t clamps;

	if (ctx->choice == BELFRY_NOBODY) /* the slice may still be proposed */
		ctx->choice = fair_choice(table, &ctx->head);
	clamps = clamp_choice(table, ctx);
	clamps |= clamp_slice(table, ctx);
	return clamps | clamp_space(table, ctx);
}

/* A vGPU that is stopped again and again in this time makes no progress. */
static bool is_new(const struct belfry_head *head, const struct belfry_vgpu *holder)
{
	return (int64_t)holder->slice_ns - holder->slice_left_ns < (int64_t)head->slice_min_ns;
}

static bool fair_stops(const struct belfry_vgpu *table, const struct belfry_preempt *ctx)
{
	struct belfry_preempt fair = *ctx;

	sched_fair_preempt(table, &fair);
	return fair.stop;
}

uint32_t sched_clamp_preempt(const struct belfry_vgpu *table, struct belfry_preempt *ctx)
{
	const struct belfry_vgpu *holder = &table[ctx->holder];

	if (!ctx->stop)
		return 0;
	if (!(holder->flags & BELFRY_OVERDUE) && (!is_new(&ctx->head, holder) || fair_stops(table, ctx)))
		return 0;
	ctx->stop = 0;
	return SCHED_CLAMP_STOP;
}

uint32_t sched_clamp_tick(const struct belfry_vgpu *table, struct belfry_tick *ctx)
{
	const struct belfry_vgpu *v = &table[ctx->head.vgpu];
	struct belfry_tick asked = *ctx;

	if (ctx->timeslice_us > SCHED_TIMESLICE_MOST_US)
		ctx->timeslice_us = SCHED_TIMESLICE_MOST_US;
	if (ctx->interleave < -1 || ctx->interleave > SCHED_LEVEL_MOST)
		ctx->interleave = -1;
	if (ctx->ride < -1 || ctx->ride > 1)
		ctx->ride = -1;
	if (ctx->weight_ppm && ctx->weight_ppm < v->request_ppm)
		ctx->weight_ppm = v->request_ppm;
	if (ctx->weight_ppm > BELFRY_WHOLE_PPM)
		ctx->weight_ppm = BELFRY_WHOLE_PPM;
	return (asked.timeslice_us != ctx->timeslice_us || asked.interleave != ctx->interleave ||
				asked.ride != ctx->ride
			? SCHED_CLAMP_TURNS
			: 0) |
	       (asked.weight_ppm != ctx->weight_ppm ? SCHED_CLAMP_WEIGHT : 0) | clamp_units(v, &ctx->units);
}

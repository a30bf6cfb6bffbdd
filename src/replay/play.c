#include "replay/play.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/sim.h"

#define BEGIN_NS 1000000000000ull /* not 0, as on a real clock */

enum { SEED = 1, ENOUGH = 20 /* bursts needed to compare percentiles */ };

/* The simulated program of a vGPU. */
struct player {
	struct play *play;
	const struct workload_vgpu *is;
	struct sim_vgpu *v;
	size_t step; /* the next one, or the one in progress */
	bool is_at_work;
	uint64_t pieces; /* kernels of the burst still to submit */
	uint64_t came_ns, waits_since_ns, longest_wait_ns, late;
	struct tally took;
};

struct play {
	const struct workload *workload;
	struct policy *policy;
	struct sim *sim;
	struct player *players;
};

static const struct workload_step *step_of(const struct player *p)
{
	return &p->is->steps[p->step];
}

/* Includes the idle part of the time that the vGPU was let in: it was too short to be seen as a pause, and
 * other vGPUs could not use it. */
static uint64_t kernel_ns(const struct player *p)
{
	const struct workload_step *step = step_of(p);
	uint64_t ns = step->gpu_ns == WORKLOAD_ENDLESS ? p->is->kernel_ns : step->gpu_ns / step->pieces;

	return (uint64_t)((double)ns / p->is->busy);
}

/* The time until the end of a burst's last kernel is noticed. */
static uint64_t rest_ns(const struct player *p)
{
	uint64_t switch_ns = p->play->sim->manners.switch_ns; /* already part of the simulation */

	return !p->pieces && p->is->rest_ns > switch_ns ? p->is->rest_ns - switch_ns : 0;
}

/* Schedules the next step: a delay after the previous step, or at its absolute time. */
static void wait_for_step(struct player *p, uint64_t least_ns)
{
	const struct sim *sim = p->play->sim;
	const struct workload_step *step;
	uint64_t ns;

	if (p->step >= p->is->count) {
		if (p->is->again >= p->is->count)
			return;
		p->step = p->is->again;
		least_ns = p->is->again_ns;
	}
	step = step_of(p);
	ns = step->after_ns;
	if (step->kind == WORKLOAD_HERE)
		ns = BEGIN_NS + ns > sim->now_ns ? BEGIN_NS + ns - sim->now_ns : 0;
	sim_submit_later(p->v, ns > least_ns ? ns : least_ns);
}

static void begins(struct sim_vgpu *v)
{
	wait_for_step(v->owner, 0);
}

static void end_burst(struct player *p)
{
	struct sim *sim = p->play->sim;
	const struct sched_share *share = &p->v->share;
	uint64_t took = sim->now_ns - p->came_ns;

	p->is_at_work = false;
	tally_add(&p->took, took);
	p->late += share->objective_ns && took > share->objective_ns;
	if (share->class == SCHED_LATENCY) /* as the GPU server does */
		sched_took(sim->sched, p->v->vgpu, took, sim->now_ns);
}

static void begin_burst(struct player *p)
{
	const struct workload_step *step = step_of(p);

	p->is_at_work = true;
	p->came_ns = p->play->sim->now_ns;
	p->pieces = step->gpu_ns == WORKLOAD_ENDLESS ? UINT64_MAX : step->pieces;
}

static bool submits(struct sim_vgpu *v, struct sim_kernel *kernel)
{
	struct player *p = v->owner;

	if (p->is_at_work && !p->pieces) {
		end_burst(p);
		p->step++;
		wait_for_step(p, 0);
		return false;
	}
	if (!p->is_at_work && step_of(p)->kind == WORKLOAD_BURST)
		begin_burst(p);
	if (p->is_at_work) {
		p->pieces--;
		kernel->left_ns = kernel_ns(p);
		return true;
	}
	p->step++;
	if (p->is->steps[p->step - 1].kind == WORKLOAD_HERE) {
		sim_set_present(v, true);
	} else {
		sim_set_present(v, false);
		wait_for_step(p, 0);
	}
	return false;
}

static void ended(struct sim_vgpu *v, uint64_t took_ns)
{
	(void)took_ns;
	sim_submit_later(v, rest_ns(v->owner));
}

static void passes(struct sim *sim, uint64_t to_ns)
{
	for (unsigned i = 0; i < sim->count; i++) {
		const struct sim_vgpu *v = sim->vgpus[i];
		struct player *p = v->owner;

		if (!v->count || v->is_benched || (v == sim->on && to_ns > sim->switched_ns))
			p->waits_since_ns = to_ns;
		else if (to_ns - p->waits_since_ns > p->longest_wait_ns)
			p->longest_wait_ns = to_ns - p->waits_since_ns;
	}
}

static const struct sim_hooks hooks = { begins, submits, ended, NULL, passes };

static int ask(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	return policy_call(context, hook, ctx, size);
}

static void fail(void *context, const char *why)
{
	policy_fail(context, why);
}

static struct sched_policy for_sched(struct policy *policy)
{
	struct sched_policy is = {
		.ask = ask, .fail = fail, .context = policy, .table = policy_table(policy)
	};

	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		is.hooks |= policy_has(policy, (enum belfry_hook)hook) ? 1u << hook : 0;
	return is;
}

/* Calls the hooks that the GPU server calls when it loads a policy. */
static void set_policy(struct play *play)
{
	struct sim *sim = play->sim;
	struct sched_policy policy;
	struct belfry_init init = { 0 };

	if (!play->policy)
		return;
	policy = for_sched(play->policy);
	sim_set_policy(sim, &policy);
	sched_ask(sim->sched, BELFRY_HOOK_INIT, NULL, &init, sizeof(init), sim->now_ns);
	for (unsigned i = 0; i < play->workload->vgpu_count; i++) {
		const struct player *p = &play->players[i];
		const struct sched_share *share = &p->is->share;
		struct belfry_vgpu_init ctx = { .id = sched_id(p->v->vgpu),
						.request_ppm = share->request_ppm,
						.limit_ppm = share->limit_ppm,
						.class = share->class == SCHED_LATENCY ? BELFRY_LATENCY
										       : BELFRY_THROUGHPUT,
						.percentile_ppm = share->percentile_ppm,
						.objective_ns = share->objective_ns };

		memcpy(ctx.name, p->is->name, sizeof(ctx.name));
		sched_ask(sim->sched, BELFRY_HOOK_VGPU_INIT, p->v->vgpu, &ctx, sizeof(ctx), sim->now_ns);
	}
}

static int add_players(struct play *play, struct bf_error *err)
{
	for (unsigned i = 0; i < play->workload->vgpu_count; i++) {
		struct player *p = &play->players[i];

		p->play = play;
		p->is = &play->workload->vgpus[i];
		p->waits_since_ns = BEGIN_NS;
		p->v = sim_vgpu_add(play->sim, &p->is->share, 1, p);
		if (!p->v) {
			bf_fail(err, ENOMEM, "not enough memory for a simulated vGPU");
			return -ENOMEM;
		}
		p->v->busy = p->is->busy;
		wait_for_step(p, 0);
	}
	return 0;
}

static void change(struct play *play, const struct workload_change *change)
{
	struct sim_vgpu *v = play->players[change->vgpu].v;

	switch (change->kind) {
	case WORKLOAD_SET:
		sim_set(v, &change->to.share);
		break;
	case WORKLOAD_CONFIGURED:
		sim_configure(play->sim, &change->to.options);
		break;
	default:
		sim_bench(v, change->kind == WORKLOAD_HELD);
		break;
	}
}

/* The GPU server reads the meter more often if a vGPU has a limit. */
static struct sim_manners manners_of(const struct workload *workload)
{
	struct sim_manners manners = workload->is_soft ? sim_soft : sim_nvidia;

	manners.measure_ns = 20000000;
	for (unsigned i = 0; i < workload->vgpu_count; i++)
		if (workload->vgpus[i].share.limit_ppm < SCHED_WHOLE_PPM)
			manners.measure_ns = 5000000;
	return manners;
}

static void tell(const struct play *play, struct play_result *result)
{
	struct policy_info info;

	result->ns = play->sim->now_ns - BEGIN_NS;
	result->events = play->sim->events;
	for (unsigned i = 0; i < play->workload->vgpu_count; i++) {
		const struct player *p = &play->players[i];
		struct sched_counts counts = sched_counts(play->sim->sched, p->v->vgpu);
		uint32_t percentile = p->v->share.percentile_ppm;

		result->vgpus[i] = (struct workload_figures){
			.gpu_ns = counts.gpu_ns, /* measured as in the record */
			.done = p->took.count,
			.late = p->late,
			.p50_ns = tally_percentile(&p->took, 500000),
			.tail_ns = tally_percentile(&p->took, percentile ? percentile : 990000),
			.longest_wait_ns = p->longest_wait_ns,
			.slices = counts.grants,
			.stops = p->v->stops,
		};
	}
	if (!play->policy)
		return;
	policy_info(play->policy, &info);
	if (info.is_out)
		memcpy(result->why, info.why, sizeof(result->why));
}

static int play_all(struct play *play, uint64_t most_events, struct play_result *result, struct bf_error *err)
{
	const struct workload *workload = play->workload;
	struct sim *sim = play->sim;
	int rc = add_players(play, err);

	if (rc)
		return rc;
	set_policy(play);
	for (size_t i = 0; i <= workload->change_count; i++) {
		uint64_t at = i < workload->change_count ? workload->changes[i].at_ns : workload->ns;

		sim_go(sim, BEGIN_NS + at, most_events > sim->events ? most_events - sim->events : 0);
		if (sim->wrong[0])
			return bf_fail(err, EPROTO, "error in the simulation: %s", sim->wrong);
		if (i < workload->change_count && sim->now_ns >= BEGIN_NS + at)
			change(play, &workload->changes[i]);
	}
	tell(play, result);
	return 0;
}

int play_run(const struct workload *workload, struct policy *policy, uint64_t most_events,
	     struct play_result *result, struct bf_error *err)
{
	size_t count = workload->vgpu_count ? workload->vgpu_count : 1;
	struct play play = { .workload = workload, .policy = policy };
	struct sim_manners manners = manners_of(workload);
	int rc = -ENOMEM;

	*result = (struct play_result){ .ns = 0 };
	result->vgpus = calloc(count, sizeof(*result->vgpus));
	play.players = calloc(count, sizeof(*play.players));
	play.sim = sim_open(&workload->options, &manners, &hooks, SEED, BEGIN_NS);
	if (result->vgpus && play.players && play.sim)
		rc = play_all(&play, most_events, result, err);
	else
		bf_fail(err, ENOMEM, "not enough memory for a simulated GPU");
	if (rc)
		play_free(result);
	sim_close(play.sim);
	free(play.players);
	return rc;
}

void play_free(struct play_result *result)
{
	free(result->vgpus);
	*result = (struct play_result){ .ns = 0 };
}

static double most_of(double a, double b)
{
	return a > b ? a : b;
}

static double off_by(uint64_t was, uint64_t is)
{
	return (double)(is > was ? is - was : was - is);
}

struct play_agreement play_agreement(const struct workload *workload, const struct play_result *result)
{
	struct play_agreement agreement = { 0, -1, -1 };

	for (unsigned i = 0; i < workload->vgpu_count; i++) {
		const struct workload_figures *was = &workload->vgpus[i].was, *is = &result->vgpus[i];
		double ns = (double)(workload->ns ? workload->ns : 1);

		agreement.share_points =
			most_of(agreement.share_points, 100 * off_by(was->gpu_ns, is->gpu_ns) / ns);
		if (was->done < ENOUGH || is->done < ENOUGH || !was->p50_ns || !was->tail_ns)
			continue;
		agreement.p50_percent = most_of(agreement.p50_percent,
						100 * off_by(was->p50_ns, is->p50_ns) / (double)was->p50_ns);
		agreement.tail_percent =
			most_of(agreement.tail_percent,
				100 * off_by(was->tail_ns, is->tail_ns) / (double)was->tail_ns);
	}
	return agreement;
}

#include "sched_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define STEADY_NS (8 * S)
#define SWITCH_NS (200 * US) /* the simulation's: a holder pays for it and does not run meanwhile */

enum { MOST = 8 };

static const struct sim_load *const always[] = { &sim_busy_load, &sim_small, &sim_graphs };
static const struct sim_load *const sometimes[] = { &sim_synchronous, &sim_now_and_then, &sim_none };
/* With breaks that are noticed: what rides and takes a lot without pressing. */
static const struct sim_load breaks = { 1, 5 * MS, 40 * MS, 2 * MS, 4 * MS };

static const struct sim_load *random_load(uint64_t *seed, bool *is_always)
{
	*is_always = sim_random(seed) % 3 != 0;
	if (*is_always)
		return always[sim_random(seed) % 3];
	return sim_random(seed) % 3 ? sometimes[sim_random(seed) % 3] : &breaks;
}

static struct sched_share random_share(uint64_t *seed, uint32_t most_percent)
{
	uint32_t request = sim_random(seed) % 4 ? (uint32_t)sim_between(seed, 0, most_percent) : 0;
	struct sched_share share = sim_request(request);

	if (sim_random(seed) % 4 == 0)
		share.limit_ppm = (uint32_t)sim_between(seed, request > 5 ? request : 5, 100) * 10000;
	if (sim_random(seed) % 6 == 0)
		share.class = SCHED_LATENCY;
	if (sim_random(seed) % 8 == 0)
		share.objective_ns = 2 * MS, share.percentile_ppm = 990000;
	if (sim_random(seed) % 4 == 0)
		share.domain = (uint32_t)sim_between(seed, 1, 2);
	return share;
}

struct trial {
	struct sim *sim;
	struct sim_vgpu *vgpus[MOST];
	bool is_always[MOST];
	unsigned count;
	uint64_t number, seed;
	bool is_swapped;
	uint64_t grants[MOST];
};

static void add_all(struct trial *trial)
{
	uint32_t left = 100;

	for (unsigned i = 0; i < trial->count; i++) {
		uint32_t most = left * 2 / (trial->count - i);
		struct sched_share share = random_share(&trial->seed, most < left ? most : left);
		const struct sim_load *load = random_load(&trial->seed, &trial->is_always[i]);

		if (share.class == SCHED_LATENCY) { /* what a greedy rider leaves is not a policy's doing */
			load = &sim_now_and_then;
			trial->is_always[i] = false;
		}
		left -= share.request_ppm / 10000;
		trial->vgpus[i] = sim_add(trial->sim, &share, load);
	}
}

static void begin(struct trial *trial, uint64_t seed, uint64_t longest_ns)
{
	struct sched_options options = sched_default;

	*trial = (struct trial){ .number = seed, .seed = seed * 104729 };
	trial->count = (unsigned)sim_between(&trial->seed, 2, MOST);
	trial->is_swapped = sim_random(&trial->seed) % 2;
	if (sim_random(&trial->seed) % 4 == 0)
		options.how = SCHED_TOKENS;
	options.is_measured = sim_random(&trial->seed) % 2;
	trial->sim = sim_new(&options, seed, longest_ns);
}

static void mark(struct trial *trial)
{
	sim_mark(trial->sim);
	for (unsigned i = 0; i < trial->count; i++)
		trial->grants[i] = sim_seen(trial->vgpus[i])->report.grants;
}

static void run_under(struct trial *trial, const struct trial_policies *policies, uint64_t ns)
{
	uint64_t end = trial->sim->now_ns + ns;

	while (trial->sim->now_ns < end) {
		uint64_t left = end - trial->sim->now_ns, piece = sim_between(&trial->seed, 100 * MS, 2 * S);

		sim_run(trial->sim, trial->is_swapped && piece < left ? piece : left);
		if (trial->is_swapped)
			sim_set_policy(trial->sim, policies->next(policies->context, &trial->seed));
	}
}

/* The weights of all who are there, by their shares; above the whole where those without a request have their least. */
static double weights(const struct trial *trial)
{
	double promised = 0, rest;
	unsigned others = 0;

	for (unsigned i = 0; i < trial->count; i++) {
		promised += trial->vgpus[i]->share.request_ppm / 1e6;
		others += !trial->vgpus[i]->share.request_ppm;
	}
	rest = others ? (1 - promised) / others : 0;
	return promised + others * (rest > 0.01 ? rest : 0.01);
}

/* One of a domain shares its token with the others of it, and a latency vGPU rides. */
static bool has_promise(const struct trial *trial, unsigned i)
{
	const struct sched_share *share = &trial->vgpus[i]->share;

	return trial->is_always[i] && share->request_ppm && share->class == SCHED_THROUGHPUT &&
	       !share->domain;
}

static void check_promise(const struct trial *trial, unsigned i, struct trial_result *result)
{
	const struct sim_vgpu *v = trial->vgpus[i];
	const struct sched_options *options = &trial->sim->options;
	double request = v->share.request_ppm / 1e6, all = weights(trial);
	double due = request / (all > 1 ? all : 1) * (double)trial->sim->ran_ns;
	double owed = request * ((double)options->window_ns / 4 + (double)options->round_ns);
	double switches = (double)(sim_seen(v)->report.grants - trial->grants[i]) * SWITCH_NS;
	double missing = due - (double)v->ran_ns - switches;

	if (missing / owed > result->promise)
		result->promise = missing / owed;
	if (missing > owed)
		fail_msg("seed %u: %u of %u (request %g %%) had %.1f ms, not %.1f", (unsigned)trial->number,
			 i, trial->count, request * 100, (double)v->ran_ns / 1e6,
			 (due - owed - switches) / 1e6);
}

static void check_hunger(const struct trial *trial, unsigned i, struct trial_result *result)
{
	const struct sim_vgpu *v = trial->vgpus[i];
	uint64_t slice = sched_default.slice_min_ns + 2 * MS;
	uint32_t least = v->share.request_ppm ? v->share.request_ppm : 10000;
	uint64_t rounds = slice * SCHED_WHOLE_PPM / least, longest;

	if (rounds < 3 * sched_default.round_ns)
		rounds = 3 * sched_default.round_ns;
	longest = 2 * sched_default.window_ns + rounds + trial->count * slice;
	if ((double)sim_seen(v)->longest_starve_ns / (double)longest > result->hunger)
		result->hunger = (double)sim_seen(v)->longest_starve_ns / (double)longest;
	if (sim_seen(v)->longest_starve_ns > longest)
		fail_msg("seed %u: %u of %u (request %g %%) waited for %.1f ms, not %.1f",
			 (unsigned)trial->number, i, trial->count, v->share.request_ppm / 1e4,
			 (double)sim_seen(v)->longest_starve_ns / 1e6, (double)longest / 1e6);
}

static void check_limit(const struct trial *trial, unsigned i, uint64_t from, struct trial_result *result)
{
	const struct sim_vgpu *v = trial->vgpus[i];
	double over = sim_most_in_window(v, from, trial->sim->options.window_ns) - v->share.limit_ppm / 1e4;

	/* By the clock, what shares the GPU by turns is only guessed at. */
	if (!trial->sim->options.is_measured && (trial->sim->options.how != SCHED_TOKENS || v->share.domain))
		return;
	if (over > result->limit)
		result->limit = over;
	if (over > 1)
		fail_msg("seed %u: %u of %u: %.2f points over its limit of %g", (unsigned)trial->number, i,
			 trial->count, over, v->share.limit_ppm / 1e4);
}

void trial_steady(uint64_t seed, const struct trial_policies *policies, struct trial_result *result)
{
	struct trial trial;
	uint64_t from;

	begin(&trial, seed, STEADY_NS + 2 * S);
	add_all(&trial);
	sim_set_policy(trial.sim, policies->next(policies->context, &trial.seed));
	sim_run(trial.sim, 1 * S);
	mark(&trial);
	from = trial.sim->now_ns;
	run_under(&trial, policies, STEADY_NS);
	for (unsigned i = 0; i < trial.count; i++) {
		check_limit(&trial, i, from, result);
		if (!trial.is_swapped)
			check_hunger(&trial, i, result);
		if (has_promise(&trial, i))
			check_promise(&trial, i, result);
	}
	result->virtual_ns += trial.sim->now_ns - SIM_BEGIN_NS;
	result->handovers += sched_handovers(trial.sim->sched);
	sim_free(trial.sim);
}

static void disturb(struct trial *trial, const struct trial_policies *policies)
{
	uint64_t *seed = &trial->seed;
	struct sched_share share = random_share(seed, 10);
	bool is_always;
	const struct sim_load *load = random_load(seed, &is_always);

	if (sim_random(seed) % 6)
		sim_disturb(trial->sim, seed, &share, load);
	else
		sim_set_policy(trial->sim, policies->next(policies->context, seed));
}

/* Under whatever policy there is now: nothing is submitted any more, and what was comes to its end. */
static void drain(struct sim *sim)
{
	bool is_done = false;

	for (unsigned i = 0; i < sim->count; i++) {
		sim_bench(sim->vgpus[i], false);
		sim_set_load(sim->vgpus[i], &sim_none);
	}
	for (unsigned ms = 0; ms < 40000 && !is_done; ms += 100) {
		sim_run(sim, 100 * MS);
		is_done = true;
		for (unsigned i = 0; i < sim->count; i++)
			is_done &= !sim->vgpus[i]->count;
	}
	if (!is_done)
		fail_msg("not all that was submitted has come to its end");
}

void trial_disturbed(uint64_t seed, const struct trial_policies *policies, struct trial_result *result)
{
	struct trial trial;

	begin(&trial, seed, 50 * S);
	for (unsigned i = 0; i < 200; i++) {
		disturb(&trial, policies);
		sim_run(trial.sim,
			sim_between(&trial.seed, 1, 30) * (sim_random(&trial.seed) % 4 ? MS : 20 * US));
	}
	drain(trial.sim);
	result->virtual_ns += trial.sim->now_ns - SIM_BEGIN_NS;
	result->handovers += sched_handovers(trial.sim->sched);
	sim_free(trial.sim);
}

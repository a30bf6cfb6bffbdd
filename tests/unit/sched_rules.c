/* sched: what holds whatever happens: nobody starves, nobody has what another has, and it does not cost much. */
#include "sched/sched.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "sched_trial.h"

static const struct sim_load *const loads[] = { &sim_busy_load, &sim_synchronous,  &sim_small,
						&sim_graphs,	&sim_now_and_then, &sim_none };
enum { LOADS = sizeof(loads) / sizeof(loads[0]) };

/* Requests of all together at most the whole, from 1 % on; some have limits, some ride and do little. */
static void add_random(struct sim *sim, uint64_t *seed, unsigned count)
{
	uint32_t left = 100;

	for (unsigned i = 0; i < count; i++) {
		uint32_t request = (uint32_t)sim_between(seed, 0, left * 2 / (count - i));
		struct sched_share share = sim_request(request);
		const struct sim_load *load = loads[sim_random(seed) % LOADS];

		left -= request;
		if (sim_random(seed) % 4 == 0)
			share.limit_ppm = (uint32_t)sim_between(seed, request > 5 ? request : 5, 100) * 10000;
		if (sim_random(seed) % 6 == 0) {
			share.class = SCHED_LATENCY;
			load = &sim_now_and_then;
		}
		sim_add(sim, &share, load);
	}
}

static void nobody_starves(void **state)
{
	double worst = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 200 / TRIAL_FEWER; seed++) {
		uint64_t random = seed;
		unsigned count = (unsigned)sim_between(&random, 2, 12);
		struct sim *sim = sim_new(&sched_default, seed, 6 * S);
		uint64_t slice = sched_default.slice_min_ns + 2 * MS;

		add_random(sim, &random, count);
		sim_run(sim, 5 * S);
		for (unsigned i = 0; i < count; i++) {
			const struct sim_vgpu *v = sim->vgpus[i];
			uint32_t least = v->share.request_ppm ? v->share.request_ppm : 10000;
			uint64_t rounds = slice * SCHED_WHOLE_PPM / least, longest;

			/* Where its share of a round is less than a slice there is not one in every round. */
			if (rounds < 3 * sched_default.round_ns)
				rounds = 3 * sched_default.round_ns;
			longest = rounds + count * slice;
			if ((double)sim_seen(v)->longest_starve_ns / (double)longest > worst)
				worst = (double)sim_seen(v)->longest_starve_ns / (double)longest;
			if (sim_seen(v)->longest_starve_ns > longest)
				fail_msg(
					"seed %u: %u of %u (request %g %%, limit %g %%) waited for %.1f ms, not %.1f",
					(unsigned)seed, i, count, v->share.request_ppm / 1e4,
					v->share.limit_ppm / 1e4,
					(double)sim_seen(v)->longest_starve_ns / 1e6, (double)longest / 1e6);
		}
		sim_free(sim);
	}
	print_message("the longest wait was %.2f of what is allowed\n", worst);
}

static struct sched_share random_share(uint64_t *seed)
{
	struct sched_share share = sim_request((double)sim_between(seed, 0, 10));

	if (sim_random(seed) % 3 == 0)
		share.limit_ppm = (uint32_t)sim_between(seed, 100000, SCHED_WHOLE_PPM);
	if (sim_random(seed) % 4 == 0)
		share.class = SCHED_LATENCY;
	if (sim_random(seed) % 6 == 0)
		share.objective_ns = 2 * MS, share.percentile_ppm = 990000;
	if (sim_random(seed) % 3 == 0)
		share.domain = (uint32_t)sim_between(seed, 1, 2);
	if (sim_random(seed) % 8 == 0)
		share.timeslice_us = 700;
	return share;
}

/* The simulation fails what must not be (sched_sim.h). */
static void its_rules_hold_whatever_happens(void **state)
{
	uint64_t most = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 500 / TRIAL_FEWER; seed++) {
		uint64_t random = seed * 7919;
		struct sim *sim = sim_new(&sched_default, seed, 4 * S);

		for (unsigned i = 0; i < 100; i++) {
			struct sched_share share = random_share(&random);

			sim_disturb(sim, &random, &share, loads[sim_random(&random) % LOADS]);
			sim_run(sim, sim_between(&random, 1, 20) * (sim_random(&random) % 4 ? MS : 20 * US));
		}
		/* Left alone, everybody who wants comes to run again. */
		for (unsigned i = 0; i < sim->count; i++) {
			sim_bench(sim->vgpus[i], false);
			sim_set_present(sim->vgpus[i], true);
			sim_set_load(sim->vgpus[i], &sim_synchronous);
		}
		sim_mark(sim);
		sim_run(sim, 1500 * MS);
		for (unsigned i = 0; i < sim->count; i++)
			if (!sim->vgpus[i]->ran_ns)
				fail_msg("seed %u: %u of %u never runs again", (unsigned)seed, i, sim->count);
		if (sim->most_orders > most)
			most = sim->most_orders;
		sim_free(sim);
	}
	print_message("at most %u orders at once\n", (unsigned)most);
}

/* Events without rhyme or reason, as a caller that has lost track would send them. */
static void nonsense_does_no_harm(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 200 / TRIAL_FEWER; seed++) {
		uint64_t random = seed, now_ns = seed;
		struct sched *sched = sched_new(&sched_default, now_ns);
		struct sched_vgpu *vgpus[6];
		struct sched_order order;
		struct sched_report report;

		for (unsigned i = 0; i < 6; i++) {
			struct sched_share share = random_share(&random);

			vgpus[i] = sched_add(sched, &share, NULL, now_ns);
		}
		for (unsigned i = 0; i < 500; i++) {
			struct sched_vgpu *v = vgpus[sim_random(&random) % 6];
			unsigned orders = 0;

			now_ns += sim_between(&random, 0, 3 * MS);
			switch (sim_random(&random) % 9) {
			case 0:
				sched_set_present(sched, v, sim_random(&random) % 4, now_ns);
				break;
			case 1:
				sched_waits(sched, v, now_ns);
				break;
			case 2:
				sched_runs(sched, v, now_ns);
				break;
			case 3:
				sched_done(sched, v, now_ns);
				break;
			case 4:
				sched_stopped(sched, v, now_ns);
				break;
			case 5:
				sched_resumed(sched, v, now_ns);
				break;
			case 6:
				sched_hold(sched, v, sim_random(&random) % 2, now_ns);
				break;
			case 7:
				sched_used(sched, v, sim_between(&random, 0, 5 * MS), now_ns);
				break;
			default:
				sched_took(sched, v, sim_between(&random, 0, 5 * MS), now_ns);
			}
			while (sched_next(sched, now_ns, &order))
				assert_true(++orders <= 8 * 6);
			sched_report(sched, v, &report);
			assert_true(report.held_ns <= now_ns && report.window_used_ns <= 100 * S);
		}
		sched_free(sched);
	}
}

static double cost_us(struct sched *sched, uint64_t now_ns)
{
	struct timespec from, to;
	struct sched_order order;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	for (unsigned i = 0; i < 1000; i++) {
		now_ns += 100 * US;
		while (sched_next(sched, now_ns, &order))
			;
		assert_true(sched_wake_ns(sched) > 0);
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / 1e3 / 1000;
}

static void a_thousand_idle_ones_cost_little(void **state)
{
	uint64_t now_ns = 1 * S;
	struct sched *sched = sched_new(&sched_default, now_ns);
	struct sched_share share = sim_limit(0.05, 80);
	struct sched_vgpu *v = NULL, *w = NULL;
	struct sched_order order;
	double idle, busy;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		w = v;
		v = sched_add(sched, &share, NULL, now_ns);
		sched_set_present(sched, v, true, now_ns);
	}
	while (sched_next(sched, now_ns, &order))
		;
	assert_int_equal(sched_wake_ns(sched), SCHED_NEVER);
	idle = cost_us(sched, now_ns);
	now_ns += 1 * S;
	sched_waits(sched, v, now_ns);
	sched_waits(sched, w, now_ns);
	busy = cost_us(sched, now_ns);
	print_message("a call costs %.2f us with 1000 idle ones, %.2f with two at work among them\n", idle,
		      busy);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__OPTIMIZE__)
	assert_true(idle < 20 && busy < 20);
#endif
	sched_free(sched);
}

static void a_promise_is_refused_with_the_arithmetic(void **state)
{
	struct sched *sched = sched_new(&sched_default, 0);
	struct sched_share share = sim_request(60);
	struct sched_vgpu *v;
	struct bf_error err = { 0 };

	(void)state;
	assert_int_equal(sched_promised_ppm(sched), 0);
	assert_int_equal(sched_check(sched, &share, NULL, &err), 0);
	v = sched_add(sched, &share, NULL, 0);
	share = sim_request(12.5);
	sched_add(sched, &share, NULL, 0);
	assert_int_equal(sched_promised_ppm(sched), 725000);
	share = sim_request(27.5);
	assert_int_equal(sched_check(sched, &share, NULL, &err), 0);
	share.request_ppm++;
	assert_int_equal(sched_check(sched, &share, NULL, &err), -ENOSPC);
	assert_string_equal(
		err.text,
		"a requested share of 27.5001 % of the GPU's time does not fit: other vGPUs have requested 72.5 %, 27.5 % are left");
	/* Instead of what it has itself. */
	share = sim_request(87.5);
	assert_int_equal(sched_check(sched, &share, v, &err), 0);
	share.request_ppm++;
	assert_int_equal(sched_check(sched, &share, v, &err), -ENOSPC);
	share = sim_limit(0, 0);
	assert_int_equal(sched_check(sched, &share, NULL, &err), -EINVAL);
	share = sim_limit(30, 20);
	assert_int_equal(sched_check(sched, &share, NULL, &err), -EINVAL);
	assert_string_equal(err.text, "time 30:20: not a request up to a limit, both up to 100");
	share = sim_limit(0, 101);
	assert_int_equal(sched_check(sched, &share, NULL, &err), -EINVAL);
	share = sim_limit(0, 100);
	assert_int_equal(sched_check(sched, &share, NULL, NULL), 0);
	sched_remove(sched, v, 0);
	assert_int_equal(sched_promised_ppm(sched), 125000);
	sched_free(sched);
}

static void who_waits_is_told_for_whom(void **state)
{
	struct sim *sim = sim_new(&sched_default, 70, 12 * S);
	struct sched_share most = sim_request(70), some = sim_request(20), least = sim_request(10);
	struct sim_vgpu *a = sim_add(sim, &most, &sim_busy_load);
	struct sim_vgpu *b = sim_add(sim, &some, &sim_busy_load);
	struct sim_vgpu *c = sim_add(sim, &least, &sim_busy_load);
	struct sched_waited waited[4];

	(void)state;
	sim_run(sim, 5 * S);
	assert_int_equal(sched_waited_for(c->vgpu, waited, 4), 2);
	assert_ptr_equal(waited[0].other, a->vgpu);
	assert_ptr_equal(waited[1].other, b->vgpu);
	sim_assert_near("seconds", (double)waited[0].ns / 1e9, 3.5, 0.2);
	sim_assert_near("seconds", (double)waited[1].ns / 1e9, 1, 0.1);
	assert_int_equal(sched_waited_for(c->vgpu, waited, 1), 1);
	assert_ptr_equal(waited[0].other, a->vgpu);
	assert_ptr_equal(sched_owner(c->vgpu), c);
	sim_assert_near("weight", sim_seen(a)->report.weight_ppm / 1e4, 70, 0.01);
	sim_assert_near("slice", (double)sim_seen(b)->report.slice_ns / 1e6, 20, 0.01);
	sim_remove(a);
	assert_int_equal(sched_waited_for(c->vgpu, waited, 4), 1);
	assert_ptr_equal(waited[0].other, b->vgpu);
	sim_free(sim);
}

static void one_whose_programs_have_ended_is_idle(void **state)
{
	struct sim *sim = sim_new(&sched_default, 71, 12 * S);
	struct sched_share share = sim_request(50);
	struct sim_vgpu *a = sim_add(sim, &share, &sim_busy_load);
	struct sim_vgpu *b = sim_add(sim, &share, &sim_busy_load);

	(void)state;
	sim_run(sim, 1 * S);
	assert_int_not_equal(sim_seen(a)->report.state, SCHED_IS_IDLE);
	sim_set_present(a, false);
	assert_int_equal(sim_seen(a)->report.state, SCHED_IS_IDLE);
	assert_false(a->is_open);
	sim_run(sim, 200 * MS);
	sim_mark(sim);
	sim_run(sim, 1 * S);
	assert_int_equal(b->closes, 0);
	sim_assert_near("alone", sim_use(b), 100, 0.5);
	sim_bench(b, true);
	assert_int_equal(sim_seen(b)->report.state, SCHED_IS_HELD);
	sim_run(sim, 1 * S);
	sim_mark(sim);
	sim_bench(b, false);
	sim_run(sim, 100 * MS);
	assert_true(sim_use(b) > 95);
	sim_free(sim);
}

static void what_still_runs_after_its_slice_is_stopped_only_if_in_the_way(void **state)
{
	struct sim *sim = sim_new(&sched_default, 72, 12 * S);
	struct sched_share share = sim_request(50);
	struct sim_vgpu *a = sim_add(sim, &share, &sim_graphs);
	struct sim_vgpu *b = sim_add(sim, &share, &sim_graphs);

	(void)state;
	sim_run(sim, 1 * S);
	assert_true(a->stops > 0 && b->stops > 0);
	sim_set_load(b, &sim_none);
	sim_run(sim, 300 * MS);
	sim_mark(sim);
	sim_run(sim, 1 * S);
	assert_int_equal(a->stops + a->closes, 0);
	sim_free(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_starves),
		cmocka_unit_test(its_rules_hold_whatever_happens),
		cmocka_unit_test(nonsense_does_no_harm),
		cmocka_unit_test(a_thousand_idle_ones_cost_little),
		cmocka_unit_test(a_promise_is_refused_with_the_arithmetic),
		cmocka_unit_test(who_waits_is_told_for_whom),
		cmocka_unit_test(one_whose_programs_have_ended_is_idle),
		cmocka_unit_test(what_still_runs_after_its_slice_is_stopped_only_if_in_the_way),
	};

	return cmocka_run_group_tests_name("sched_rules", tests, NULL, NULL);
}

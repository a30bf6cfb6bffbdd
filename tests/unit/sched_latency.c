/* sched: latency vGPUs ride beside the others, do not push them below what is theirs, and have their objectives. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "sched_sim.h"

static void a_small_rider_waits_less_than_a_millisecond(void **state)
{
	static const double weights[] = { 20, 30, 40 };

	(void)state;
	for (unsigned count = 1; count <= 3; count += 2) {
		struct sim *sim = sim_new(&sched_default, 40 + count, 12 * S);
		struct sched_share share = sim_latency(10);
		struct sim_vgpu *rider = sim_add(sim, &share, &sim_now_and_then);
		double sum = 0, rest;

		for (unsigned i = 0; i < count; i++) {
			share = sim_request(weights[i]);
			sim_add(sim, &share, &sim_busy_load);
			sum += weights[i];
		}
		sim_run(sim, 500 * MS);
		assert_true(sim_seen(rider)->report.is_rider);
		sim_mark(sim);
		sim_run(sim, 10 * S);
		sim_print(count == 1 ? "rider:20" : "rider:20:30:40", sim);
		print_message("%28s longest start %.3f ms, use %.2f, thought %.2f\n", "",
			      (double)rider->longest_start_ns / 1e6, sim_use(rider),
			      (double)sim_seen(rider)->report.window_used_ns / 1e7);
		assert_true(rider->is_open);
		assert_int_equal(rider->closes + rider->stops, 0);
		assert_true(rider->kernels_done > 300);
		assert_true(rider->longest_start_ns < 1 * MS);
		rest = 100 - sim_share(rider);
		for (unsigned i = 0; i < count; i++)
			sim_assert_near("beside a rider", sim_share(sim->vgpus[i + 1]),
					rest * weights[i] / sum, 1);
		assert_true(sim_busy(sim) > 90);
		sim_free(sim);
	}
}

static void turns_beside_a_rider_are_short_until_it_leaves(void **state)
{
	struct sim *sim = sim_new(&sched_default, 45, 12 * S);
	struct sched_share share = sim_request(30), by_hand = sim_request(30), latency = sim_latency(10);
	struct sim_vgpu *plain = sim_add(sim, &share, &sim_busy_load), *own, *rider;

	(void)state;
	by_hand.timeslice_us = 500;
	by_hand.interleave = 1;
	own = sim_add(sim, &by_hand, &sim_busy_load);
	sim_run(sim, 200 * MS);
	assert_int_equal(plain->slices, 0);
	assert_int_equal(own->slices, 1);
	rider = sim_add(sim, &latency, &sim_now_and_then);
	sim_run(sim, 200 * MS);
	assert_int_equal(rider->timeslice_us, 1000000);
	assert_int_equal(rider->interleave, 2);
	assert_int_equal(plain->timeslice_us, 1);
	assert_int_equal(plain->interleave, 0);
	assert_int_equal(own->timeslice_us, 500);
	assert_int_equal(own->interleave, 1);
	assert_int_equal(own->slices, 1);
	sim_set_present(rider, false);
	sim_run(sim, 200 * MS);
	assert_int_equal(plain->timeslice_us, 2048);
	assert_int_equal(plain->interleave, 1);
	assert_int_equal(plain->slices, 2);
	sim_set_present(rider, true);
	sim_run(sim, 200 * MS);
	assert_int_equal(plain->timeslice_us, 1);
	assert_int_equal(rider->timeslice_us, 1000000);
	sim_remove(rider);
	sim_run(sim, 200 * MS);
	assert_int_equal(plain->timeslice_us, 2048);
	assert_int_equal(own->slices, 1);
	sim_set(own, &share); /* no longer by hand */
	sim_run(sim, 200 * MS);
	assert_int_equal(own->timeslice_us, 2048);
	assert_int_equal(own->interleave, 1);
	sim_free(sim);
}

static void riders_do_not_keep_each_other_waiting(void **state)
{
	struct sim *sim = sim_new(&sched_default, 46, 12 * S);
	struct sched_share share = sim_latency(30);
	struct sim_vgpu *greedy = sim_add(sim, &share, &sim_busy_load);
	struct sim_vgpu *small = sim_add(sim, &share, &sim_now_and_then);

	(void)state;
	sim_run(sim, 1 * S);
	sim_mark(sim);
	sim_run(sim, 5 * S);
	sim_print("two riders", sim);
	print_message("%28s longest start %.3f ms\n", "", (double)small->longest_start_ns / 1e6);
	assert_true(sim_seen(greedy)->report.is_rider && sim_seen(small)->report.is_rider);
	assert_true(small->longest_start_ns < 3 * MS);
	sim_free(sim);
}

static void a_greedy_rider_leaves_others_what_they_requested(void **state)
{
	static const struct {
		const char *name;
		double own, others[3];
	} cases[] = {
		{ "greedy 10:90", 10, { 90 } },
		{ "greedy 20:30:50", 20, { 30, 50 } },
		{ "greedy 5:20:30:40", 5, { 20, 30, 40 } },
		{ "greedy 50:50", 50, { 50 } },
		{ "greedy -:80", 0, { 80 } },
		{ "greedy 10:40", 10, { 40 } },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sim *sim = sim_new(&sched_default, 50 + i, 30 * S);
		struct sched_share share = sim_latency(cases[i].own);
		struct sim_vgpu *rider = sim_add(sim, &share, &sim_busy_load);

		for (unsigned j = 0; j < 3 && cases[i].others[j] > 0; j++) {
			share = sim_request(cases[i].others[j]);
			sim_add(sim, &share, &sim_busy_load);
		}
		sim_run(sim, 2 * S);
		sim_mark(sim);
		sim_run(sim, 10 * S);
		sim_print(cases[i].name, sim);
		for (unsigned j = 0; j + 1 < sim->count; j++)
			if (sim_share(sim->vgpus[j + 1]) < cases[i].others[j] - 1.5)
				fail_msg("%s: %.2f", cases[i].name, sim_share(sim->vgpus[j + 1]));
		if (sim_share(rider) < cases[i].own - 1.5)
			fail_msg("%s: the rider has %.2f", cases[i].name, sim_share(rider));
		sim_set_load(rider, &(struct sim_load){ 1, 100 * US, 200 * US, 20 * MS, 40 * MS });
		sim_run(sim, 12 * S); /* what it has submitted before comes to its end in this time */
		if (cases[i].own > 0) {
			assert_true(sim_seen(rider)->report.is_rider);
			assert_false(sim_seen(rider)->report.is_over_ride);
			sim_mark(sim);
			sim_run(sim, 2 * S);
			assert_int_equal(rider->closes, 0);
			assert_true(rider->longest_start_ns < 1 * MS);
		}
		sim_free(sim);
	}
}

static void a_greedy_rider_leaves_something_to_those_without_a_request(void **state)
{
	struct sim *sim = sim_new(&sched_default, 58, 30 * S);
	struct sched_share latency = sim_latency(40), none = sim_request(0);
	struct sim_vgpu *rider = sim_add(sim, &latency, &sim_busy_load);
	struct sim_vgpu *other = sim_add(sim, &none, &sim_busy_load);

	(void)state;
	sim_run(sim, 2 * S);
	sim_mark(sim);
	sim_run(sim, 10 * S);
	sim_print("greedy 40:-", sim);
	assert_true(sim_seen(rider)->report.is_over_ride);
	sim_assert_near("the rest", sim_share(other), 60, 1.5);
	sim_free(sim);
}

/* As far as sched knows: submissions that took so long, and time. */
static uint64_t slice_beside(struct sched *sched, struct sched_vgpu *rider, struct sched_vgpu *other,
			     uint64_t took_ns, uint64_t *now_ns, unsigned count)
{
	struct sched_order order;
	struct sched_report report;

	for (unsigned i = 0; i < count; i++) {
		*now_ns += 1 * MS;
		sched_runs(sched, rider, *now_ns);
		sched_took(sched, rider, took_ns, *now_ns);
		sched_done(sched, rider, *now_ns + 100 * US);
		while (sched_next(sched, *now_ns + 100 * US, &order))
			;
	}
	sched_report(sched, other, &report);
	return report.timeslice_us;
}

static void slices_grow_while_the_objective_is_met_and_fall_when_it_is_missed(void **state)
{
	static const uint64_t steps[] = { 1, 50, 200, 500, 1000, 2000 };
	uint64_t now_ns = 5 * S, slice, last = 0;
	struct sched *sched = sched_new(&sched_default, now_ns);
	struct sched_share latency = sim_latency(10), other_share = sim_request(50);
	struct sched_vgpu *rider, *other;
	struct sched_report report;
	unsigned step = 0;

	(void)state;
	latency.objective_ns = 2 * MS;
	latency.percentile_ppm = 950000;
	rider = sched_add(sched, &latency, NULL, now_ns);
	other = sched_add(sched, &other_share, NULL, now_ns);
	sched_set_present(sched, rider, true, now_ns);
	sched_set_present(sched, other, true, now_ns);
	sched_waits(sched, other, now_ns);
	for (unsigned i = 0; i < 200; i++) {
		slice = slice_beside(sched, rider, other, 1 * MS, &now_ns, 5);
		if (slice == last)
			continue;
		assert_true(step < 6);
		assert_int_equal(slice, steps[step++]);
		last = slice;
	}
	assert_int_equal(step, 6);
	/* Met, but not by much: it stays. */
	assert_int_equal(slice_beside(sched, rider, other, 1900 * US, &now_ns, 600), 2000);
	/* Missed by more than one in twenty. */
	assert_int_equal(slice_beside(sched, rider, other, 3 * MS, &now_ns, 100), 1);
	sched_report(sched, rider, &report);
	assert_int_equal(report.missed, 100);
	assert_int_equal(report.tail_ns, 3 * MS);
	assert_int_equal(report.p50_ns, 1900 * US);
	/* And again, when it is met. */
	assert_true(slice_beside(sched, rider, other, 1 * MS, &now_ns, 700) > 1);
	sched_free(sched);
}

static void a_met_objective_saves_switches(void **state)
{
	struct sim *sim = sim_new(&sched_default, 59, 12 * S);
	struct sched_share latency = sim_latency(30), share = sim_request(50);
	struct sim_vgpu *rider, *other;

	(void)state;
	latency.objective_ns = 20 * MS;
	latency.percentile_ppm = 990000;
	rider = sim_add(sim, &latency, &sim_now_and_then);
	other = sim_add(sim, &share, &sim_busy_load);
	sim_run(sim, 10 * S);
	assert_int_equal(other->timeslice_us, 2000);
	assert_true(sim_seen(rider)->report.tail_ns < 20 * MS);
	assert_int_equal(sim_seen(rider)->report.missed, 0);
	sim_free(sim);
}

static void in_tokens_a_latency_vgpu_goes_first_until_it_had_its_request(void **state)
{
	struct sched_options options = sched_default;
	struct sched_share latency = sim_latency(20), share = sim_request(40);
	struct sim_vgpu *v;
	struct sim *sim;

	(void)state;
	options.how = SCHED_TOKENS;
	sim = sim_new(&options, 60, 30 * S);
	v = sim_add(sim, &latency, &sim_now_and_then);
	sim_add(sim, &share, &sim_busy_load);
	sim_add(sim, &share, &sim_busy_load);
	sim_run(sim, 1 * S);
	sim_mark(sim);
	sim_run(sim, 10 * S);
	sim_print("tokens, latency:40:40", sim);
	print_message("%28s longest start %.3f ms\n", "", (double)v->longest_start_ns / 1e6);
	assert_true(v->longest_start_ns < 4 * MS); /* a stop, a start and what is told late */
	sim_set_load(v, &sim_busy_load);
	sim_run(sim, 2 * S);
	sim_mark(sim);
	sim_run(sim, 10 * S);
	sim_print("tokens, greedy 20:40:40", sim);
	sim_assert_near("greedy", sim_share(v), 20, 1.5);
	sim_free(sim);
}

/* Two busy vGPUs on the GPU together beside a rider, which keeps turns short: most of the time is theirs all the same, and
 * not the hardware's for going from one to the other. */
static void two_keep_their_time(const char *what, uint64_t seed, const struct sim_load *riders,
				struct sched_share share)
{
	struct sim *sim = sim_new(&sched_default, seed, 12 * S);
	struct sched_share latency = sim_latency(10);
	struct sim_vgpu *one, *other;

	sim_add(sim, &latency, riders);
	one = sim_add(sim, &share, &sim_busy_load);
	other = sim_add(sim, &share, &sim_busy_load);
	sim_run(sim, 500 * MS);
	sim_mark(sim);
	sim_run(sim, 10 * S);
	sim_print(what, sim);
	assert_true(sim_use(one) + sim_use(other) > 60);
	sim_free(sim);
}

static void those_of_one_domain_do_not_lose_their_time_in_changing(void **state)
{
	struct sched_share share = sim_request(30);

	(void)state;
	share.domain = 1;
	two_keep_their_time("domain beside a rider", 47, &sim_now_and_then, share);
}

/* Without a token, too: a latency program that is there and does nothing leaves two others to themselves. */
static void those_without_a_token_do_not_either(void **state)
{
	(void)state;
	two_keep_their_time("two beside an idle rider", 48, &sim_none, sim_request(0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_of_one_domain_do_not_lose_their_time_in_changing),
		cmocka_unit_test(those_without_a_token_do_not_either),
		cmocka_unit_test(a_small_rider_waits_less_than_a_millisecond),
		cmocka_unit_test(turns_beside_a_rider_are_short_until_it_leaves),
		cmocka_unit_test(riders_do_not_keep_each_other_waiting),
		cmocka_unit_test(a_greedy_rider_leaves_others_what_they_requested),
		cmocka_unit_test(a_greedy_rider_leaves_something_to_those_without_a_request),
		cmocka_unit_test(slices_grow_while_the_objective_is_met_and_fall_when_it_is_missed),
		cmocka_unit_test(a_met_objective_saves_switches),
		cmocka_unit_test(in_tokens_a_latency_vgpu_goes_first_until_it_had_its_request),
	};

	return cmocka_run_group_tests_name("sched_latency", tests, NULL, NULL);
}

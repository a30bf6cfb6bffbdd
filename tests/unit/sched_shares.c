/* sched: shares of the GPU's time, on a simulated GPU. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched_sim.h"

/* Each has its request's part of the sum, within a point over ten seconds. */
static void assert_shares_hold(const char *name, const double *percent, const struct sim_load *const *loads,
			       unsigned count, const struct sched_options *options)
{
	struct sim *sim = sim_new(options, count, 11 * S);
	double sum = 0;

	for (unsigned i = 0; i < count; i++) {
		struct sched_share share = sim_request(percent[i]);

		sim_add(sim, &share, loads[i]);
		sum += percent[i];
	}
	sim_run(sim, 500 * MS);
	sim_mark(sim);
	sim_run(sim, 10 * S);
	sim_print(name, sim);
	for (unsigned i = 0; i < count; i++)
		sim_assert_near(name, sim_share(sim->vgpus[i]), 100 * percent[i] / sum, 1);
	if (sim_busy(sim) < 90)
		fail_msg("%s: the GPU was busy for %.1f %%", name, sim_busy(sim));
	sim_free(sim);
}

static const struct sim_load *const all_busy[8] = { &sim_busy_load, &sim_busy_load, &sim_busy_load,
						    &sim_busy_load, &sim_busy_load, &sim_busy_load,
						    &sim_busy_load, &sim_busy_load };

static void busy_programs_have_their_shares(void **state)
{
	(void)state;
	assert_shares_hold("10:90", (double[]){ 10, 90 }, all_busy, 2, &sched_default);
	assert_shares_hold("25:75", (double[]){ 25, 75 }, all_busy, 2, &sched_default);
	assert_shares_hold("5:15:30:50", (double[]){ 5, 15, 30, 50 }, all_busy, 4, &sched_default);
	assert_shares_hold("eight", (double[]){ 5, 5, 10, 10, 10, 15, 20, 25 }, all_busy, 8, &sched_default);
	assert_shares_hold("eight of 12.5", (double[]){ 12.5, 12.5, 12.5, 12.5, 12.5, 12.5, 12.5, 12.5 },
			   all_busy, 8, &sched_default);
}

static void synchronous_programs_have_their_shares(void **state)
{
	const struct sim_load *loads[8] = { &sim_synchronous, &sim_busy_load, &sim_synchronous,
					    &sim_busy_load,   &sim_small,     &sim_busy_load,
					    &sim_synchronous, &sim_small };

	(void)state;
	assert_shares_hold("synchronous 10:90", (double[]){ 10, 90 }, loads, 2, &sched_default);
	assert_shares_hold("synchronous 90:10", (double[]){ 90, 10 }, loads, 2, &sched_default);
	assert_shares_hold("synchronous 5:15:30:50", (double[]){ 5, 15, 30, 50 }, loads, 4, &sched_default);
	assert_shares_hold("mixed eight", (double[]){ 5, 5, 10, 10, 10, 15, 20, 25 }, loads, 8,
			   &sched_default);
}

static void requests_of_less_than_the_whole_scale(void **state)
{
	(void)state;
	assert_shares_hold("10:20", (double[]){ 10, 20 }, all_busy, 2, &sched_default);
	assert_shares_hold("2:3:5", (double[]){ 2, 3, 5 }, all_busy, 3, &sched_default);
}

static void those_without_a_request_share_the_rest(void **state)
{
	struct sim *sim = sim_new(&sched_default, 3, 11 * S);
	struct sched_share most = sim_request(60), none = sim_request(0);
	struct sim_vgpu *a = sim_add(sim, &most, &sim_busy_load);
	struct sim_vgpu *b = sim_add(sim, &none, &sim_busy_load);
	struct sim_vgpu *c = sim_add(sim, &none, &sim_busy_load);

	(void)state;
	sim_run(sim, 500 * MS);
	sim_mark(sim);
	sim_run(sim, 10 * S);
	sim_print("60:-:-", sim);
	sim_assert_near("requested", sim_share(a), 60, 1);
	sim_assert_near("not requested", sim_share(b), 20, 1);
	sim_assert_near("not requested", sim_share(c), 20, 1);
	sim_free(sim);
}

static void time_that_one_does_not_use_goes_to_the_others(void **state)
{
	struct sim *sim = sim_new(&sched_default, 4, 31 * S);
	struct sched_share half = sim_request(50), fifth = sim_request(20), third = sim_request(30);
	struct sim_load rare = { 1, 1 * MS, 4 * MS, 40 * MS, 60 * MS };
	struct sim_vgpu *idle = sim_add(sim, &half, &sim_none);
	struct sim_vgpu *a = sim_add(sim, &fifth, &sim_busy_load);
	struct sim_vgpu *b = sim_add(sim, &third, &sim_synchronous);

	(void)state;
	sim_run(sim, 500 * MS);
	sim_mark(sim);
	sim_run(sim, 10 * S);
	sim_print("(50):20:30", sim);
	sim_assert_near("of what is left", sim_share(a), 40, 1);
	sim_assert_near("of what is left", sim_share(b), 60, 1);
	assert_true(sim_busy(sim) > 90);
	sim_set_load(idle, &rare);
	sim_mark(sim);
	sim_run(sim, 10 * S);
	sim_print("(50 of 3 ms in 50):20:30", sim);
	assert_true(sim_busy(sim) > 90);
	sim_assert_near("of what is left", sim_share(a) / (sim_share(a) + sim_share(b)), 0.4, 0.015);
	sim_set_load(a, &sim_none);
	sim_set_load(b, &sim_none);
	sim_mark(sim);
	sim_run(sim, 2 * S);
	assert_true(sim_busy(sim) > 80); /* it is alone: nothing but its own kernels and the switch */
	sim_free(sim);
}

static void plain_ones_are_left_to_the_hardware(void **state)
{
	struct sim *sim = sim_new(&sched_default, 5, 11 * S);
	struct sched_share none = sim_request(0), half = sim_request(50);
	struct sim_vgpu *a = sim_add(sim, &none, &sim_busy_load);
	struct sim_vgpu *b = sim_add(sim, &none, &sim_busy_load);
	struct sim_vgpu *c;

	(void)state;
	sim_run(sim, 2 * S);
	assert_int_equal(a->closes + b->closes + a->slices + b->slices, 0);
	assert_int_equal(sched_sharing(sim->sched), SCHED_SHARING_TURNS);
	c = sim_add(sim, &half, &sim_busy_load);
	sim_run(sim, 100 * MS);
	assert_int_equal(sched_sharing(sim->sched), SCHED_SHARING_TOKENS);
	sim_mark(sim);
	sim_run(sim, 5 * S);
	sim_assert_near("who has a request", sim_share(c), 50, 1.5);
	sim_remove(c);
	sim_run(sim, 200 * MS);
	sim_mark(sim);
	sim_run(sim, 2 * S);
	assert_int_equal(a->closes + b->closes, 0);
	assert_int_equal(sched_sharing(sim->sched), SCHED_SHARING_TURNS);
	sim_remove(b);
	sim_run(sim, 100 * MS);
	assert_int_equal(sched_sharing(sim->sched), SCHED_SHARING_OPEN);
	sim_free(sim);
}

static void tokens_for_everybody_when_asked(void **state)
{
	struct sched_options options = sched_default;

	(void)state;
	options.how = SCHED_TOKENS;
	assert_shares_hold("tokens 20:30:50", (double[]){ 20, 30, 50 }, all_busy, 3, &options);
}

static void turns_carry_the_shares_when_asked(void **state)
{
	struct sched_options options = sched_default;
	struct sim *sim;
	struct sched_share shares[] = { sim_request(20), sim_request(30), sim_request(0) };
	static const double wanted[] = { 20, 30, 50 };

	(void)state;
	options.how = SCHED_TURNS;
	sim = sim_new(&options, 6, 11 * S);
	for (unsigned i = 0; i < 3; i++)
		sim_add(sim, &shares[i], &sim_busy_load);
	sim_run(sim, 500 * MS);
	sim_mark(sim);
	sim_run(sim, 10 * S);
	sim_print("turns 20:30:-", sim);
	for (unsigned i = 0; i < 3; i++) {
		sim_assert_near("a share", sim_share(sim->vgpus[i]), wanted[i], 1);
		assert_int_equal(sim->vgpus[i]->closes + sim->vgpus[i]->stops, 0);
		assert_int_equal(sim->vgpus[i]->timeslice_us, (uint64_t)(wanted[i] * 1000));
	}
	sim_free(sim);
}

static void those_of_one_domain_hold_together(void **state)
{
	struct sim *sim = sim_new(&sched_default, 7, 11 * S);
	struct sched_share quarter = sim_request(25), half = sim_request(50);
	struct sim_vgpu *a, *b, *c;
	uint64_t together = 0;

	(void)state;
	quarter.domain = 7;
	a = sim_add(sim, &quarter, &sim_busy_load);
	b = sim_add(sim, &quarter, &sim_busy_load);
	c = sim_add(sim, &half, &sim_busy_load);
	sim_run(sim, 500 * MS);
	sim_mark(sim);
	for (unsigned i = 0; i < 10000; i++) {
		sim_run(sim, 1 * MS);
		together += a->is_open && b->is_open;
		assert_false((a->is_open || b->is_open) && c->is_open);
	}
	sim_print("25+25:50", sim);
	/* Their turns among themselves cost them a tenth or so of what they hold. */
	sim_assert_near("together", sim_share(a) + sim_share(b), 50, 4);
	sim_assert_near("each", sim_share(a), sim_share(b), 2);
	assert_true(together > 4000);
	sim_free(sim);
}

static void measured_use_is_charged_as_told(void **state)
{
	struct sched_options options = sched_default;
	struct sched_share limited = sim_limit(30, 30), rest = sim_request(70);
	struct sim *sim;

	(void)state;
	options.is_measured = true;
	assert_shares_hold("measured 10:90", (double[]){ 10, 90 }, all_busy, 2, &options);
	sim = sim_new(&options, 8, 12 * S);
	sim_add(sim, &limited, &sim_busy_load);
	sim_add(sim, &rest, &sim_now_and_then);
	sim_run(sim, 10 * S);
	sim_print("measured, limit 30", sim);
	sim_assert_near("use", sim_use(sim->vgpus[0]), 30, 1);
	for (unsigned i = 0; i < 2; i++)
		sim_assert_near("ms told", (double)sim_seen(sim->vgpus[i])->report.gpu_ns / 1e6,
				(double)sim->vgpus[i]->ran_ns / 1e6, 2);
	sim_free(sim);
}

/* From 50 ms after the change, over two seconds. */
static void assert_change_counts(struct sim *sim, const char *name, const double *wanted)
{
	sim_run(sim, 50 * MS);
	sim_mark(sim);
	sim_run(sim, 4 * S);
	sim_print(name, sim);
	for (unsigned i = 0; i < sim->count; i++)
		sim_assert_near(name, sim_share(sim->vgpus[i]), wanted[i], 1.5);
}

static void a_new_share_counts_within_50_ms(void **state)
{
	struct sim *sim = sim_new(&sched_default, 9, 30 * S);
	struct sched_share shares[] = { sim_request(1), sim_request(90), sim_request(0) }, share;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		sim_add(sim, &shares[i], &sim_busy_load);
	assert_change_counts(sim, "1:90:-", (double[]){ 1, 90, 9 });
	share = sim_request(9);
	sim_set(sim->vgpus[1], &share);
	share = sim_request(90);
	sim_set(sim->vgpus[0], &share);
	assert_change_counts(sim, "90:9:-", (double[]){ 90, 9, 1 });
	share = sim_request(50);
	sim_set(sim->vgpus[0], &share);
	sim_set(sim->vgpus[1], &share);
	share = sim_limit(0, 5);
	sim_set(sim->vgpus[2], &share);
	assert_change_counts(sim, "50:50:-", (double[]){ 49.5, 49.5, 1 });
	share = sim_limit(10, 20);
	sim_set(sim->vgpus[0], &share);
	assert_change_counts(sim, "10..20:50:-", (double[]){ 95 / 6.0, 95 * 5 / 6.0, 5 });
	share = sim_request(50);
	sim_set(sim->vgpus[0], &share);
	assert_change_counts(sim, "50:50:- again", (double[]){ 49.5, 49.5, 1 });
	sim_free(sim);
}

static void a_new_limit_counts_at_once_and_does_not_stall(void **state)
{
	struct sim *sim = sim_new(&sched_default, 10, 30 * S);
	struct sched_share none = sim_request(0), limited = sim_limit(0, 20);
	struct sim_vgpu *v = sim_add(sim, &none, &sim_busy_load);

	(void)state;
	sim_run(sim, 5 * S);
	sim_set(v, &limited);
	sim_run(sim, 50 * MS);
	for (unsigned i = 0; i < 10; i++) {
		sim_mark(sim);
		sim_run(sim, 500 * MS);
		sim_assert_near("use under the new limit", sim_use(v), 20, 3.5);
	}
	sim_set(v, &none);
	sim_run(sim, 50 * MS);
	sim_mark(sim);
	sim_run(sim, 1 * S);
	sim_assert_near("use without it", sim_use(v), 100, 0.5);
	sim_free(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(busy_programs_have_their_shares),
		cmocka_unit_test(synchronous_programs_have_their_shares),
		cmocka_unit_test(requests_of_less_than_the_whole_scale),
		cmocka_unit_test(those_without_a_request_share_the_rest),
		cmocka_unit_test(time_that_one_does_not_use_goes_to_the_others),
		cmocka_unit_test(plain_ones_are_left_to_the_hardware),
		cmocka_unit_test(tokens_for_everybody_when_asked),
		cmocka_unit_test(turns_carry_the_shares_when_asked),
		cmocka_unit_test(those_of_one_domain_hold_together),
		cmocka_unit_test(measured_use_is_charged_as_told),
		cmocka_unit_test(a_new_share_counts_within_50_ms),
		cmocka_unit_test(a_new_limit_counts_at_once_and_does_not_stall),
	};

	return cmocka_run_group_tests_name("sched_shares", tests, NULL, NULL);
}

/* sched: no more than the limit, over every window, whatever the program submits. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "sched_sim.h"

static const struct {
	const char *name;
	const struct sim_load *load;
} loads[] = {
	{ "busy", &sim_busy_load },
	{ "synchronous", &sim_synchronous },
	{ "small", &sim_small },
	{ "graphs of 30 ms", &sim_graphs },
};

static void assert_limit_holds(struct sim *sim, struct sim_vgpu *v, const char *name, double percent,
			       double off)
{
	uint64_t from;
	double most;

	sim_run(sim, 1 * S);
	from = sim->now_ns;
	sim_mark(sim);
	sim_run(sim, 10 * S);
	most = sim_most_in_window(v, from, sched_default.window_ns);
	print_message("%-16s limit %g: %.2f, at most %.2f; stops/s %.1f; busy %.1f\n", name, percent,
		      sim_use(v), most, v->stops / 10.0, sim_busy(sim));
	sim_assert_near(name, sim_use(v), percent, off);
	if (most > percent + 1)
		fail_msg("%s: %.2f %% in a window, of %g", name, most, percent);
}

static void a_limit_holds_alone(void **state)
{
	static const double percents[] = { 50, 30, 5, 90 };

	(void)state;
	for (unsigned i = 0; i < sizeof(percents) / sizeof(percents[0]); i++)
		for (unsigned j = 0; j < sizeof(loads) / sizeof(loads[0]); j++) {
			struct sim *sim = sim_new(&sched_default, i * 10 + j, 12 * S);
			struct sched_share share = sim_limit(0, percents[i]);

			assert_limit_holds(sim, sim_add(sim, &share, loads[j].load), loads[j].name,
					   percents[i], percents[i] > 50 ? 1.5 : 1);
			sim_free(sim);
		}
}

static void a_limit_holds_beside_others(void **state)
{
	(void)state;
	for (unsigned j = 0; j < sizeof(loads) / sizeof(loads[0]); j++) {
		struct sim *sim = sim_new(&sched_default, 20 + j, 12 * S);
		struct sched_share share = sim_limit(30, 30), other = sim_request(20), none = sim_request(0);
		struct sim_vgpu *v = sim_add(sim, &share, loads[j].load);

		sim_add(sim, &other, &sim_busy_load);
		sim_add(sim, &none, &sim_now_and_then);
		assert_limit_holds(sim, v, loads[j].name, 30, 1.5);
		assert_true(sim_busy(sim) > 90);
		sim_free(sim);
	}
}

/* Two thirds of the GPU are nobody's. */
static void two_limits_leave_the_rest_unused(void **state)
{
	struct sim *sim = sim_new(&sched_default, 30, 12 * S);
	struct sched_share ten = sim_limit(10, 10), twenty = sim_limit(0, 20);
	struct sim_vgpu *a = sim_add(sim, &ten, &sim_busy_load), *b = sim_add(sim, &twenty, &sim_synchronous);

	(void)state;
	assert_limit_holds(sim, a, "10 beside 20", 10, 1);
	sim_assert_near("20 beside 10", sim_use(b), 20, 1);
	sim_free(sim);
}

static void what_was_not_used_is_not_saved_up(void **state)
{
	struct sim *sim = sim_new(&sched_default, 31, 30 * S);
	struct sched_share share = sim_limit(0, 50);
	struct sim_vgpu *v = sim_add(sim, &share, &sim_busy_load);
	uint64_t from = sim->now_ns;

	(void)state;
	for (unsigned i = 0; i < 12; i++) {
		sim_set_load(v, i % 2 ? &sim_none : &sim_busy_load);
		sim_run(sim, (300 + i * 170) * MS);
	}
	if (sim_most_in_window(v, from, S) > 51)
		fail_msg("%.2f %% in a window", sim_most_in_window(v, from, S));
	sim_free(sim);
}

static void a_limited_rider_is_held_back_and_let_go(void **state)
{
	struct sim *sim = sim_new(&sched_default, 32, 12 * S);
	struct sched_share share = sim_latency(10), other = sim_request(50);
	struct sim_vgpu *v;

	(void)state;
	share.limit_ppm = 150000;
	v = sim_add(sim, &share, &sim_busy_load);
	sim_add(sim, &other, &sim_busy_load);
	assert_limit_holds(sim, v, "a rider", 15, 2); /* it pays for the switches to it */
	sim_free(sim);
}

static void who_is_over_its_limit_is_said_to_wait_for_it(void **state)
{
	struct sim *sim = sim_new(&sched_default, 33, 12 * S);
	struct sched_share share = sim_limit(0, 10);
	struct sim_vgpu *v = sim_add(sim, &share, &sim_busy_load);
	unsigned waits = 0;

	(void)state;
	sim_run(sim, 1 * S);
	for (unsigned i = 0; i < 1000; i++) {
		sim_run(sim, 1 * MS);
		waits += sim_seen(v)->report.state == SCHED_IS_WAITING &&
			 sim_seen(v)->report.reason == SCHED_FOR_LIMIT;
		assert_null(sim_seen(v)->report.holder);
	}
	assert_true(waits > 800);
	assert_true(sim_seen(v)->report.limited_ns > 1600 * MS);
	assert_true(sim_seen(v)->report.waited_ns < 100 * MS);
	assert_int_equal(sim_seen(v)->report.window_ns, S);
	sim_assert_near("window", (double)sim_seen(v)->report.window_used_ns / 1e7, 10, 1);
	sim_free(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_limit_holds_alone),
		cmocka_unit_test(a_limit_holds_beside_others),
		cmocka_unit_test(two_limits_leave_the_rest_unused),
		cmocka_unit_test(what_was_not_used_is_not_saved_up),
		cmocka_unit_test(a_limited_rider_is_held_back_and_let_go),
		cmocka_unit_test(who_is_over_its_limit_is_said_to_wait_for_it),
	};

	return cmocka_run_group_tests_name("sched_limit", tests, NULL, NULL);
}

/* Turns: who has the GPU, for how long, and that nothing is lost when it is taken away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "hw_rig.h"

enum { LONG = 300000 / GPU_RIG_LESS };

/* The GPU's time and how long each has held it, all at one moment. */
static void snapshot(struct hw_gpu *gpu, struct app *a, struct app *b, uint64_t at[3])
{
	do {
		at[2] = hw_gpu_now_ns(gpu);
		at[0] = app_time(a).held_ns;
		at[1] = app_time(b).held_ns;
	} while (hw_gpu_now_ns(gpu) - at[2] > 300000); /* somebody else had the processor in between */
}

/* How long each held the GPU, and how long that was in all. */
static void share(struct gpu_rig *rig, struct app *a, struct app *b, uint64_t held[3])
{
	uint64_t before[3];

	app_wait_running(a);
	app_wait_running(b);
	snapshot(rig->gpu, a, b, before);
	gpu_wait_ms(rig->gpu, 240 / GPU_RIG_LESS);
	snapshot(rig->gpu, a, b, held);
	for (unsigned i = 0; i < 3; i++)
		held[i] -= before[i];
}

static void equal_timeslices_share_equally(void **state)
{
	struct gpu_rig rig;
	struct app a, b;
	uint64_t held[3];

	(void)state;
	gpu_open(&rig, NULL, true);
	app_start_work(&a, rig.gpu, 8, APP_FOREVER);
	app_start_work(&b, rig.gpu, 8, APP_FOREVER);
	share(&rig, &a, &b, held);
	rig_assert_near(held[0], held[1], 5);
	rig_assert_near(held[0] + held[1], held[2], 4); /* the rest goes into switching */
	app_close(&a);
	app_close(&b);
	gpu_close(&rig);
}

static void timeslices_are_proportions(void **state)
{
	struct gpu_rig rig;
	struct app a, b;
	uint64_t held[3];

	(void)state;
	gpu_open(&rig, NULL, true);
	app_start_work(&a, rig.gpu, 8, APP_FOREVER);
	app_start_work(&b, rig.gpu, 8, APP_FOREVER);
	hw_group_set_timeslice(a.group, 1000);
	hw_group_set_timeslice(b.group, 3000);
	share(&rig, &a, &b, held);
	rig_assert_near(3 * held[0], held[1], 6);
	app_close(&a);
	app_close(&b);
	gpu_close(&rig);
}

static void interleave_gives_more_turns(void **state)
{
	struct gpu_rig rig;
	struct app a, b;
	uint64_t held[3];

	(void)state;
	gpu_open(&rig, NULL, true);
	app_start_work(&a, rig.gpu, 8, APP_FOREVER);
	app_start_work(&b, rig.gpu, 8, APP_FOREVER);
	assert_int_equal(hw_group_set_interleave(a.group, 3), -22);
	assert_int_equal(hw_group_set_interleave(b.group, 2), 0);
	share(&rig, &a, &b, held);
	rig_assert_near(4 * held[0], held[1], 8);
	app_close(&a);
	app_close(&b);
	gpu_close(&rig);
}

/* One that only waits for a semaphore takes nothing from the other. */
static void who_waits_gives_its_turn_away(void **state)
{
	struct gpu_rig rig;
	struct app a, b;
	uint64_t before[3], held[3], turns;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&a, rig.gpu, NULL);
	app_acquire(&a, 9, 1, SOFT_SEM_ACQUIRE);
	app_release(&a, 8, 1, 0);
	app_submit(&a);
	app_start_work(&b, rig.gpu, 8, APP_FOREVER);
	app_wait_running(&b);
	snapshot(rig.gpu, &a, &b, before);
	turns = app_time(&b).turns;
	gpu_wait_ms(rig.gpu, 300);
	snapshot(rig.gpu, &a, &b, held);
	/* the clock may be 10 ms ahead of what was run, and more or less so at the two looks */
	rig_assert_near(held[1] - before[1], held[2] - before[2], 4);
	assert_int_equal(app_time(&b).turns, turns);
	app_set_slot(&a, 9, 1);
	app_wait(&a, 8, 1);
	app_close(&a);
	app_close(&b);
	gpu_close(&rig);
}

/* A short kernel beside an endless one waits for its turn, and not longer. */
static void newcomer_waits_for_the_rest_of_a_timeslice(void **state)
{
	struct gpu_rig rig;
	struct app a, b;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_start_work(&a, rig.gpu, 8, APP_FOREVER);
	app_wait_running(&a);
	app_open(&b, rig.gpu, app_work_text);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t before = hw_gpu_now_ns(rig.gpu);

		app_fence(&b);
		/* 2 ms, and the clock is up to 10 ms ahead of what a slow host has run, twice */
		assert_true(hw_gpu_now_ns(rig.gpu) - before < 30000000);
	}
	app_close(&a);
	app_close(&b);
	gpu_close(&rig);
}

static void disabled_channel_stands_still_and_goes_on(void **state)
{
	struct gpu_rig rig;
	struct app app;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_start_work(&app, rig.gpu, 8, LONG);
	app_wait_running(&app);
	for (unsigned i = 0; i < 3; i++) {
		hw_channels_disable(&app.channel, 1, true);
		app_assert_stands_still(&app);
		hw_channels_disable(&app.channel, 1, false);
		app_wait_running(&app);
	}
	app_assert_result(&app, 8, LONG);
	app_close(&app);
	gpu_close(&rig);
}

static void unscheduled_group_stands_still_and_goes_on(void **state)
{
	struct gpu_rig rig;
	struct app app, other;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_start_work(&app, rig.gpu, 8, LONG);
	app_start_work(&other, rig.gpu, 8, LONG);
	app_wait_running(&app);
	hw_group_set_scheduled(app.group, false);
	app_assert_stands_still(&app);
	app_assert_result(&other, 8, LONG);
	hw_group_set_scheduled(app.group, true);
	app_assert_result(&app, 8, LONG);
	app_close(&app);
	app_close(&other);
	gpu_close(&rig);
}

static void preempted_group_goes_to_the_end_of_the_queue(void **state)
{
	struct gpu_rig rig;
	struct app a, b;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_start_work(&a, rig.gpu, 8, 600000);
	hw_group_set_timeslice(a.group, 1000000);
	app_wait_running(&a);
	app_start_work(&b, rig.gpu, 4, 1000);
	hw_group_preempt(a.group);
	app_assert_result(&b, 4, 1000); /* long before a's timeslice is over */
	assert_true(app_slot(&a, 1) == 0);
	assert_true(app_time(&a).turns >= 1);
	app_assert_result(&a, 8, 600000);
	app_close(&a);
	app_close(&b);
	gpu_close(&rig);
}

static void hundreds_of_stops_change_nothing(void **state)
{
	struct gpu_rig rig;
	struct app app;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_start_work(&app, rig.gpu, 16, LONG);
	while (app_slot(&app, 1) != app.fence) {
		hw_group_preempt(app.group);
		hw_channels_disable(&app.channel, 1, true);
		hw_channels_disable(&app.channel, 1, false);
		rig_nap();
	}
	app_assert_result(&app, 16, LONG);
	app_close(&app);
	gpu_close(&rig);
}

static void two_gpus_share_the_cores(void **state)
{
	struct bf_error err = { 0 };
	struct gpu_rig rig;
	struct hw_gpu *second;
	struct app a, b;

	(void)state;
	gpu_open(&rig, NULL, true);
	second = hw_gpu_new(rig.cores, &rig.options, &err);
	assert_non_null(second);
	app_start_work(&a, rig.gpu, 8, 100000);
	app_start_work(&b, second, 8, 100000);
	app_assert_result(&a, 8, 100000);
	app_assert_result(&b, 8, 100000);
	app_close(&a);
	app_close(&b);
	hw_gpu_free(second);
	gpu_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_timeslices_share_equally),
		cmocka_unit_test(timeslices_are_proportions),
		cmocka_unit_test(interleave_gives_more_turns),
		cmocka_unit_test(who_waits_gives_its_turn_away),
		cmocka_unit_test(newcomer_waits_for_the_rest_of_a_timeslice),
		cmocka_unit_test(disabled_channel_stands_still_and_goes_on),
		cmocka_unit_test(unscheduled_group_stands_still_and_goes_on),
		cmocka_unit_test(preempted_group_goes_to_the_end_of_the_queue),
		cmocka_unit_test(hundreds_of_stops_change_nothing),
		cmocka_unit_test(two_gpus_share_the_cores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

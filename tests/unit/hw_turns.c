/* Turns: who has the GPU, for how long, and that nothing is lost when it is taken away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "hw_rig.h"

enum { FOREVER = 500000000 };

/* A host that sanitizers slow down is late at every look. */
static void assert_near(uint64_t got, uint64_t want, unsigned percent)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	percent *= 4;
#endif
	if (got * 100 < want * (100 - percent) || got * 100 > want * (100 + percent))
		fail_msg("%llu is not within %u%% of %llu", (unsigned long long)got, percent,
			 (unsigned long long)want);
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

static void wait_gpu_ms(struct hw_gpu *gpu, uint64_t ms)
{
	uint64_t end = hw_gpu_now_ns(gpu) + ms * 1000000;

	while (hw_gpu_now_ns(gpu) < end)
		nap();
}

static struct soft_time_params time_of(struct app *app)
{
	struct soft_time_params time;

	hw_group_get_time(app->group, &time);
	return time;
}

static void start_work(struct app *app, struct hw_gpu *gpu, uint32_t blocks, uint32_t rounds)
{
	app_open(app, gpu, app_work_text);
	app_time_work(app, app_alloc(app, (size_t)blocks * 32 * 4, NULL), blocks, rounds);
	app_submit(app);
}

static void wait_running(struct app *app)
{
	uint64_t before = time_of(app).thread_instructions;

	while (time_of(app).thread_instructions == before)
		nap();
}

/* The GPU's time and how long each has held it, all at one moment. */
static void snapshot(struct hw_gpu *gpu, struct app *a, struct app *b, uint64_t at[3])
{
	do {
		at[2] = hw_gpu_now_ns(gpu);
		at[0] = time_of(a).held_ns;
		at[1] = time_of(b).held_ns;
	} while (hw_gpu_now_ns(gpu) - at[2] > 300000); /* somebody else had the processor in between */
}

/* How long each held the GPU, and how long that was in all. */
static void share(struct gpu_rig *rig, struct app *a, struct app *b, uint64_t held[3])
{
	uint64_t before[3];

	wait_running(a);
	wait_running(b);
	snapshot(rig->gpu, a, b, before);
	wait_gpu_ms(rig->gpu, 240 / GPU_RIG_LESS);
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
	start_work(&a, rig.gpu, 8, FOREVER);
	start_work(&b, rig.gpu, 8, FOREVER);
	share(&rig, &a, &b, held);
	assert_near(held[0], held[1], 5);
	assert_near(held[0] + held[1], held[2], 4); /* the rest goes into switching */
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
	start_work(&a, rig.gpu, 8, FOREVER);
	start_work(&b, rig.gpu, 8, FOREVER);
	hw_group_set_timeslice(a.group, 1000);
	hw_group_set_timeslice(b.group, 3000);
	share(&rig, &a, &b, held);
	assert_near(3 * held[0], held[1], 6);
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
	start_work(&a, rig.gpu, 8, FOREVER);
	start_work(&b, rig.gpu, 8, FOREVER);
	assert_int_equal(hw_group_set_interleave(a.group, 3), -22);
	assert_int_equal(hw_group_set_interleave(b.group, 2), 0);
	share(&rig, &a, &b, held);
	assert_near(4 * held[0], held[1], 8);
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
	start_work(&b, rig.gpu, 8, FOREVER);
	wait_running(&b);
	snapshot(rig.gpu, &a, &b, before);
	turns = time_of(&b).turns;
	wait_gpu_ms(rig.gpu, 300);
	snapshot(rig.gpu, &a, &b, held);
	/* the clock may be 10 ms ahead of what was run, and more or less so at the two looks */
	assert_near(held[1] - before[1], held[2] - before[2], 4);
	assert_int_equal(time_of(&b).turns, turns);
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
	start_work(&a, rig.gpu, 8, FOREVER);
	wait_running(&a);
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

static void assert_result(struct app *app, uint32_t blocks, uint32_t rounds)
{
	const uint32_t *out = app_host(app, app->data_at[0]);

	app_wait(app, 1, app->fence);
	for (uint32_t i = 0; i < blocks * 32; i++)
		assert_int_equal(out[i], app_work_result(rounds, 1));
}

static void assert_stands_still(struct app *app)
{
	uint64_t before = time_of(app).thread_instructions;

	wait_gpu_ms(app->gpu, 20);
	assert_int_equal(time_of(app).thread_instructions, before);
}

static void disabled_channel_stands_still_and_goes_on(void **state)
{
	struct gpu_rig rig;
	struct app app;

	(void)state;
	gpu_open(&rig, NULL, true);
	start_work(&app, rig.gpu, 8, 300000);
	wait_running(&app);
	for (unsigned i = 0; i < 3; i++) {
		hw_channels_disable(&app.channel, 1, true);
		assert_stands_still(&app);
		hw_channels_disable(&app.channel, 1, false);
		wait_running(&app);
	}
	assert_result(&app, 8, 300000);
	app_close(&app);
	gpu_close(&rig);
}

static void unscheduled_group_stands_still_and_goes_on(void **state)
{
	struct gpu_rig rig;
	struct app app, other;

	(void)state;
	gpu_open(&rig, NULL, true);
	start_work(&app, rig.gpu, 8, 300000);
	start_work(&other, rig.gpu, 8, 300000);
	wait_running(&app);
	hw_group_set_scheduled(app.group, false);
	assert_stands_still(&app);
	assert_result(&other, 8, 300000);
	hw_group_set_scheduled(app.group, true);
	assert_result(&app, 8, 300000);
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
	start_work(&a, rig.gpu, 8, 600000);
	hw_group_set_timeslice(a.group, 1000000);
	wait_running(&a);
	start_work(&b, rig.gpu, 4, 1000);
	hw_group_preempt(a.group);
	assert_result(&b, 4, 1000); /* long before a's timeslice is over */
	assert_true(app_slot(&a, 1) == 0);
	assert_true(time_of(&a).turns >= 1);
	assert_result(&a, 8, 600000);
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
	start_work(&app, rig.gpu, 16, 300000 / GPU_RIG_LESS);
	while (app_slot(&app, 1) != app.fence) {
		hw_group_preempt(app.group);
		hw_channels_disable(&app.channel, 1, true);
		hw_channels_disable(&app.channel, 1, false);
		nap();
	}
	assert_result(&app, 16, 300000 / GPU_RIG_LESS);
	app_close(&app);
	gpu_close(&rig);
}

/* Each on its half of the SMs: both at once, and as fast as alone. */
static void domain_runs_side_by_side(void **state)
{
	const uint64_t low[SOFT_SMS_MAX / 64] = { 3 }, high[SOFT_SMS_MAX / 64] = { 12 };
	struct gpu_rig rig;
	struct app a, b;
	uint64_t want;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&a, rig.gpu, app_work_text);
	app_open(&b, rig.gpu, app_work_text);
	hw_group_set_domain(a.group, 5);
	hw_group_set_domain(b.group, 5);
	hw_channel_set_sms(a.channel, low);
	hw_channel_set_sms(b.channel, high);
	app_time_work(&a, app_alloc(&a, 4096, NULL), 4, 200000);
	app_time_work(&b, app_alloc(&b, 4096, NULL), 4, 200000);
	app_submit(&a);
	app_submit(&b);
	assert_result(&a, 4, 200000);
	assert_result(&b, 4, 200000);
	want = app_work_cost(200000, 64) * 1000000000ull / rig.options.rate;
	assert_near(app_slot_time(&a, 1) - app_slot_time(&a, 0), want, 3);
	assert_near(app_slot_time(&b, 1) - app_slot_time(&b, 0), want, 3);
	/* its turns were the domain's: from the first to begin to the last to end */
	assert_near(time_of(&a).held_ns, (uint64_t)(app_slot_time(&b, 1) - app_slot_time(&a, 0)), 5);
	assert_near(time_of(&a).sm_ns, 2 * want, 3);
	app_close(&a);
	app_close(&b);
	gpu_close(&rig);
}

static void group_changes_its_domain_while_it_runs(void **state)
{
	struct gpu_rig rig;
	struct app a, b;

	(void)state;
	gpu_open(&rig, NULL, true);
	start_work(&a, rig.gpu, 100, 30000 / GPU_RIG_LESS);
	start_work(&b, rig.gpu, 100, 30000 / GPU_RIG_LESS);
	for (uint32_t i = 1; i < 10; i++) {
		wait_gpu_ms(rig.gpu, 3);
		hw_group_set_domain(a.group, i % 3);
		hw_group_set_domain(b.group, i % 2);
	}
	assert_result(&a, 100, 30000 / GPU_RIG_LESS);
	assert_result(&b, 100, 30000 / GPU_RIG_LESS);
	app_close(&a);
	app_close(&b);
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
	start_work(&a, rig.gpu, 8, 100000);
	start_work(&b, second, 8, 100000);
	assert_result(&a, 8, 100000);
	assert_result(&b, 8, 100000);
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
		cmocka_unit_test(domain_runs_side_by_side),
		cmocka_unit_test(group_changes_its_domain_while_it_runs),
		cmocka_unit_test(two_gpus_share_the_cores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

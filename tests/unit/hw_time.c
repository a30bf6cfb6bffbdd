/* The clock and what things cost: a kernel takes the time that the model says, whatever the host does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "hw_rig.h"

enum { ROUNDS = 60000 };

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

static uint64_t work_ns(const struct gpu_rig *rig, uint64_t blocks_an_sm, uint32_t rounds)
{
	return app_work_cost(rounds, 32 * blocks_an_sm) * 1000000000ull / rig->options.rate;
}

static uint64_t run_work(struct app *app, uint32_t blocks, uint32_t rounds)
{
	uint64_t out = app_alloc(app, (size_t)blocks * 32 * 4, NULL);
	const uint32_t *got;

	app_time_work(app, out, blocks, rounds);
	app_submit(app);
	app_wait(app, 1, app->fence);
	got = app_host(app, out);
	for (uint32_t i = 0; i < blocks * 32; i++)
		assert_int_equal(got[i], app_work_result(rounds, 1));
	return app_slot_time(app, 1) - app_slot_time(app, 0);
}

static void cost_is_what_the_model_says(void **state)
{
	struct soft_time_params time;
	struct gpu_rig rig;
	struct app app;

	(void)state;
	gpu_open(&rig, NULL, false);
	app_open(&app, rig.gpu, app_work_text);
	run_work(&app, 8, 1000);
	hw_group_get_time(app.group, &time);
	assert_int_equal(time.thread_instructions, app_work_cost(1000, 8 * 32ull));
	assert_int_equal(time.blocks, 8);
	assert_int_equal(time.launches, 1);
	app_close(&app);
	gpu_close(&rig);
}

static void paced_kernel_takes_its_time(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t before, want, got;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, app_work_text);
	want = work_ns(&rig, 2, ROUNDS);
	before = bf_now_ns();
	got = run_work(&app, 8, ROUNDS);
	assert_near(got, want, 2);
	assert_true(bf_now_ns() - before >= want);
	app_close(&app);
	gpu_close(&rig);
}

static void unpaced_kernel_has_the_same_duration(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t before;

	(void)state;
	gpu_open(&rig, &(struct hw_options){ .rate = 1000000, .sms = 8 }, false);
	app_open(&app, rig.gpu, app_work_text);
	before = bf_now_ns();
	assert_near(run_work(&app, 32, 60000), work_ns(&rig, 4, 60000), 2); /* 31 seconds */
	assert_true(bf_now_ns() - before < 15000000000ull);
	app_close(&app);
	gpu_close(&rig);
}

enum { SLOW_ROUNDS = 50000 / GPU_RIG_LESS / GPU_RIG_LESS };

/* More than the host can do: the clock slips, durations do not change. */
static void slow_host_does_not_show(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t now;

	(void)state;
	gpu_open(&rig, &(struct hw_options){ .rate = 100000000000ull, .sms = 16 }, true);
	app_open(&app, rig.gpu, app_work_text);
	for (unsigned i = 0; i < 3; i++) {
		now = hw_gpu_now_ns(rig.gpu);
		assert_near(run_work(&app, 256, SLOW_ROUNDS), work_ns(&rig, 16, SLOW_ROUNDS), 10);
		assert_true(hw_gpu_now_ns(rig.gpu) > now);
	}
	app_close(&app);
	gpu_close(&rig);
}

static void quarter_of_the_sms_takes_four_times_as_long(void **state)
{
	const uint64_t mask[SOFT_SMS_MAX / 64] = { 0x1248 };
	struct gpu_rig rig;
	struct app app;
	uint64_t all, some;

	(void)state;
	gpu_open(&rig, &(struct hw_options){ .sms = 16, .rate = 100000000 }, true);
	app_open(&app, rig.gpu, app_work_text);
	all = run_work(&app, 64, 12000);
	hw_channel_set_sms(app.channel, mask);
	some = run_work(&app, 64, 12000);
	assert_near(some, 4 * all, 5);
	app_close(&app);
	gpu_close(&rig);
}

static void copies_take_their_time(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t a, b;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, NULL);
	a = app_alloc(&app, 16 << 20, NULL);
	b = app_alloc(&app, 16 << 20, NULL);
	app_release(&app, 0, 1, SOFT_SEM_TIMESTAMP);
	app_copy(&app, a, b, 16 << 20);
	app_release(&app, 1, 1, SOFT_SEM_TIMESTAMP);
	app_submit(&app);
	app_wait(&app, 1, 1);
	assert_near(app_slot_time(&app, 1) - app_slot_time(&app, 0), 16ull << 20, 2); /* 1 byte a ns */
	app_close(&app);
	gpu_close(&rig);
}

static void clock_never_goes_backwards(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t last = 0, out;

	(void)state;
	gpu_open(&rig, &(struct hw_options){ .rate = 100000000000ull }, true);
	app_open(&app, rig.gpu, app_work_text);
	out = app_alloc(&app, 4096, NULL);
	app_time_work(&app, out, 4, 300000 / GPU_RIG_LESS);
	app_submit(&app);
	while (app_slot(&app, 1) != app.fence) {
		uint64_t now = hw_gpu_now_ns(rig.gpu);

		assert_true(now >= last);
		last = now;
	}
	app_close(&app);
	gpu_close(&rig);
}

/* However the work before ended: the front end does so much at a time and then looks again. */
static void nothing_is_done_before_it_was_asked_for(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t asked;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, NULL);
	for (uint32_t releases = 1; releases < 80; releases++) {
		for (uint32_t i = 0; i < releases; i++)
			app_release(&app, 1, i + 1 < releases ? 0 : releases, 0);
		app_submit(&app);
		app_wait(&app, 1, releases);
		usleep(3000);
		asked = hw_gpu_now_ns(rig.gpu);
		app_release(&app, 0, releases, SOFT_SEM_TIMESTAMP);
		app_submit(&app);
		app_wait(&app, 0, releases);
		assert_true(app_slot_time(&app, 0) >= asked);
	}
	app_close(&app);
	gpu_close(&rig);
}

/* A kernel that is shorter than what the clock may be behind: none of it is run in the time it was disabled. */
static void disabled_time_is_not_used_afterwards(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t out, allowed;
	bool is_done;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, app_work_text);
	out = app_alloc(&app, (size_t)8 * 32 * 4, NULL);
	do {
		app_set_slot(&app, 0, 0);
		app_time_work(&app, out, 8, ROUNDS / 6);
		app_submit(&app);
		app_wait(&app, 0, 1);
		hw_channels_disable(&app.channel, 1, true);
		is_done = app_slot(&app, 1) == app.fence; /* a slow host has missed it */
		usleep(12000);
		allowed = hw_gpu_now_ns(rig.gpu);
		hw_channels_disable(&app.channel, 1, false);
		app_wait(&app, 1, app.fence);
	} while (is_done);
	assert_true(app_slot_time(&app, 1) >= allowed);
	app_close(&app);
	gpu_close(&rig);
}

static void busy_time_is_what_was_held(void **state)
{
	struct soft_time_params time;
	struct gpu_rig rig;
	struct app app;
	uint64_t took;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, app_work_text);
	took = run_work(&app, 4, ROUNDS);
	hw_group_get_time(app.group, &time);
	assert_near(time.held_ns, took, 5);
	assert_near(hw_gpu_busy_ns(rig.gpu), took, 5);
	assert_near(time.sm_ns, 4 * took, 5);
	app_close(&app);
	gpu_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cost_is_what_the_model_says),
		cmocka_unit_test(paced_kernel_takes_its_time),
		cmocka_unit_test(unpaced_kernel_has_the_same_duration),
		cmocka_unit_test(slow_host_does_not_show),
		cmocka_unit_test(quarter_of_the_sms_takes_four_times_as_long),
		cmocka_unit_test(copies_take_their_time),
		cmocka_unit_test(clock_never_goes_backwards),
		cmocka_unit_test(nothing_is_done_before_it_was_asked_for),
		cmocka_unit_test(disabled_time_is_not_used_afterwards),
		cmocka_unit_test(busy_time_is_what_was_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

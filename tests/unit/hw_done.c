/* The records of when a group had done all that it was given. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "hw_rig.h"

enum { BLOCKS = 4, THREADS = 32, OUT_BYTES = 4 * BLOCKS * THREADS };

static struct soft_done_params done_of(struct app *app)
{
	struct soft_done_params done;

	hw_group_get_done(app->group, &done);
	return done;
}

/* Once the channel is idle whatever is to be recorded is. */
static struct soft_done_params done_when_idle(struct app *app)
{
	while (!hw_channel_is_idle(app->channel))
		sched_yield();
	return done_of(app);
}

static void push_work(struct app *app, uint64_t out, uint32_t rounds)
{
	struct app_work_params params = { .out = out, .rounds = rounds };

	app_launch(app, "work", (struct app_shape){ .grid = { BLOCKS }, .threads = { THREADS } }, &params,
		   sizeof(params));
}

/* Each lies between its submission and the moment at which the program finds it done, whoever ends the turn and when. */
static void each_that_is_waited_for_has_a_record(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t out;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, app_work_text);
	out = app_alloc(&app, OUT_BYTES, NULL);
	for (uint64_t i = 0; i < 200; i++) {
		uint64_t before_ns = bf_now_ns(), after_ns;
		struct soft_done_params done;

		push_work(&app, out, 100);
		app_fence(&app);
		after_ns = bf_now_ns();
		done = done_when_idle(&app);
		assert_int_equal(done.count, i + 1);
		assert_in_range(done.done[i % SOFT_DONE_KEPT].seen_ns, before_ns, after_ns);
		assert_in_range(done.done[i % SOFT_DONE_KEPT].end_ns, done.done[i % SOFT_DONE_KEPT].seen_ns,
				after_ns);
	}
	app_close(&app);
	gpu_close(&rig);
}

/* Two submissions of one channel, or of two of one group: the second comes while the first waits for a semaphore. */
static void what_comes_before_it_is_done_shares_its_record(void **state)
{
	struct gpu_rig rig;
	struct app app, other;
	uint64_t between_ns;
	struct soft_done_params done;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, app_work_text);
	app_join(&other, &app);
	app_release(&app, 1, 1, 0);
	app_acquire(&app, 2, 1, SOFT_SEM_ACQUIRE_GEQ);
	app_submit(&app);
	app_wait(&app, 1, 1);
	between_ns = bf_now_ns();
	app_release(&other, 3, 1, 0);
	app_submit(&other);
	app_wait(&other, 3, 1);
	assert_int_equal(done_when_idle(&other).count, 0); /* the first channel is not done */
	app_set_slot(&app, 2, 1);
	app_release(&app, 4, 1, 0);
	app_submit(&app);
	app_wait(&app, 4, 1);
	done = done_when_idle(&app);
	assert_int_equal(done.count, 1);
	assert_true(done.done[0].seen_ns >= between_ns);
	assert_true(done.done[0].end_ns >= done.done[0].seen_ns);
	app_close(&other);
	app_close(&app);
	gpu_close(&rig);
}

/* The turn of a group that has more to do is taken away again and again. That is not an end. */
static void the_end_of_a_turn_is_no_end(void **state)
{
	struct gpu_rig rig;
	struct app a, b;
	struct soft_done_params done;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&a, rig.gpu, app_work_text);
	app_open(&b, rig.gpu, app_work_text);
	push_work(&b, app_alloc(&b, OUT_BYTES, NULL), 500000000);
	app_submit(&b);
	push_work(&a, app_alloc(&a, OUT_BYTES, NULL), 100000);
	app_fence(&a);
	done = done_when_idle(&a);
	assert_int_equal(done.count, 1);
	assert_int_equal(done_of(&b).count, 0);
	app_close(&a);
	app_close(&b);
	gpu_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_that_is_waited_for_has_a_record),
		cmocka_unit_test(what_comes_before_it_is_done_shares_its_record),
		cmocka_unit_test(the_end_of_a_turn_is_no_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The front end: rings, semaphores, launches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "hw_rig.h"

static void release_is_seen(void **state)
{
	struct gpu_rig rig;
	struct app app;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, NULL);
	app_release(&app, 3, 0x1122334455667788, SOFT_SEM_64BIT);
	app_release(&app, 4, 5, SOFT_SEM_TIMESTAMP);
	app_submit(&app);
	app_wait(&app, 4, 5);
	assert_true(app_slot(&app, 3) == 0x1122334455667788);
	assert_true(app_slot_time(&app, 4) > 0);
	assert_true(app_slot_time(&app, 4) <= hw_gpu_now_ns(rig.gpu) + 20000);
	app_close(&app);
	gpu_close(&rig);
}

static void kernel_computes(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint32_t *out;
	uint64_t at;
	struct app_work_params params;

	(void)state;
	gpu_open(&rig, NULL, false);
	app_open(&app, rig.gpu, app_work_text);
	at = app_alloc(&app, sizeof(uint32_t) * 100 * 64, NULL);
	params = (struct app_work_params){ .out = at, .rounds = 100 };
	app_launch(&app, "work", (struct app_shape){ .grid = { 100 }, .threads = { 64 } }, &params,
		   sizeof(params));
	app_fence(&app);
	out = app_host(&app, at);
	for (unsigned i = 0; i < 100 * 64; i++)
		assert_int_equal(out[i], app_work_result(100, 1));
	app_close(&app);
	gpu_close(&rig);
}

static void ring_goes_around(void **state)
{
	struct gpu_rig rig;
	struct app app;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, NULL);
	for (unsigned i = 0; i < 3 * APP_RING; i++) {
		app_release(&app, i % 8, i, 0);
		app_submit(&app);
		if (i % 100 == 99)
			app_fence(&app);
	}
	app_fence(&app);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(app_slot(&app, i), 3 * APP_RING - 8 + i);
	assert_int_equal(__atomic_load_n((uint32_t *)(void *)(hw_memory_at(app.userd) + SOFT_USERD_GP_GET),
					 __ATOMIC_ACQUIRE),
			 app.put);
	app_close(&app);
	gpu_close(&rig);
}

/* Commands in every form, cut into entries at any word. */
static void commands_may_be_cut_anywhere(void **state)
{
	const uint32_t lo = (uint32_t)APP_SEMAPHORES_AT;
	const uint32_t words[] = {
		SOFT_COMMAND(SOFT_OP_ONE_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 2),
		lo + 16,
		0,
		SOFT_COMMAND(SOFT_OP_NON_INC, 0, SOFT_METHOD_SEM_PAYLOAD_LO, 3),
		1,
		2,
		33,
		SOFT_COMMAND(SOFT_OP_IMMEDIATE, 0, SOFT_METHOD_WFI, 0),
		SOFT_COMMAND(SOFT_OP_IMMEDIATE, 0, SOFT_METHOD_NON_STALL_INTERRUPT, 0),
		SOFT_COMMAND(SOFT_OP_IMMEDIATE, 0, SOFT_METHOD_SEM_EXECUTE, SOFT_SEM_RELEASE),
		SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_YIELD, 0),
	};
	const unsigned count = sizeof(words) / sizeof(words[0]);
	struct gpu_rig rig;
	struct app app;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, NULL);
	for (unsigned cut = 1; cut < count; cut++) {
		app_set_slot(&app, 1, 0);
		for (unsigned i = 0; i < count; i++) {
			app_push(&app, words[i]);
			if (i % cut == 0)
				app_submit(&app);
		}
		app_submit(&app);
		app_wait(&app, 1, 33);
		app_fence(&app);
	}
	app_close(&app);
	gpu_close(&rig);
}

static void acquires_wait_for_their_condition(void **state)
{
	static const struct {
		uint32_t operation;
		uint64_t payload, not_yet, met;
	} cases[] = {
		{ SOFT_SEM_ACQUIRE, 5, 6, 5 },
		{ SOFT_SEM_ACQUIRE_GEQ, 5, 4, 7 },
		{ SOFT_SEM_ACQUIRE_CIRC_GEQ, 5, 0xfffffff0, 6 },
		{ SOFT_SEM_ACQUIRE_CIRC_GEQ, 0xfffffffe, 0xfffffff0, 3 },
		{ SOFT_SEM_ACQUIRE_AND, 6, 1, 4 },
		{ SOFT_SEM_ACQUIRE_NOR, 0xfffffff0, 0xf, 7 },
		{ SOFT_SEM_ACQUIRE | SOFT_SEM_64BIT, 0x100000005, 5, 0x100000005 },
		{ SOFT_SEM_ACQUIRE_GEQ | SOFT_SEM_64BIT, 0x100000005, 0xffffffff, 0x200000000 },
		{ SOFT_SEM_ACQUIRE_CIRC_GEQ | SOFT_SEM_64BIT, 5, ~0ull, 6 },
	};
	struct gpu_rig rig;
	struct app app;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, NULL);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		app_set_slot(&app, 2, cases[i].not_yet);
		app_acquire(&app, 2, cases[i].payload, cases[i].operation);
		app_release(&app, 3, i + 1, 0);
		app_submit(&app);
		assert_false(app_wait_ms(&app, 3, i + 1, 5));
		app_set_slot(&app, 2, cases[i].met);
		app_wait(&app, 3, i + 1);
	}
	app_close(&app);
	gpu_close(&rig);
}

/* One waits for the other and the other way around; both go on at once, in one group. */
static void channels_of_a_group_wait_for_each_other(void **state)
{
	struct gpu_rig rig;
	struct app a, b;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&a, rig.gpu, app_work_text);
	app_join(&b, &a);
	for (unsigned i = 1; i <= 100; i++) {
		app_acquire(&a, 1, i, SOFT_SEM_ACQUIRE);
		app_release(&a, 2, i, 0);
		app_release(&b, 1, i, 0);
		app_acquire(&b, 2, i, SOFT_SEM_ACQUIRE);
	}
	app_release(&b, 3, 1, 0);
	app_submit(&a);
	app_submit(&b);
	app_wait(&b, 3, 1);
	app_close(&b);
	app_close(&a);
	gpu_close(&rig);
}

static void kernels_of_two_channels_run_side_by_side(void **state)
{
	struct app_work_params params = { .rounds = 200000 };
	uint64_t each, start, end;
	struct gpu_rig rig;
	struct app a, b;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&a, rig.gpu, app_work_text);
	app_join(&b, &a);
	params.out = app_alloc(&a, 4096, NULL);
	for (unsigned i = 0; i < 2; i++) {
		struct app *app = i ? &b : &a;

		app_acquire(app, 9, 1, SOFT_SEM_ACQUIRE);
		app_release(app, 2 * i, 1, SOFT_SEM_TIMESTAMP);
		app_launch(app, "work", (struct app_shape){ .grid = { 2 }, .threads = { 32 } }, &params,
			   sizeof(params));
		app_release(app, 2 * i + 1, 1, SOFT_SEM_TIMESTAMP);
		app_submit(app);
	}
	app_set_slot(&a, 9, 1);
	app_wait(&a, 1, 1);
	app_wait(&b, 3, 1);
	each = app_work_cost(200000, 32) * 1000000000ull / rig.options.rate;
	start = app_slot_time(&a, 0) < app_slot_time(&a, 2) ? app_slot_time(&a, 0) : app_slot_time(&a, 2);
	end = app_slot_time(&a, 1) > app_slot_time(&a, 3) ? app_slot_time(&a, 1) : app_slot_time(&a, 3);
	/* both have begun on the first SMs, and share them */
	assert_true(end - start < each * 2 + each / 4);
	app_close(&b);
	app_close(&a);
	gpu_close(&rig);
}

static void launches_run_in_their_order(void **state)
{
	float x[1000], y[1000];
	struct {
		int n;
		float a;
		uint64_t x, y;
	} params = { .n = 1000, .a = 2 };
	struct gpu_rig rig;
	struct app app;
	const float *got;

	(void)state;
	gpu_open(&rig, NULL, false);
	app_open(&app, rig.gpu, "vector");
	for (unsigned i = 0; i < 1000; i++) {
		x[i] = (float)i;
		y[i] = 1;
	}
	params.x = app_alloc(&app, sizeof(x), x);
	params.y = app_alloc(&app, sizeof(y), y);
	got = app_host(&app, params.y);
	for (unsigned i = 0; i < 10; i++) {
		app_launch(&app, "saxpy", (struct app_shape){ .grid = { 8 }, .threads = { 128 } }, &params,
			   sizeof(params));
		app_copy(&app, params.x, params.y, sizeof(x)); /* what the next one reads */
	}
	app_fence(&app);
	for (unsigned i = 0; i < 1000; i++) {
		for (unsigned k = 0; k < 10; k++) {
			y[i] += 2 * x[i];
			x[i] = y[i];
		}
		assert_true(got[i] == y[i]);
	}
	app_close(&app);
	gpu_close(&rig);
}

/* As many blocks as fit at once, each waiting for all others. */
static void cooperative_blocks_run_in_turns(void **state)
{
	const uint32_t blocks = 4 * 8;
	struct gpu_rig rig;
	struct app app;
	uint64_t at, workspace;
	const int *got;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, "library");
	at = app_alloc(&app, 4096, NULL);
	workspace = app_alloc(&app, 4096, NULL);
	app_launch(&app, "grid_barrier",
		   (struct app_shape){ .grid = { blocks },
				       .threads = { 128 },
				       .flags = SOFT_LAUNCH_COOPERATIVE,
				       .workspace = workspace },
		   &at, sizeof(at));
	app_fence(&app);
	got = app_host(&app, at);
	for (unsigned i = 0; i < blocks; i++)
		assert_int_equal(got[1 + i], blocks * 128);
	app_close(&app);
	gpu_close(&rig);
}

/* where(.u64 out): out[block] = its SM */
static const char *const where_text = ".version 8.0\n.target sm_90\n.address_size 64\n"
				      ".visible .entry where(.param .u64 out)\n{\n"
				      ".reg .b64 %p;\n.reg .b32 %b, %s;\n"
				      "ld.param.u64 %p, [out];\nmov.u32 %b, %ctaid.x;\n"
				      "mad.wide.u32 %p, %b, 4, %p;\nmov.u32 %s, %smid;\n"
				      "st.global.u32 [%p], %s;\nret;\n}\n";

static void blocks_go_to_the_sms_of_the_mask(void **state)
{
	const uint64_t mask[SOFT_SMS_MAX / 64] = { 0x16 };
	static const uint32_t want[] = { 1, 2, 4, 1, 2, 4 };
	struct gpu_rig rig;
	struct app app;
	uint64_t at;

	(void)state;
	gpu_open(&rig, &(struct hw_options){ .sms = 8 }, true);
	app_open(&app, rig.gpu, where_text);
	at = app_alloc(&app, 4096, NULL);
	hw_channel_set_sms(app.channel, mask);
	app_launch(&app, "where", (struct app_shape){ .grid = { 6 }, .threads = { 32 } }, &at, sizeof(at));
	app_fence(&app);
	assert_memory_equal(app_host(&app, at), want, sizeof(want));
	app_close(&app);
	gpu_close(&rig);
}

static void unscheduled_channel_does_nothing(void **state)
{
	struct gpu_rig rig;
	struct app app;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, NULL);
	hw_channel_set_scheduled(app.channel, false);
	app_release(&app, 1, 1, 0);
	app_submit(&app);
	assert_false(app_wait_ms(&app, 1, 1, 20));
	hw_channel_set_scheduled(app.channel, true);
	app_wait(&app, 1, 1);
	app_close(&app);
	gpu_close(&rig);
}

static void bad_channels_are_refused(void **state)
{
	struct bf_error err = { 0 };
	struct gpu_rig rig;
	struct app app;
	struct hw_channel *channel;
	struct hw_channel_options o;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, NULL);
	o = (struct hw_channel_options){ .group = app.group,
					 .space = app.space,
					 .ring_address = APP_RING_AT,
					 .ring_entries = 100,
					 .userd = app.userd };
	assert_int_equal(hw_channel_new(&o, &channel, &err), -22);
	o.ring_entries = 1 << 21;
	assert_int_equal(hw_channel_new(&o, &channel, &err), -22);
	o.ring_entries = 64;
	o.ring_address++;
	assert_int_equal(hw_channel_new(&o, &channel, &err), -22);
	o.ring_address--;
	o.userd_offset = 4096 - 256;
	assert_int_equal(hw_channel_new(&o, &channel, &err), -22);
	o.userd_offset = 1024;
	assert_int_equal(hw_channel_new(&o, &channel, &err), 0);
	assert_int_not_equal(hw_channel_token(channel), hw_channel_token(app.channel));
	hw_channel_put(channel);
	app_close(&app);
	gpu_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(release_is_seen),
		cmocka_unit_test(kernel_computes),
		cmocka_unit_test(ring_goes_around),
		cmocka_unit_test(commands_may_be_cut_anywhere),
		cmocka_unit_test(acquires_wait_for_their_condition),
		cmocka_unit_test(channels_of_a_group_wait_for_each_other),
		cmocka_unit_test(kernels_of_two_channels_run_side_by_side),
		cmocka_unit_test(launches_run_in_their_order),
		cmocka_unit_test(cooperative_blocks_run_in_turns),
		cmocka_unit_test(blocks_go_to_the_sms_of_the_mask),
		cmocka_unit_test(unscheduled_channel_does_nothing),
		cmocka_unit_test(bad_channels_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Faults: what a program does wrong ends its group, tells it why, and disturbs nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "hw_rig.h"

static struct gpu_rig rig;
static struct app good; /* works beside every bad one */

static int open_gpu(void **state)
{
	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&good, rig.gpu, app_work_text);
	app_alloc(&good, 1 << 16, NULL);
	return 0;
}

static int close_gpu(void **state)
{
	(void)state;
	app_close(&good);
	gpu_close(&rig);
	return 0;
}

static uint64_t good_out(void)
{
	return good.data_at[good.data_count - 1];
}

/* The good one computes the right thing, again and again. */
static void assert_good_works(void)
{
	struct app_work_params params = { .out = good_out(), .rounds = 2000 };
	const uint32_t *out = app_host(&good, params.out);

	memset(app_host(&good, params.out), 0, 1 << 16);
	app_launch(&good, "work", (struct app_shape){ .grid = { 16 }, .threads = { 64 } }, &params,
		   sizeof(params));
	app_fence(&good);
	for (unsigned i = 0; i < 16 * 64; i++)
		assert_int_equal(out[i], app_work_result(2000, 1));
}

static void assert_dead(struct app *app)
{
	app_release(app, 77, 77, 0);
	app_submit(app);
	assert_good_works();
	assert_true(app_slot(app, 77) == 0);
}

static void bad_address_is_told(void **state)
{
	struct app_work_params params = { .out = 0xdead0000, .rounds = 10 };
	const struct soft_notifier *n;
	struct app app;

	(void)state;
	app_open(&app, rig.gpu, app_work_text);
	app_launch(&app, "work", (struct app_shape){ .grid = { 100 }, .threads = { 32 } }, &params,
		   sizeof(params));
	app_release(&app, 0, 1, 0);
	app_submit(&app);
	n = app_wait_error(&app);
	assert_int_equal(n->error, SOFT_ERROR_MMU);
	assert_int_equal(n->fault, PTX_FAULT_ADDRESS);
	assert_true(n->address >= 0xdead0000 && n->address < 0xdead0000 + 100 * 32 * 4);
	assert_string_equal(n->kernel, "work");
	assert_true(n->line > 0 && n->ns > 0);
	assert_true(app_slot(&app, 0) == 0);
	assert_dead(&app);
	app_close(&app);
}

static void assertion_has_its_text(void **state)
{
	const struct soft_notifier *n;
	uint32_t count = 3;
	struct app app;

	(void)state;
	app_open(&app, rig.gpu, "language");
	app_launch(&app, "doubt", (struct app_shape){ .threads = { 8 } }, &count, sizeof(count));
	app_submit(&app);
	n = app_wait_error(&app);
	assert_int_equal(n->error, SOFT_ERROR_COMPUTE);
	assert_int_equal(n->fault, PTX_FAULT_ASSERT);
	assert_int_equal(n->thread[0], 3);
	assert_non_null(strstr(n->text, "assertion `threadIdx.x < n' failed"));
	app_close(&app);
}

static void fault_ends_the_domain(void **state)
{
	struct app_work_params params = { .out = 0xdead0000, .rounds = 10 };
	const struct soft_notifier *n;
	struct app a, b;

	(void)state;
	app_open(&a, rig.gpu, app_work_text);
	app_open(&b, rig.gpu, app_work_text);
	hw_group_set_domain(a.group, 9);
	hw_group_set_domain(b.group, 9);
	app_time_work(&b, app_alloc(&b, 4096, NULL), 16, 500000000);
	app_submit(&b);
	app_launch(&a, "work", (struct app_shape){ .threads = { 32 } }, &params, sizeof(params));
	app_submit(&a);
	assert_int_equal(app_wait_error(&a)->error, SOFT_ERROR_MMU);
	n = app_wait_error(&b);
	assert_int_equal(n->error, SOFT_ERROR_MMU);
	assert_int_equal(n->fault, PTX_FAULT_ADDRESS);
	/* The details are another program's. */
	assert_int_equal(n->address, 0);
	assert_string_equal(n->kernel, "");
	assert_non_null(strstr(n->text, "another program"));
	assert_good_works();
	app_close(&a);
	app_close(&b);
}

/* Words that are no commands, each in an app of its own. */
static void bad_commands_are_refused(void **state)
{
	static const struct {
		uint32_t words[4], error;
	} bad[] = {
		{ { 0 }, SOFT_ERROR_METHOD },
		{ { 0xffffffff }, SOFT_ERROR_METHOD },
		{ { SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SET_OBJECT, 1), 0x1234 }, SOFT_ERROR_METHOD },
		{ { SOFT_COMMAND(SOFT_OP_INC, 0, 0xf0, 1), 1 }, SOFT_ERROR_METHOD },
		{ { SOFT_COMMAND(SOFT_OP_INC, 2, 0x300, 1), 1 }, SOFT_ERROR_METHOD },
		{ { SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, 0x304, 1), 1 }, SOFT_ERROR_METHOD },
		{ { SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COMPUTE, 0x300, 1), 1 }, SOFT_ERROR_METHOD },
		{ { SOFT_COMMAND(SOFT_OP_IMMEDIATE, SOFT_SUBCHANNEL_COPY, SOFT_COPY_LAUNCH, 2) },
		  SOFT_ERROR_METHOD },
		{ { SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COMPUTE, SOFT_COMPUTE_SEND_B, 1), 1 },
		  SOFT_ERROR_MMU },
		{ { SOFT_COMMAND(SOFT_OP_IMMEDIATE, 0, SOFT_METHOD_SEM_EXECUTE, 7) }, SOFT_ERROR_METHOD },
		{ { SOFT_COMMAND(SOFT_OP_IMMEDIATE, 0, SOFT_METHOD_SEM_EXECUTE, 1) }, SOFT_ERROR_MMU },
		{ { SOFT_COMMAND(SOFT_OP_IMMEDIATE, 0, SOFT_METHOD_SEM_ADDR_LO, 2),
		    SOFT_COMMAND(SOFT_OP_IMMEDIATE, 0, SOFT_METHOD_SEM_EXECUTE, 0) },
		  SOFT_ERROR_METHOD },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct app app;

		app_open(&app, rig.gpu, NULL);
		for (unsigned k = 0; k < 4 && (!k || bad[i].words[k]); k++)
			app_push(&app, bad[i].words[k]);
		app_submit(&app);
		assert_int_equal(app_wait_error(&app)->error, bad[i].error);
		app_close(&app);
	}
	assert_good_works();
}

static void bad_rings_are_refused(void **state)
{
	struct app app;

	(void)state;
	app_open(&app, rig.gpu, NULL);
	app_entry(&app, SOFT_ENTRY(0x12340000, 5));
	assert_int_equal(app_wait_error(&app)->error, SOFT_ERROR_MMU);
	app_close(&app);

	app_open(&app, rig.gpu, NULL);
	app_entry(&app, SOFT_ENTRY(APP_COMMANDS_AT, 0x1fffff));
	assert_int_equal(app_wait_error(&app)->error, SOFT_ERROR_METHOD); /* zeros behind the commands */
	app_close(&app);

	app_open(&app, rig.gpu, NULL);
	__atomic_store_n((uint32_t *)(void *)(hw_memory_at(app.userd) + SOFT_USERD_GP_PUT), 0x80000001u,
			 __ATOMIC_RELEASE);
	hw_gpu_rang(rig.gpu);
	assert_int_equal(app_wait_error(&app)->error, SOFT_ERROR_METHOD);
	app_close(&app);

	app_open(&app, rig.gpu, NULL);
	assert_int_equal(hw_space_unmap(app.space, APP_RING_AT, 4096), 0);
	app_fence(&good);
	app_submit(&app);
	assert_int_equal(app_wait_error(&app)->error, SOFT_ERROR_MMU);
	app_close(&app);
	assert_good_works();
}

static struct soft_launch *descriptor(struct app *app)
{
	struct app_work_params params = { 0 };

	app_launch(app, "work", (struct app_shape){ .threads = { 32 } }, &params, sizeof(params));
	return (struct soft_launch *)(void *)(hw_memory_at(app->commands) +
					      ((app->begin - sizeof(struct soft_launch) - sizeof(params)) &
					       ~(SOFT_LAUNCH_ALIGN - 1u)));
}

static void break_launch(struct soft_launch *d, unsigned how)
{
	switch (how) {
	case 0:
		d->magic++;
		break;
	case 1:
		d->code++;
		break;
	case 2:
		d->kernel = 1000;
		break;
	case 3:
		d->grid[1] = 0;
		break;
	case 4:
		d->grid[0] = 0xffffffff;
		break;
	case 5:
		d->threads[2] = 0;
		break;
	case 6:
		d->threads[0] = 1025;
		break;
	case 7:
		d->threads[0] = d->threads[1] = d->threads[2] = 1024;
		break;
	case 8:
		d->dynamic_shared_bytes = PTX_SHARED_MAX_BYTES + 1;
		break;
	case 9:
		d->dynamic_shared_bytes = 0xffffffff;
		break;
	case 10:
		d->param_bytes = 8;
		break;
	case 11:
		d->flags = 0x80;
		break;
	default:
		d->flags = SOFT_LAUNCH_COOPERATIVE; /* more blocks than fit */
		d->grid[0] = 4 * 32 + 1;
		break;
	}
}

static void bad_launches_are_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i <= 12; i++) {
		struct app app;

		app_open(&app, rig.gpu, app_work_text);
		break_launch(descriptor(&app), i);
		app_submit(&app);
		assert_int_equal(app_wait_error(&app)->error, SOFT_ERROR_COMPUTE);
		app_close(&app);
	}
	assert_good_works();
}

static void launch_without_sms_is_refused(void **state)
{
	const uint64_t mask[SOFT_SMS_MAX / 64] = { ~15ull };
	struct app app;

	(void)state;
	app_open(&app, rig.gpu, app_work_text);
	hw_channel_set_sms(app.channel, mask);
	descriptor(&app);
	app_submit(&app);
	assert_int_equal(app_wait_error(&app)->error, SOFT_ERROR_COMPUTE);
	app_close(&app);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_address_is_told),		 cmocka_unit_test(assertion_has_its_text),
		cmocka_unit_test(fault_ends_the_domain),	 cmocka_unit_test(bad_commands_are_refused),
		cmocka_unit_test(bad_rings_are_refused),	 cmocka_unit_test(bad_launches_are_refused),
		cmocka_unit_test(launch_without_sms_is_refused),
	};

	return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}

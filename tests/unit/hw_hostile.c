/* Hostile programs: random and half-random commands, memory that changes while it is read, work without end. They may
 * end themselves; a good program beside them must not notice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
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

static void assert_good_works(void)
{
	struct app_work_params params = { .out = good.data_at[0], .rounds = 2000 };
	const uint32_t *out = app_host(&good, params.out);

	memset(app_host(&good, params.out), 0, 1 << 16);
	app_launch(&good, "work", (struct app_shape){ .grid = { 16 }, .threads = { 64 } }, &params,
		   sizeof(params));
	app_fence(&good);
	for (unsigned i = 0; i < 16 * 64; i++)
		assert_int_equal(out[i], app_work_result(2000, 1));
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Words that look like commands, with addresses that may exist. */
static uint32_t random_word(uint64_t *state)
{
	static const uint32_t words[] = {
		SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 5),
		SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_LAUNCH, 1),
		SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_IN_UPPER, 8),
		SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_REMAP_CONST_A, 3),
		SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COMPUTE, SOFT_COMPUTE_SEND_A, 1),
		SOFT_COMMAND(SOFT_OP_IMMEDIATE, SOFT_SUBCHANNEL_COMPUTE, SOFT_COMPUTE_SEND_B, 1),
		SOFT_COMMAND(SOFT_OP_NON_INC, 0, SOFT_METHOD_SEM_EXECUTE, 100),
		SOFT_SEM_RELEASE | SOFT_SEM_TIMESTAMP,
		SOFT_SEM_ACQUIRE_GEQ,
		0x782,
		0x382,
		0,
		1,
		0x7f00,
		(uint32_t)APP_SEMAPHORES_AT,
		(uint32_t)(APP_COMMANDS_AT >> 8),
		SOFT_LAUNCH_MAGIC,
		APP_CODE,
	};
	uint64_t r = random_next(state);

	return r % 5 ? words[(r >> 8) % (sizeof(words) / sizeof(words[0]))] : (uint32_t)(r >> 16);
}

/* A program that scribbles over everything it has while the GPU reads it. */
static void scribble(struct app *app, uint64_t *random)
{
	struct hw_memory *const memories[] = { app->commands, app->ring, app->userd, app->semaphores };
	uint32_t *bell = (uint32_t *)(void *)(hw_memory_at(app->userd) + SOFT_USERD_GP_PUT);

	for (unsigned i = 0; i < 3000 && !hw_channel_has_error(app->channel); i++) {
		struct hw_memory *m = memories[random_next(random) % 8 ? 0 : random_next(random) % 4];
		uint32_t *at = (uint32_t *)(void *)hw_memory_at(m);

		if (m == app->commands)
			at += random_next(random) % 256;
		else
			at += random_next(random) % (hw_memory_bytes(m) / 4);
		__atomic_store_n(at, random_word(random), __ATOMIC_RELAXED);
		if (i % 16 == 0) {
			app_entry(app, SOFT_ENTRY(APP_COMMANDS_AT + random_next(random) % 64 * 4,
						  random_next(random) % 128));
			__atomic_store_n(bell, (uint32_t)(random_next(random) % APP_RING), __ATOMIC_RELEASE);
		}
	}
}

static void hostile_programs_hurt_only_themselves(void **state)
{
	uint64_t random = 88172645463325252ull, end = bf_now_ns() + 2000000000ull;
	unsigned rounds = 0;

	(void)state;
	for (; bf_now_ns() < end || rounds <= 4; rounds++) {
		struct app app;

		app_open(&app, rig.gpu, app_work_text);
		app_alloc(&app, 1 << 16, NULL);
		scribble(&app, &random);
		if (rounds % 4 == 0)
			assert_good_works();
		app_close(&app); /* whether it ended or not */
	}
}

/* Mostly right, so that it gets far. */
static uint64_t random_address(const struct app *app, uint64_t *random)
{
	uint64_t r = random_next(random);

	switch (r % 16) {
	case 0:
		return r >> 20;
	case 1:
		return APP_COMMANDS_AT + (r >> 40) % APP_COMMAND_BYTES;
	case 2:
		return APP_RING_AT + (r >> 40) % 4096;
	case 3:
		return APP_SEMAPHORES_AT + (r >> 40) % 4096;
	default:
		return app->data_at[0] + (r >> 40) % (1 << 16);
	}
}

static void random_semaphore(struct app *app, uint64_t *random)
{
	static const uint32_t flags[] = { 0, SOFT_SEM_64BIT, SOFT_SEM_TIMESTAMP, SOFT_SEM_SWITCH_TSG };
	uint64_t r = random_next(random);

	if (r % 8)
		app_release(app, (uint32_t)(r >> 8) % 256, r, flags[r >> 20 & 3]);
	else
		app_acquire(app, (uint32_t)(r >> 8) % 256, 0, (uint32_t)(r >> 16 & 7) | flags[r >> 20 & 3]);
}

static void random_copy(struct app *app, uint64_t *random)
{
	uint64_t in = random_address(app, random), out = random_address(app, random), r = random_next(random);
	const uint32_t values[] = { (uint32_t)(in >> 32),
				    (uint32_t)in,
				    (uint32_t)(out >> 32),
				    (uint32_t)out,
				    (uint32_t)(r >> 52) - 2048,
				    (uint32_t)(r >> 40 & 0xfff) - 2048,
				    (uint32_t)(r >> 20 & 0x3ff) * (r & 64 ? 1 : 1000),
				    (uint32_t)(r >> 8 & 0xf) };

	app_push(app, SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_IN_UPPER, 8));
	for (unsigned i = 0; i < 8; i++)
		app_push(app, values[i]);
	app_method(app, SOFT_SUBCHANNEL_COPY, SOFT_COPY_REMAP_COMPONENTS, (uint32_t)random_next(random));
	app_method(app, SOFT_SUBCHANNEL_COPY, SOFT_COPY_LAUNCH,
		   2 | SOFT_COPY_SRC_PITCH | SOFT_COPY_DST_PITCH |
			   (uint32_t)(r & (SOFT_COPY_MULTI_LINE | SOFT_COPY_REMAP)));
}

static void random_launch(struct app *app, uint64_t *random)
{
	uint64_t r = random_next(random);
	struct app_work_params params = { .out = r % 32 ? app->data_at[0] : random_address(app, random),
					  .rounds = (uint32_t)(r >> 32) % (r % 64 ? 1000 : 100000000) };
	struct app_shape shape = { .grid = { (uint32_t)(r >> 8) % 300, (uint32_t)(r >> 20) % 4 },
				   .threads = { (uint32_t)(r >> 30) % 300, (uint32_t)(r >> 40) % 4 },
				   .dynamic_bytes = r & 128 ? (uint32_t)(r >> 10) % (200 << 10) : 0,
				   .flags = r % 16 == 1 };

	app_launch(app, "work", shape, &params, sizeof(params));
	if (r % 8 == 3) /* any word of the descriptor */
		__atomic_store_n((uint32_t *)(void *)(hw_memory_at(app->commands) + app->begin - 80 +
						      (r >> 50 & 0x3c)),
				 random_word(random), __ATOMIC_RELAXED);
}

static void random_commands(struct app *app, uint64_t *random)
{
	for (unsigned i = random_next(random) % 24; i; i--) {
		switch (random_next(random) % 8) {
		case 0:
		case 1:
		case 2:
			random_copy(app, random);
			break;
		case 3:
		case 4:
			random_launch(app, random);
			break;
		default:
			random_semaphore(app, random);
			break;
		}
	}
	if (random_next(random) % 8 == 0)
		app_push(app, random_word(random));
	app_submit(app);
}

/* A program whose commands are nearly right, and which is stopped, moved and ended at any time. */
static void nearly_right_programs_hurt_only_themselves(void **state)
{
	uint64_t random = 0x9e3779b97f4a7c15ull, end = bf_now_ns() + 2000000000ull;
	unsigned rounds = 0, ended = 0;

	(void)state;
	for (; bf_now_ns() < end || rounds <= 4; rounds++) {
		struct app app;

		app_open(&app, rig.gpu, app_work_text);
		app_alloc(&app, 1 << 16, NULL);
		for (unsigned i = 0; i < 10 && !hw_channel_has_error(app.channel); i++) {
			random_commands(&app, &random);
			if (random_next(&random) % 4 == 0)
				hw_group_preempt(app.group);
			if (random_next(&random) % 8 == 0)
				hw_group_set_domain(app.group, (uint32_t)random_next(&random) % 2);
			if (random_next(&random) % 4 == 0)
				app_wait_ms(&app, 1, 1, 2);
		}
		if (random_next(&random) % 32 == 0)
			hw_space_unmap(app.space, app.data_at[0], 1 << 16);
		if (rounds % 4 == 0)
			assert_good_works();
		ended += hw_channel_has_error(app.channel);
		app_close(&app);
	}
	assert_true(ended < rounds);
}

/* Releases without end, and no kernel ever: others have their turns. */
static void endless_commands_stall_nobody(void **state)
{
	struct app app;
	uint64_t before;

	(void)state;
	app_open(&app, rig.gpu, NULL);
	for (unsigned i = 0; i < 8000; i++)
		app_release(&app, 1, i, 0);
	for (unsigned i = 0; i < APP_RING - 1; i++)
		app_entry(&app, SOFT_ENTRY(APP_COMMANDS_AT, app.at / 4));
	before = hw_gpu_now_ns(rig.gpu);
	for (unsigned i = 0; i < 10; i++)
		assert_good_works();
	assert_true(hw_gpu_now_ns(rig.gpu) - before < 2000000000ull);
	assert_false(hw_channel_has_error(app.channel));
	app_close(&app);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hostile_programs_hurt_only_themselves),
		cmocka_unit_test(nearly_right_programs_hurt_only_themselves),
		cmocka_unit_test(endless_commands_stall_nobody),
	};

	return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}

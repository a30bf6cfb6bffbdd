/* Copies and fills against what plain loops do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"
#include "hw_rig.h"

enum { BYTES = 1 << 20, PITCHES = SOFT_COPY_SRC_PITCH | SOFT_COPY_DST_PITCH };

static struct gpu_rig rig;
static struct app app;
static uint64_t in, out;
static uint8_t *in_host, *out_host;

static int open_all(void **state)
{
	(void)state;
	gpu_open(&rig, NULL, false);
	app_open(&app, rig.gpu, NULL);
	in = app_alloc(&app, BYTES, NULL);
	out = app_alloc(&app, BYTES, NULL);
	in_host = app_host(&app, in);
	out_host = app_host(&app, out);
	for (unsigned i = 0; i < BYTES; i++)
		in_host[i] = (uint8_t)(i * 7 + i / 251);
	return 0;
}

static int close_all(void **state)
{
	(void)state;
	app_close(&app);
	gpu_close(&rig);
	return 0;
}

static void set(uint32_t method, uint32_t value)
{
	app_method(&app, SOFT_SUBCHANNEL_COPY, method, value);
}

static void set_out(uint64_t to)
{
	set(SOFT_COPY_OUT_UPPER, (uint32_t)(to >> 32));
	set(SOFT_COPY_OUT_LOWER, (uint32_t)to);
}

static void lines_are_copied(void **state)
{
	static const uint32_t sizes[] = { 1, 3, 4096, 4097, 300000, BYTES - 5 };

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(out_host, 0xee, BYTES);
		app_copy(&app, out + 3, in + 1, sizes[i]);
		app_fence(&app);
		assert_memory_equal(out_host + 3, in_host + 1, sizes[i]);
		assert_int_equal(out_host[2], 0xee);
		assert_int_equal(out_host[3 + sizes[i]], 0xee);
	}
}

/* Rectangles with pitches, one of them upside down. */
static void rectangles_are_copied(void **state)
{
	cleanup_free uint8_t *want = malloc(BYTES);

	(void)state;
	assert_non_null(want);
	memset(want, 0x11, BYTES);
	memset(out_host, 0x11, BYTES);
	for (unsigned y = 0; y < 100; y++)
		memcpy(want + 100000 - (size_t)900 * y, in_host + 17 + (size_t)1000 * y, 777);
	set(SOFT_COPY_IN_UPPER, (uint32_t)(in >> 32));
	set(SOFT_COPY_IN_LOWER, (uint32_t)in + 17);
	set_out(out + 100000);
	set(SOFT_COPY_PITCH_IN, 1000);
	set(SOFT_COPY_PITCH_OUT, (uint32_t)-900);
	set(SOFT_COPY_LINE_LENGTH, 777);
	set(SOFT_COPY_LINE_COUNT, 100);
	set(SOFT_COPY_LAUNCH, 2 | SOFT_COPY_MULTI_LINE | PITCHES);
	app_fence(&app);
	assert_memory_equal(out_host, want, BYTES);
}

static void fill(uint64_t to, uint32_t elements, uint32_t size, uint32_t components, uint32_t a, uint32_t b)
{
	set_out(to);
	set(SOFT_COPY_LINE_LENGTH, elements);
	set(SOFT_COPY_REMAP_CONST_A, a);
	set(SOFT_COPY_REMAP_CONST_B, b);
	/* X and Z are constant A, Y and W constant B */
	set(SOFT_COPY_REMAP_COMPONENTS, 0x5454 | (size - 1) << 16 | (components - 1) << 24);
	set(SOFT_COPY_LAUNCH, 2 | SOFT_COPY_REMAP | PITCHES);
}

static void fills_are_patterns(void **state)
{
	const uint32_t constants[2] = { 0x11223344, 0xaabbccdd }, elements = 40000;

	(void)state;
	for (uint32_t size = 1; size <= 4; size *= 2)
		for (uint32_t n = 1; n <= 4; n++) {
			uint32_t bytes = size * n;

			memset(out_host, 0, BYTES);
			fill(out + 5, elements, size, n, constants[0], constants[1]);
			app_fence(&app);
			assert_int_equal(out_host[4], 0);
			for (uint32_t i = 0; i < elements * bytes; i++) {
				uint32_t component = i % bytes / size, byte = i % size;

				assert_int_equal(out_host[5 + i],
						 constants[component & 1] >> (8 * byte) & 0xff);
			}
			assert_int_equal(out_host[5 + elements * bytes], 0);
		}
}

/* Two of four 16-bit components, swapped; one is left alone. */
static void components_are_picked(void **state)
{
	const uint16_t *from = (const uint16_t *)(const void *)in_host;
	const uint16_t *to = (const uint16_t *)(const void *)out_host;

	(void)state;
	memset(out_host, 0x55, BYTES);
	set(SOFT_COPY_IN_UPPER, (uint32_t)(in >> 32));
	set(SOFT_COPY_IN_LOWER, (uint32_t)in);
	set_out(out);
	set(SOFT_COPY_LINE_LENGTH, 5000);
	set(SOFT_COPY_REMAP_CONST_A, 0x1234);
	set(SOFT_COPY_REMAP_COMPONENTS, 0x4613 | 1u << 16 | 3u << 20 | 3u << 24);
	set(SOFT_COPY_LAUNCH, 2 | SOFT_COPY_REMAP | PITCHES);
	app_fence(&app);
	for (size_t i = 0; i < 5000; i++) {
		assert_int_equal(to[4 * i], from[4 * i + 3]);
		assert_int_equal(to[4 * i + 1], from[4 * i + 1]);
		assert_int_equal(to[4 * i + 2], 0x5555);
		assert_int_equal(to[4 * i + 3], 0x1234);
	}
}

static void nothing_is_copied_when_nothing_is_asked(void **state)
{
	(void)state;
	set(SOFT_COPY_LINE_LENGTH, 0);
	set(SOFT_COPY_LAUNCH, 2 | PITCHES);
	set(SOFT_COPY_LINE_LENGTH, 100);
	set(SOFT_COPY_LINE_COUNT, 0);
	set(SOFT_COPY_LAUNCH, 2 | PITCHES | SOFT_COPY_MULTI_LINE);
	set(SOFT_COPY_LAUNCH, 0);
	app_fence(&app);
}

/* Device memory in pieces that do not lie together on the host. */
static void copies_cross_maps(void **state)
{
	uint64_t a = app_alloc(&app, 1 << 16, NULL), b = app_alloc(&app, 1 << 16, NULL);

	(void)state;
	assert_true(b == a + (1 << 16));
	app_copy(&app, a + 100, in, 100000);
	app_copy(&app, out, a + 100, 100000);
	app_fence(&app);
	assert_memory_equal(out_host, in_host, 100000);
}

/* Last: it ends the app. */
static void copy_past_the_end_fails(void **state)
{
	const struct soft_notifier *n;

	(void)state;
	app_copy(&app, out, in + 4ull * BYTES - 4096, 1 << 20);
	app_submit(&app);
	n = app_wait_error(&app);
	assert_int_equal(n->error, SOFT_ERROR_MMU);
	assert_string_equal(n->text, "a copy's source");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_copied),
		cmocka_unit_test(rectangles_are_copied),
		cmocka_unit_test(fills_are_patterns),
		cmocka_unit_test(components_are_picked),
		cmocka_unit_test(nothing_is_copied_when_nothing_is_asked),
		cmocka_unit_test(copies_cross_maps),
		cmocka_unit_test(copy_past_the_end_fails),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}

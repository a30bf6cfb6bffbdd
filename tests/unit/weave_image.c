/* weave: images as programs hand them to the driver. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"
#include "cuda/fatbin.h"
#include "policy_rig.h"
#include "weave_rig.h"

static struct probe *probe;

static int open_probe(void **state)
{
	(void)state;
	probe = weave_rig_probe("probes", "kernelstat");
	return 0;
}

static int close_probe(void **state)
{
	(void)state;
	probe_free(probe);
	return 0;
}

static uint8_t *read_image(const char *name, size_t *size)
{
	uint8_t *data = malloc(1 << 16);
	cleanup_file FILE *file = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/fatbin/%s", BELFRY_TEST_DATA, name);
	file = fopen(path, "re");
	if (!file || !data)
		fail_msg("%s: %s", path, strerror(errno));
	*size = fread(data, 1, 1 << 16, file);
	return data;
}

static int weave_one(const void *image, size_t size, uint32_t target, struct weave_result *result,
		     struct bf_error *err)
{
	struct weave_probe list = { .probe = probe, .area = 0x7f0010000000 };

	return weave_image(image, size, target, &list, 1, result, err);
}

static void every_packing_is_woven(void **state)
{
	static const char *const names[] = { "ptx-none.fatbin", "ptx-speed.fatbin", "ptx-balance.fatbin",
					     "ptx-size.fatbin", "mixed.fatbin" };

	(void)state;
	for (unsigned i = 0; i < COUNT(names); i++) {
		size_t size = 0;
		cleanup_free uint8_t *image = read_image(names[i], &size);
		struct fatbin_wrapper wrapper = { FATBIN_WRAPPER_MAGIC, 1, image, NULL };
		const void *const images[] = { image, image, &wrapper };

		for (unsigned k = 0; k < COUNT(images); k++) {
			struct weave_result result;
			struct bf_error err = { 0 };

			if (weave_one(images[k], k ? 0 : size, 90, &result, &err))
				fail_msg("%s: %s", names[i], err.text);
			assert_non_null(result.text);
			assert_int_equal(result.target, 90);
			assert_string_equal(result.kernels[0].name, "which");
			assert_int_equal(result.kernels[0].probes, 1);
			weave_result_free(&result);
		}
	}
}

/* mixed.fatbin has compute_80 or compute_90 PTX; a GPU takes the newest that it can run. */
static void newest_text_that_the_device_runs_is_taken(void **state)
{
	size_t size = 0;
	cleanup_free uint8_t *image = read_image("mixed.fatbin", &size);
	struct fatbin_choices choices;
	struct weave_result result;
	struct bf_error err = { 0 };
	uint32_t lowest;

	(void)state;
	assert_int_equal(fatbin_choose(image, size, 200, &choices, &err), 0);
	assert_true(choices.count >= 1);
	lowest = choices.list[choices.count - 1].target;
	assert_int_equal(weave_one(image, size, lowest, &result, &err), 0);
	assert_int_equal(result.target, lowest);
	weave_result_free(&result);
	assert_int_equal(weave_one(image, size, lowest - 1, &result, &err), -ENOEXEC);
}

static void machine_code_is_not_instrumentable(void **state)
{
	static const char *const names[] = { "machine.cubin", "machine.fatbin" };

	(void)state;
	for (unsigned i = 0; i < COUNT(names); i++) {
		size_t size = 0;
		cleanup_free uint8_t *image = read_image(names[i], &size);
		struct weave_result result;
		struct bf_error err = { 0 };

		assert_int_equal(weave_one(image, size, 90, &result, &err), -ENOEXEC);
		assert_text_has(err.text, "not instrumentable");
		assert_null(result.text);
	}
}

static void parts_that_the_driver_links_are_refused(void **state)
{
	const void *const parts[] = { NULL };
	struct fatbin_wrapper wrapper = { FATBIN_WRAPPER_MAGIC, 2, NULL, parts };
	struct weave_result result;
	struct bf_error err = { 0 };

	(void)state;
	assert_int_equal(weave_one(&wrapper, 0, 90, &result, &err), -ENOTSUP);
	assert_text_has(err.text, "separately compiled");
	wrapper.parts = NULL;
	assert_int_equal(weave_one(&wrapper, 0, 90, &result, &err), -EINVAL);
	/* With a length, it is data from outside, and its pointers are not followed. */
	assert_int_equal(weave_one(&wrapper, sizeof(wrapper), 90, &result, &err), -EINVAL);
}

static void header_that_claims_too_much_is_refused(void **state)
{
	size_t size = 0;
	cleanup_free uint8_t *image = read_image("ptx-none.fatbin", &size);
	struct weave_result result;
	struct bf_error err = { 0 };

	(void)state;
	for (size_t length = 1; length < size; length += 7)
		assert_true(weave_one(image, length, 90, &result, &err) < 0);
	memset(image + 8, 0xff, 7);
	assert_int_equal(weave_one(image, size, 90, &result, &err), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_packing_is_woven),
		cmocka_unit_test(newest_text_that_the_device_runs_is_taken),
		cmocka_unit_test(machine_code_is_not_instrumentable),
		cmocka_unit_test(parts_that_the_driver_links_are_refused),
		cmocka_unit_test(header_that_claims_too_much_is_refused),
	};

	return cmocka_run_group_tests_name("weave_image", tests, open_probe, close_probe);
}

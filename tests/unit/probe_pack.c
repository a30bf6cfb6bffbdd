/* probe: packed probes, whole and damaged. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/own.h"
#include "probe_rig.h"

static const char *const good[] = { "blocktime", "count", "pages", "spread", "timers" };

static void same_text(const struct probe *one, const struct probe *other)
{
	for (size_t i = 0; probe_program_at(one, i); i++) {
		cleanup_free char *text = NULL, *again = NULL;
		struct bf_error err;

		assert_non_null(probe_program_at(other, i));
		assert_string_equal(probe_program_at(one, i)->name, probe_program_at(other, i)->name);
		assert_int_equal(probe_program_at(one, i)->event, probe_program_at(other, i)->event);
		assert_int_equal(probe_write_module(one, i, false, &text, &err), 0);
		assert_int_equal(probe_write_module(other, i, false, &again, &err), 0);
		assert_string_equal(text, again);
	}
}

static void unpacked_probe_is_the_same(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct probe *probe =
			probe_read(good[i], &(struct probe_options){ .sm_count = 132, .fuel = 77 });
		struct probe *other;
		cleanup_free void *bytes = NULL, *area = NULL, *again = NULL;
		struct bf_error err;
		size_t size;

		assert_int_equal(probe_pack(probe, &bytes, &size, &err), 0);
		assert_int_equal(probe_unpack(bytes, size, &other, &err), 0);
		same_text(probe, other);
		assert_int_equal(probe_area_bytes(probe), probe_area_bytes(other));
		area = malloc(probe_area_bytes(probe));
		again = malloc(probe_area_bytes(probe));
		probe_area_init(probe, area);
		probe_area_init(other, again);
		assert_memory_equal(area, again, probe_area_bytes(probe));
		probe_free(probe);
		probe_free(other);
	}
}

/* The most memory that this process has had, in KiB. */
static long peak_kib(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_maxrss;
}

/* One program of the object needs 7 MB to be checked. A sanitizer keeps freed memory. */
static void large_object_is_checked_in_little_memory(void **state)
{
	long before = peak_kib();
	struct probe *probe = probe_read("fat", &(struct probe_options){ .is_checked_only = true });

	(void)state;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(peak_kib() - before < 64 << 10);
#endif
	(void)before;
	probe_free(probe);
}

static void probe_without_code_has_its_maps(void **state)
{
	struct probe *whole = probe_read("pages", NULL),
		     *probe = probe_read("pages", &(struct probe_options){ .is_checked_only = true });
	cleanup_free void *bytes = NULL, *again = NULL;
	cleanup_free char *text = NULL;
	size_t size, other;
	struct bf_error err;

	(void)state;
	assert_int_equal(probe_pack(whole, &bytes, &size, &err), 0);
	assert_int_equal(probe_pack(probe, &again, &other, &err), 0);
	assert_int_equal(size, other);
	assert_memory_equal(bytes, again, size);
	probe_keep_maps(probe);
	assert_int_equal(probe_area_bytes(probe), probe_area_bytes(whole));
	for (size_t i = 0; probe_map_at(whole, i); i++) {
		assert_string_equal(probe_map_at(probe, i)->name, probe_map_at(whole, i)->name);
		assert_int_equal(probe_map_at(probe, i)->values, probe_map_at(whole, i)->values);
	}
	assert_int_equal(probe_write_module(probe, 0, false, &text, &err), -EINVAL);
	probe_free(probe);
	probe_free(whole);
}

static void shortened_pack_is_refused(void **state)
{
	struct probe *probe = probe_read("blocktime", NULL), *other;
	cleanup_free void *bytes = NULL;
	struct bf_error err;
	size_t size;

	(void)state;
	assert_int_equal(probe_pack(probe, &bytes, &size, &err), 0);
	for (size_t less = 0; less < size; less++) {
		void *copy = malloc(less ? less : 1);

		memcpy(copy, bytes, less);
		assert_true(probe_unpack(copy, less, &other, &err) < 0);
		assert_null(other);
		free(copy);
	}
	probe_free(probe);
}

/* Refused, or a probe that passes all checks. */
static void damaged_pack_does_no_harm(void **state)
{
	struct probe *probe = probe_read("blocktime", NULL), *other;
	cleanup_free uint8_t *copy = NULL;
	cleanup_free void *bytes = NULL;
	struct bf_error err;
	unsigned taken = 0;
	size_t size;

	(void)state;
	assert_int_equal(probe_pack(probe, &bytes, &size, &err), 0);
	copy = malloc(size);
	for (size_t at = 0; at < size; at++)
		for (unsigned bit = 0; bit < 8; bit += 3) {
			memcpy(copy, bytes, size);
			copy[at] ^= (uint8_t)(1u << bit);
			taken += !probe_unpack(copy, size, &other, &err);
			probe_free(other);
		}
	assert_true(taken > 0); /* names, for example */
	probe_free(probe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(large_object_is_checked_in_little_memory), /* first: it reads the peak */
		cmocka_unit_test(probe_without_code_has_its_maps),
		cmocka_unit_test(unpacked_probe_is_the_same),
		cmocka_unit_test(shortened_pack_is_refused),
		cmocka_unit_test(damaged_pack_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

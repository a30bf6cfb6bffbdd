/* burst: which times make one submission's duration, with times that are written down. */
#include "gpu/burst.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS 1000000ull

static const struct gate_came nothing;

/* By a poller that looks all the time. */
static struct gate_came found(uint64_t ns)
{
	return (struct gate_came){ ns, ns };
}

static void assert_span(const struct burst_span *span, uint64_t came_ns, uint64_t end_ns)
{
	assert_true(span->came_ns == came_ns);
	assert_true(span->end_ns == end_ns);
}

/* It was found out 2 ms later: the record counts. */
static void a_burst_ends_when_the_record_says(void **state)
{
	struct burst burst = { 0 };
	struct burst_span span;

	(void)state;
	burst_came(&burst, found(10 * MS));
	burst_record(&burst, 11 * MS, 14 * MS);
	assert_true(burst_done(&burst, nothing, 16 * MS, &span));
	assert_span(&span, 10 * MS, 14 * MS);
	assert_false(burst_done(&burst, nothing, 17 * MS, &span));
}

static void without_a_record_it_ends_when_that_is_found_out(void **state)
{
	struct burst burst = { 0 };
	struct burst_span span;

	(void)state;
	burst_came(&burst, found(10 * MS));
	assert_true(burst_done(&burst, nothing, 16 * MS, &span));
	assert_span(&span, 10 * MS, 16 * MS);
	burst_came(&burst, found(20 * MS));
	burst_record(&burst, 11 * MS, 14 * MS); /* of the one before */
	assert_true(burst_done(&burst, found(20 * MS), 26 * MS, &span));
	assert_span(&span, 20 * MS, 26 * MS);
}

static void more_that_comes_meanwhile_belongs_to_it(void **state)
{
	struct burst burst = { 0 };
	struct burst_span span;

	(void)state;
	burst_came(&burst, found(10 * MS));
	burst_came(&burst, found(11 * MS));
	burst_came(&burst, found(12 * MS));
	burst_record(&burst, 12 * MS, 15 * MS);
	assert_true(burst_done(&burst, nothing, 16 * MS, &span));
	assert_span(&span, 10 * MS, 15 * MS);
}

/* A program that waits for each: nothing was found done in between, and still each is told apart. */
static void what_follows_at_once_is_the_next(void **state)
{
	struct burst burst = { 0 };
	struct burst_span span;

	(void)state;
	burst_came(&burst, found(10 * MS));
	assert_false(burst_split(&burst, nothing, &span));
	for (uint64_t i = 1; i <= 5; i++) {
		burst_record(&burst, 10 * i * MS + 1, (10 * i + 9) * MS);
		assert_true(burst_split(&burst, found((10 * i + 10) * MS), &span));
		assert_span(&span, 10 * i * MS, (10 * i + 9) * MS);
	}
	burst_record(&burst, 60 * MS + 1, 69 * MS);
	assert_false(burst_split(&burst, nothing, &span)); /* nothing came after it yet */
	assert_true(burst_done(&burst, nothing, 80 * MS, &span));
	assert_span(&span, 60 * MS, 69 * MS);
}

/* The GPU had run out of what it had seen, but more had been submitted by then: the program did not wait for it. */
static void what_came_before_the_record_s_end_is_not_the_next(void **state)
{
	struct burst burst = { 0 };
	struct burst_span span;

	(void)state;
	burst_came(&burst, found(10 * MS));
	burst_record(&burst, 11 * MS, 14 * MS);
	assert_false(burst_split(&burst, found(13 * MS), &span));
	burst_record(&burst, 14 * MS + 1, 18 * MS);
	assert_true(burst_done(&burst, nothing, 20 * MS, &span));
	assert_span(&span, 10 * MS, 18 * MS);
}

/* Likewise if no record tells when the rest was done. */
static void a_record_does_not_end_what_the_gpu_had_not_seen(void **state)
{
	struct burst burst = { 0 };
	struct burst_span span;

	(void)state;
	burst_came(&burst, found(10 * MS));
	burst_record(&burst, 11 * MS, 14 * MS);
	assert_true(burst_done(&burst, found(13 * MS), 20 * MS, &span));
	assert_span(&span, 10 * MS, 20 * MS);
}

/* The poller was away for 8 ms, in which the first was done and the second came: halfway, but not before the first's end. */
static void what_is_found_late_came_after_the_end_before_it(void **state)
{
	struct burst burst = { 0 };
	struct burst_span span;

	(void)state;
	burst_came(&burst, found(10 * MS));
	burst_record(&burst, 10 * MS, 14 * MS);
	assert_true(
		burst_split(&burst, (struct gate_came){ .found_ns = 20 * MS, .likely_ns = 16 * MS }, &span));
	assert_span(&span, 10 * MS, 14 * MS);
	burst_record(&burst, 21 * MS, 24 * MS);
	assert_true(
		burst_split(&burst, (struct gate_came){ .found_ns = 26 * MS, .likely_ns = 22 * MS }, &span));
	assert_span(&span, 16 * MS, 24 * MS);
	assert_true(burst_done(&burst, nothing, 29 * MS, &span));
	assert_span(&span, 24 * MS, 29 * MS);
	burst_came(&burst, (struct gate_came){ .found_ns = 30 * MS, .likely_ns = 28 * MS });
	assert_true(burst_done(&burst, nothing, 33 * MS, &span));
	assert_span(&span, 29 * MS, 33 * MS);
}

/* It rang behind the closed gate while the one before still ran. */
static void a_wait_at_the_gate_counts_from_the_bell(void **state)
{
	struct burst burst = { 0 };
	struct burst_span span;

	(void)state;
	burst_came(&burst, found(10 * MS));
	burst_record(&burst, 11 * MS, 15 * MS);
	assert_true(burst_done(&burst, nothing, 16 * MS, &span));
	burst_came(&burst, found(12 * MS)); /* passed on at 30 ms */
	burst_record(&burst, 31 * MS, 34 * MS);
	assert_true(burst_done(&burst, nothing, 35 * MS, &span));
	assert_span(&span, 12 * MS, 34 * MS);
}

/* The gate was opened for programs that have nothing to do. */
static void nothing_submitted_is_no_burst(void **state)
{
	struct burst burst = { 0 };
	struct burst_span span;

	(void)state;
	assert_false(burst_done(&burst, nothing, 20 * MS, &span));
	burst_record(&burst, 11 * MS, 14 * MS);
	assert_false(burst_split(&burst, found(15 * MS), &span));
	assert_false(burst_done(&burst, nothing, 20 * MS, &span));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_burst_ends_when_the_record_says),
		cmocka_unit_test(without_a_record_it_ends_when_that_is_found_out),
		cmocka_unit_test(more_that_comes_meanwhile_belongs_to_it),
		cmocka_unit_test(what_follows_at_once_is_the_next),
		cmocka_unit_test(what_came_before_the_record_s_end_is_not_the_next),
		cmocka_unit_test(a_record_does_not_end_what_the_gpu_had_not_seen),
		cmocka_unit_test(what_is_found_late_came_after_the_end_before_it),
		cmocka_unit_test(a_wait_at_the_gate_counts_from_the_bell),
		cmocka_unit_test(nothing_submitted_is_no_burst),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* verify: which traces are equal, and what is said of those that are not. */
#include "verify/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "coro/trace_format.h"

#define NAMES "F 0 first\nF 1 second\n"

static struct verify_trace trace_of(const char *lines)
{
	struct verify_trace trace = { 0 };
	struct bf_error err = { 0 };
	char *text;

	assert_true(asprintf(&text, TRACE_HEAD NAMES "%s", lines) > 0);
	if (verify_add(&trace, text, "a trace", &err))
		fail_msg("%s", err.text);
	return trace;
}

/* The two are compared; "": they are equal. */
static const char *difference(const char *one, const char *other)
{
	static char text[1024];
	struct verify_trace a = trace_of(one), b = trace_of(other);
	struct verify_difference found;

	assert_int_equal(verify_compare(&a, &b, &found), 0);
	text[0] = 0;
	if (found.way)
		verify_say(&found, &a, &b, text, sizeof(text));
	verify_free(&a);
	verify_free(&b);
	return text;
}

static void assert_refused(const char *text, const char *why)
{
	struct verify_trace trace = { 0 };
	struct bf_error err = { 0 };

	assert_int_not_equal(verify_add(&trace, strdup(text), "a trace", &err), 0);
	if (!strstr(err.text, why))
		fail_msg("'%s' is not in '%s'", why, err.text);
	verify_free(&trace);
}

static void equal_traces_are_equal(void **state)
{
	const char *lines = "L 0 1 1 0 1,1,1 20,1,1 0 0 77\nC 1 1 1 40 99\nB 2 1 4 5 name\n";

	(void)state;
	assert_string_equal(difference(lines, lines), "");
	assert_string_equal(difference("", ""), "");
}

static void a_shape_names_its_kernel(void **state)
{
	(void)state;
	assert_string_equal(difference("L 0 1 1 1 a,1,1 20,1,1 0 0 77\n", "L 0 1 1 1 5,1,1 20,1,1 0 0 77\n"),
			    "kernel second has grid 5,1,1, block 32,1,1, 0 bytes of shared memory instead of "
			    "grid 10,1,1, block 32,1,1, 0 bytes of shared memory");
	assert_string_equal(difference("L 0 1 1 1 1,1,1 1,1,1 0 0 77\n", "L 0 1 1 1 1,1,1 1,1,1 0 4 77\n"),
			    "kernel second has other attributes of the launch");
	assert_string_equal(difference("L 0 1 1 0 1,1,1 1,1,1 0 0 77\n", "L 0 1 1 1 1,1,1 1,1,1 0 0 77\n"),
			    "a launch of second instead of a launch of first");
}

static void content_names_the_kernel_before_it(void **state)
{
	const char *launches = "L 0 1 1 0 1,1,1 1,1,1 0 0 7\nL 1 1 2 1 1,1,1 1,1,1 0 0 7\n";
	char one[256], other[256];

	(void)state;
	snprintf(one, sizeof(one), "%sC 2 1 1 40 99\n", launches);
	snprintf(other, sizeof(other), "%sC 2 1 1 40 98\n", launches);
	assert_string_equal(difference(one, other),
			    "a copy of 64 bytes to the host has other content; the last "
			    "kernel before it is first");
	snprintf(one, sizeof(one), "%sC 2 1 3 40 99\n", launches);
	snprintf(other, sizeof(other), "%sC 2 1 3 40 98\n", launches);
	assert_string_equal(difference(one, other),
			    "a copy of 64 bytes to the host has other content; the last "
			    "kernel before it is second");
	assert_string_equal(difference("B 0 1 4 5 x\n", "B 0 1 4 6 x\n"),
			    "the buffer x of 4 bytes has other content; no kernel ran before it");
}

static void what_one_run_lacks_is_told(void **state)
{
	const char *one = "L 0 1 1 0 1,1,1 1,1,1 0 0 7\n",
		   *two = "L 0 1 1 0 1,1,1 1,1,1 0 0 7\nC 1 1 1 10 1\n";

	(void)state;
	assert_string_equal(difference(two, one),
			    "a copy of 16 bytes to the host is missing; the last kernel "
			    "before it is first");
	assert_string_equal(difference(one, two),
			    "a copy of 16 bytes to the host is additional; the last kernel "
			    "before it is first");
	assert_string_equal(difference(one, ""), "a launch of first is missing");
}

static void streams_are_matched_by_what_they_did(void **state)
{
	(void)state;
	assert_string_equal(difference("L 0 1 1 0 1,1,1 1,1,1 0 0 7\nL 1 2 2 1 1,1,1 1,1,1 0 0 7\n",
				       "L 0 9 5 1 1,1,1 1,1,1 0 0 7\nL 1 8 4 0 1,1,1 1,1,1 0 0 7\n"),
			    "");
}

/* The launches of two threads on one stream come in another order. */
static void threads_on_one_stream_may_race(void **state)
{
	(void)state;
	assert_string_equal(difference("L 0 1 1 0 1,1,1 1,1,1 0 0 7\nL 1 2 1 1 1,1,1 1,1,1 0 0 7\n",
				       "L 0 2 1 1 1,1,1 1,1,1 0 0 7\nL 1 1 1 0 1,1,1 1,1,1 0 0 7\n"),
			    "");
}

/* Threads take turns on one stream, other ones each time. */
static void work_may_move_between_threads(void **state)
{
	(void)state;
	assert_string_equal(difference("L 0 1 1 0 1,1,1 1,1,1 0 0 7\nL 1 2 1 1 1,1,1 1,1,1 0 0 7\n",
				       "L 0 1 1 0 1,1,1 1,1,1 0 0 7\nL 1 1 1 1 1,1,1 1,1,1 0 0 7\n"),
			    "");
}

static void order_on_one_stream_counts(void **state)
{
	(void)state;
	assert_string_equal(difference("L 0 1 1 0 1,1,1 1,1,1 0 0 7\nL 1 1 1 1 1,1,1 1,1,1 0 0 7\n",
				       "L 0 1 1 1 1,1,1 1,1,1 0 0 7\nL 1 1 1 0 1,1,1 1,1,1 0 0 7\n"),
			    "a launch of second instead of a launch of first");
}

static void lines_of_copies_may_come_late(void **state)
{
	(void)state;
	assert_string_equal(difference("C 0 1 1 40 99\nL 1 1 1 0 1,1,1 1,1,1 0 0 7\n",
				       "L 1 1 1 0 1,1,1 1,1,1 0 0 7\nC 0 1 1 40 99\n"),
			    "");
}

static void a_graph_names_the_node_that_differs(void **state)
{
	const char *one = "N 1 0 1,1,1 1,1,1 0 0 7\nN 1 1 1,1,1 1,1,1 0 0 7\nG 0 1 1 1\n";

	(void)state;
	assert_string_equal(difference(one, one), "");
	/* The number of a graph is not part of it. */
	assert_string_equal(
		difference(one, "G 0 5 5 1\nN 2 0 1,1,1 1,1,1 0 0 7\nN 2 1 1,1,1 1,1,1 0 0 7\nG 1 1 1 2\n"),
		"a launch of a graph of 0 kernels is additional");
	assert_string_equal(difference(one, "N 1 0 1,1,1 1,1,1 0 0 7\nN 1 1 1,1,1 1,1,1 0 0 8\nG 0 1 1 1\n"),
			    "kernel second of a graph has other parameters");
	assert_string_equal(
		difference(one, "N 1 0 1,1,1 1,1,1 0 0 7\nN 1 1 2,1,1 1,1,1 0 0 7\nG 0 1 1 1\n"),
		"kernel second has grid 2,1,1, block 1,1,1, 0 bytes of shared memory instead of grid "
		"1,1,1, block 1,1,1, 0 bytes of shared memory");
	assert_string_equal(difference(one, "N 1 0 1,1,1 1,1,1 0 0 7\nG 0 1 1 1\n"),
			    "a launch of a graph of 1 kernels instead of 2");
}

static void parameters_count_unless_they_vary_alone(void **state)
{
	struct verify_trace first = trace_of("L 0 1 1 0 1,1,1 1,1,1 0 0 7\nL 1 1 1 1 1,1,1 1,1,1 0 0 7\n");
	struct verify_trace again = trace_of("L 0 1 1 0 1,1,1 1,1,1 0 0 8\nL 1 1 1 1 1,1,1 1,1,1 0 0 7\n");
	struct verify_trace shared = trace_of("L 0 1 1 0 1,1,1 1,1,1 0 0 9\nL 1 1 1 1 1,1,1 1,1,1 0 0 9\n");
	struct verify_difference found;
	char text[256];

	(void)state;
	assert_int_equal(verify_compare(&first, &again, &found), 0);
	assert_int_equal(found.way, VERIFY_PARAMETERS);
	assert_int_equal(verify_loosen(&first, &again), 1);
	assert_int_equal(verify_compare(&first, &again, &found), 0);
	assert_int_equal(found.way, VERIFY_SAME);
	assert_int_equal(verify_compare(&first, &shared, &found), 0);
	assert_string_equal(verify_say(&found, &first, &shared, text, sizeof(text)),
			    "kernel second has other parameters");
	verify_free(&first);
	verify_free(&again);
	verify_free(&shared);
}

static void unknown_parameters_are_not_compared(void **state)
{
	(void)state;
	assert_string_equal(difference("L 0 1 1 0 1,1,1 1,1,1 0 0 -\n", "L 0 1 1 0 1,1,1 1,1,1 0 0 7\n"), "");
}

static void a_part_of_a_last_line_is_left_out(void **state)
{
	(void)state;
	assert_string_equal(
		difference("L 0 1 1 0 1,1,1 1,1,1 0 0 7\n", "L 0 1 1 0 1,1,1 1,1,1 0 0 7\nL 1 1 1"), "");
}

static void what_is_no_trace_is_refused(void **state)
{
	(void)state;
	assert_refused("", "not complete");
	assert_refused("belfry-trace 2\n", "not a trace of this version");
	assert_refused(TRACE_HEAD "L 0 1 1 0 1,1,1 1,1,1 0 0 7\n", "line 2");
	assert_refused(TRACE_HEAD NAMES "L 0 1 1 2 1,1,1 1,1,1 0 0 7\n", "line 4");
	assert_refused(TRACE_HEAD NAMES "L 0 1 1 0 1,1,1 1,1,1 0 7\n", "line 4");
	assert_refused(TRACE_HEAD "F 1 name\n", "line 2");
	assert_refused(TRACE_HEAD "G 0 1 1 ffffffff\n", "line 2");
	assert_refused(TRACE_HEAD "C 0 1 1 10\n", "line 2");
	assert_refused(TRACE_HEAD "C 00000000000000000 1 1 10 1\n", "line 2");
	assert_refused(TRACE_HEAD "X 0\n", "line 2");
	assert_refused(TRACE_HEAD "\n", "line 2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_traces_are_equal),
		cmocka_unit_test(a_shape_names_its_kernel),
		cmocka_unit_test(content_names_the_kernel_before_it),
		cmocka_unit_test(what_one_run_lacks_is_told),
		cmocka_unit_test(streams_are_matched_by_what_they_did),
		cmocka_unit_test(threads_on_one_stream_may_race),
		cmocka_unit_test(work_may_move_between_threads),
		cmocka_unit_test(order_on_one_stream_counts),
		cmocka_unit_test(lines_of_copies_may_come_late),
		cmocka_unit_test(a_graph_names_the_node_that_differs),
		cmocka_unit_test(parameters_count_unless_they_vary_alone),
		cmocka_unit_test(unknown_parameters_are_not_compared),
		cmocka_unit_test(a_part_of_a_last_line_is_left_out),
		cmocka_unit_test(what_is_no_trace_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

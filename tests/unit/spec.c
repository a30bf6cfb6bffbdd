/* spec: what people say a vGPU is to be, and the one line they get when it is wrong. */
#include "client/spec.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void names_are_short_lower_case_and_plain(void **state)
{
	static const char *const good[] = { "a", "0", "train", "python3-4711", "a.b_c-d", "7up" };
	static const char *const bad[] = {
		"", ".", "..", "-x", "_x", ".x", "A", "a/b", "../x", "a b", "a\n", "\xc3\xa9", "a%s", "a\"b",
	};
	struct bf_error err = { 0 };
	char longest[66];

	(void)state;
	for (size_t i = 0; i < COUNT(good); i++)
		assert_int_equal(spec_check_name(good[i], NULL), 0);
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(spec_check_name(bad[i], &err), -EINVAL);
	memset(longest, 'x', sizeof(longest));
	longest[64] = 0;
	assert_int_equal(spec_check_name(longest, &err), -EINVAL);
	assert_non_null(strstr(err.text, "1 to 63"));
	longest[63] = 0;
	assert_int_equal(spec_check_name(longest, NULL), 0);
}

static void names_of_jobs_are_a_prefix_and_a_number(void **state)
{
	(void)state;
	assert_true(spec_is_of_job("slurm-42"));
	assert_false(spec_is_of_job("slurm-"));
	assert_false(spec_is_of_job("slurm-4a"));
	assert_false(spec_is_of_job("slurm"));
	assert_false(spec_is_of_job("a-slurm-4"));
}

static void time_is_exact_to_the_millionth(void **state)
{
	static const struct {
		const char *text;
		uint32_t request_ppm, limit_ppm;
		const char *back;
	} good[] = {
		{ "40:100", 400000, 1000000, "40:100" },
		{ "40", 400000, 1000000, "40:100" },
		{ "0", 0, 1000000, "0:100" },
		{ "0:0.0001", 0, 1, "0:0.0001" },
		{ "33.3333:100", 333333, 1000000, "33.3333:100" },
		{ "0.5:12.25", 5000, 122500, "0.5:12.25" },
		{ "10.10:50.0000", 101000, 500000, "10.1:50" },
		{ "100:100", 1000000, 1000000, "100:100" },
		{ "007:50", 70000, 500000, "7:50" },
		{ "50:50", 500000, 500000, "50:50" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(good); i++) {
		struct spec spec = spec_default;
		struct bf_error err = { 0 };
		uint32_t parts = 0;
		char back[32];

		if (spec_parse(&spec, &parts, "time", good[i].text, &err))
			fail_msg("'%s' was refused: %s", good[i].text, err.text);
		assert_int_equal(spec.request_ppm, good[i].request_ppm);
		assert_int_equal(spec.limit_ppm, good[i].limit_ppm);
		assert_int_equal(parts, SPEC_TIME);
		assert_string_equal(spec_format_time(&spec, back, sizeof(back)), good[i].back);
	}
}

static void every_millionth_comes_back_as_it_was(void **state)
{
	(void)state;
	for (uint32_t ppm = 1; ppm <= SPEC_WHOLE_PPM; ppm += 7) {
		struct spec spec = { .request_ppm = ppm, .limit_ppm = SPEC_WHOLE_PPM }, back = { 0 };
		uint32_t parts = 0;
		char text[32];

		spec_format_time(&spec, text, sizeof(text));
		if (spec_parse(&back, &parts, "time", text, NULL))
			fail_msg("'%s' was refused", text);
		assert_int_equal(back.request_ppm, ppm);
	}
}

/* Refused with that in the message, the value named, and nothing changed. */
static void assert_refused(const char *key, const char *value, const char *text)
{
	struct spec spec = spec_default;
	struct bf_error err = { 0 };
	uint32_t parts = 0;

	if (spec_parse(&spec, &parts, key, value, &err) >= 0)
		fail_msg("%s '%s' was taken", key, value);
	if (!strstr(err.text, text))
		fail_msg("%s '%s': '%s' does not say '%s'", key, value, err.text, text);
	assert_null(strchr(err.text, '\n'));
	assert_int_equal(parts, 0);
	assert_memory_equal(&spec, &spec_default, sizeof(spec));
}

static void time_refuses_what_makes_no_sense(void **state)
{
	static const char *const bad[] = {
		"",   "x",  "40:",  ":100",    "40:x", "-1",  "+1",  "40:100:3", "40 :100",  "40%",
		".5", "5.", "5.:9", "1e1:100", "0x10", "nan", "inf", "40:-1",	 "40,5:100",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_refused("time", bad[i], "REQUEST:LIMIT");
	assert_refused("time", "33.33333:100", "four decimals");
	assert_refused("time", "33:66.66666", "four decimals");
	assert_refused("time", "33:66.66660", "four decimals");
	assert_refused("time", "101", "time '101': more than all");
	assert_refused("time", "40:100.0001", "more than all");
	assert_refused("time", "99999999999999999999", "more than all");
	assert_refused("time", "0:0", "time '0:0'");
	assert_refused("time", "0:0.0000", "limit of 0");
	assert_refused("time", "50:40", "time '50:40'");
	assert_refused("time", "50.5:40.25", "50.5 percent, is above the limit, 40.25 percent");
}

static void objective_is_a_percentile_and_a_time(void **state)
{
	static const struct {
		const char *text;
		uint32_t percentile_ppm;
		uint64_t us;
	} good[] = {
		{ "p99=2ms", 990000, 2000 },	       { "p50=1us", 500000, 1 },
		{ "p99.99=1s", 999900, 1000000 },      { "p99.9=1500us", 999000, 1500 },
		{ "p95=86400s", 950000, 86400000000 },
	};
	struct spec spec = spec_default;
	uint32_t parts = 0;
	char back[32];

	(void)state;
	assert_string_equal(spec_format_objective(&spec, back, sizeof(back)), "-");
	for (size_t i = 0; i < COUNT(good); i++) {
		struct bf_error err = { 0 };

		if (spec_parse(&spec, &parts, "objective", good[i].text, &err))
			fail_msg("'%s' was refused: %s", good[i].text, err.text);
		assert_int_equal(spec.percentile_ppm, good[i].percentile_ppm);
		assert_int_equal(spec.objective_us, good[i].us);
		assert_string_equal(spec_format_objective(&spec, back, sizeof(back)), good[i].text);
	}
	assert_int_equal(parts, SPEC_OBJECTIVE);
	assert_int_equal(spec_parse(&spec, &parts, "objective", "none", NULL), 0);
	assert_int_equal(spec.percentile_ppm, 0);
	assert_int_equal(spec.objective_us, 0);
}

static void objective_refuses_the_rest(void **state)
{
	static const char *const bad[] = { "",	      "99=2ms", "p=2ms",	 "p99",
					   "p99:2ms", "px=2ms", "p99.99999=2ms", "None" };
	static const char *const beyond[] = { "p49.9999=2ms", "p0=2ms", "p99.991=2ms", "p100=2ms",
					      "p101=2ms" };

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_refused("objective", bad[i], "p99=2ms");
	for (size_t i = 0; i < COUNT(beyond); i++)
		assert_refused("objective", beyond[i], "p50 to p99.99");
	assert_refused("objective", "p99=", "time ''");
	assert_refused("objective", "p99=0ms", "time '0ms'");
	assert_refused("objective", "p99=2h", "time '2h'");
}

static void other_parts_are_words_and_units(void **state)
{
	struct spec spec = spec_default;
	uint32_t parts = 0;

	(void)state;
	assert_int_equal(spec_parse(&spec, &parts, "mem", "40G", NULL), 0);
	assert_int_equal(spec.mem_bytes, 40ull << 30);
	assert_int_equal(spec_parse(&spec, &parts, "class", "latency", NULL), 0);
	assert_int_equal(spec.class, SPEC_LATENCY);
	assert_int_equal(spec_parse(&spec, &parts, "class", "throughput", NULL), 0);
	assert_int_equal(spec.class, SPEC_THROUGHPUT);
	assert_int_equal(spec_parse(&spec, &parts, "domain", "team-a", NULL), 0);
	assert_string_equal(spec.domain, "team-a");
	assert_int_equal(spec_parse(&spec, &parts, "domain", "none", NULL), 0);
	assert_string_equal(spec.domain, "");
	assert_int_equal(spec_parse(&spec, &parts, "domain", "team-a", NULL), 0);
	assert_int_equal(spec_parse(&spec, &parts, "timeslice", "200us", NULL), 0);
	assert_int_equal(spec.timeslice_us, 200);
	assert_int_equal(spec_parse(&spec, &parts, "interleave", "high", NULL), 0);
	assert_int_equal(spec.interleave, 2);
	assert_int_equal(spec_parse(&spec, &parts, "public", "yes", NULL), 0);
	assert_int_equal(spec.is_public, 1);
	assert_int_equal(spec_parse(&spec, &parts, "public", "no", NULL), 0);
	assert_int_equal(spec.is_public, 0);
	assert_int_equal(parts, SPEC_MEM | SPEC_CLASS | SPEC_DOMAIN | SPEC_TIMESLICE | SPEC_INTERLEAVE |
					SPEC_PUBLIC);
	assert_refused("mem", "5X", "size '5X'");
	assert_refused("class", "fast", "class 'fast': not latency or throughput");
	assert_refused("domain", "A", "domain 'A'");
	assert_refused("timeslice", "5", "time '5'");
	assert_refused("interleave", "7", "not low, medium or high");
	assert_refused("public", "maybe", "public 'maybe': not yes or no");
	assert_refused("colour", "red", "'colour': unknown");
}

static void merge_takes_what_was_said_and_no_more(void **state)
{
	static const char *const said[][2] = { { "mem", "1G" },		{ "time", "10:50" },
					       { "class", "latency" },	{ "objective", "p99=2ms" },
					       { "domain", "d" },	{ "timeslice", "1ms" },
					       { "interleave", "low" }, { "public", "yes" },
					       { "sm", "25:50" } };
	struct spec all = spec_default, to = spec_default;
	uint32_t parts = 0;

	(void)state;
	for (size_t i = 0; i < COUNT(said); i++)
		assert_int_equal(spec_parse(&all, &parts, said[i][0], said[i][1], NULL), 0);
	spec_merge(&to, &all, 0);
	assert_memory_equal(&to, &spec_default, sizeof(to));
	for (size_t i = 0; i < COUNT(said); i++) {
		struct spec one = spec_default, same = spec_default;
		uint32_t part = 0;

		assert_int_equal(spec_parse(&one, &part, said[i][0], said[i][1], NULL), 0);
		spec_merge(&same, &all, part);
		assert_memory_equal(&same, &one, sizeof(one));
	}
	spec_merge(&to, &all, parts);
	assert_memory_equal(&to, &all, sizeof(to));
}

static void assert_unsound(const struct spec *spec, const char *text)
{
	struct bf_error err = { 0 };

	if (spec_check(spec, &err) >= 0)
		fail_msg("a spec with a wrong %s was taken", text);
	if (!strstr(err.text, text))
		fail_msg("'%s' does not say '%s'", err.text, text);
}

static void check_refuses_what_parse_would_not_make(void **state)
{
	struct spec spec = spec_default;

	(void)state;
	assert_int_equal(spec_check(&spec, NULL), 0);
	spec.mem_bytes = UINT64_MAX;
	assert_unsound(&spec, "memory limit");
	spec = spec_default;
	spec.request_ppm = SPEC_WHOLE_PPM + 1;
	assert_unsound(&spec, "more than all");
	spec = spec_default;
	spec.limit_ppm = UINT32_MAX;
	assert_unsound(&spec, "more than all");
	spec = spec_default;
	spec.limit_ppm = 0;
	assert_unsound(&spec, "limit of 0");
	spec = spec_default;
	spec.request_ppm = 500000;
	spec.limit_ppm = 400000;
	assert_unsound(&spec, "50 percent, is above the limit, 40 percent");
	spec = spec_default;
	spec.class = 2;
	assert_unsound(&spec, "class 2");
	spec = spec_default;
	spec.timeslice_us = UINT64_MAX;
	assert_unsound(&spec, "timeslice");
	spec = spec_default;
	spec.interleave = 3;
	assert_unsound(&spec, "interleave level 3");
	spec.interleave = -2;
	assert_unsound(&spec, "interleave level -2");
	spec = spec_default;
	spec.is_public = 2;
	assert_unsound(&spec, "public 2");
	spec = spec_default;
	memset(spec.domain, 'x', sizeof(spec.domain));
	assert_unsound(&spec, "does not end");
	snprintf(spec.domain, sizeof(spec.domain), "../x");
	assert_unsound(&spec, "not a name");
}

static void objective_goes_with_class_latency_only(void **state)
{
	struct spec spec = spec_default;
	uint32_t parts = 0;

	(void)state;
	assert_int_equal(spec_parse(&spec, &parts, "objective", "p99=2ms", NULL), 0);
	assert_unsound(&spec, "objective 'p99=2ms': it goes with class latency only");
	assert_int_equal(spec_parse(&spec, &parts, "class", "latency", NULL), 0);
	assert_int_equal(spec_check(&spec, NULL), 0);
	spec.percentile_ppm = 0;
	assert_unsound(&spec, "objective");
	spec.percentile_ppm = 1000000;
	assert_unsound(&spec, "objective");
	spec.percentile_ppm = 990000;
	spec.objective_us = 0;
	assert_unsound(&spec, "objective");
	spec.objective_us = UINT64_MAX;
	assert_unsound(&spec, "objective");
}

static void a_difference_names_the_parts_that_differ(void **state)
{
	struct spec spec = spec_default, other = { .mem_bytes = 1,
						   .request_ppm = 1,
						   .limit_ppm = 2,
						   .class = SPEC_LATENCY,
						   .percentile_ppm = 990000,
						   .objective_us = 3,
						   .timeslice_us = 4,
						   .interleave = 1,
						   .is_public = 1,
						   .sm_request_ppm = 5,
						   .sm_limit_ppm = 6,
						   .domain = "pool" };

	(void)state;
	assert_int_equal(spec_difference(&spec, &spec), 0);
	for (uint32_t parts = 0; parts <= SPEC_ALL; parts++) {
		spec = spec_default;
		spec_merge(&spec, &other, parts);
		assert_int_equal(spec_difference(&spec_default, &spec), parts);
		assert_int_equal(spec_difference(&spec, &other), SPEC_ALL & ~parts);
	}
	/* Half a part is a part. */
	spec = spec_default;
	spec.limit_ppm--;
	assert_int_equal(spec_difference(&spec, &spec_default), SPEC_TIME);
	spec = spec_default;
	spec.objective_us++;
	assert_int_equal(spec_difference(&spec, &spec_default), SPEC_OBJECTIVE);
	spec = spec_default;
	spec.sm_limit_ppm++;
	assert_int_equal(spec_difference(&spec, &spec_default), SPEC_SM);
}

static void sm_is_a_part_of_the_sms_of_a_domain(void **state)
{
	struct spec spec = spec_default;
	uint32_t parts = 0;
	char text[64];

	(void)state;
	assert_false(spec_has_sm(&spec));
	assert_string_equal(spec_format_part(&spec, SPEC_SM, text, sizeof(text)), "none");
	assert_int_equal(spec_parse(&spec, &parts, "sm", "25:62.5", NULL), 0);
	assert_int_equal(parts, SPEC_SM);
	assert_int_equal(spec.sm_request_ppm, 250000);
	assert_int_equal(spec.sm_limit_ppm, 625000);
	assert_true(spec_has_sm(&spec));
	assert_string_equal(spec_format_part(&spec, SPEC_SM, text, sizeof(text)), "25:62.5");
	assert_unsound(&spec,
		       "sm '25:62.5': it divides the SMs among the vGPUs of a domain; name the domain");
	assert_int_equal(spec_parse(&spec, &parts, "domain", "pool", NULL), 0);
	assert_int_equal(spec_check(&spec, NULL), 0);
	/* The limit is all of them where it is left out, and a request of nothing is one. */
	assert_int_equal(spec_parse(&spec, &parts, "sm", "0", NULL), 0);
	assert_int_equal(spec.sm_request_ppm, 0);
	assert_int_equal(spec.sm_limit_ppm, SPEC_WHOLE_PPM);
	assert_true(spec_has_sm(&spec));
	assert_int_equal(spec_parse(&spec, &parts, "sm", "none", NULL), 0);
	assert_false(spec_has_sm(&spec));
	assert_int_equal(spec_check(&spec, NULL), 0);
	assert_refused("sm", "",
		       "sm '': not REQUEST:LIMIT in percent of the GPU's SMs; write for example 25:100");
	assert_refused("sm", "50:40", "sm '50:40': the request, 50 percent, is above the limit, 40 percent");
	assert_refused("sm", "101", "sm '101': more than all of it");
	assert_refused("sm", "10:0", "sm '10:0': with a limit of 0 nothing would ever run");
	assert_refused("sm", "1.00001", "more than four decimals");
}

static void check_refuses_sms_that_parse_would_not_make(void **state)
{
	struct spec spec = spec_default;

	(void)state;
	snprintf(spec.domain, sizeof(spec.domain), "pool");
	spec.sm_request_ppm = 1;
	assert_unsound(&spec, "sm '0.0001:0': with a limit of 0");
	spec.sm_limit_ppm = UINT32_MAX;
	assert_unsound(&spec, "more than all");
	spec.sm_limit_ppm = 1;
	assert_int_equal(spec_check(&spec, NULL), 0);
	spec.sm_request_ppm = 2;
	assert_unsound(&spec, "is above the limit");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_short_lower_case_and_plain),
		cmocka_unit_test(names_of_jobs_are_a_prefix_and_a_number),
		cmocka_unit_test(time_is_exact_to_the_millionth),
		cmocka_unit_test(every_millionth_comes_back_as_it_was),
		cmocka_unit_test(time_refuses_what_makes_no_sense),
		cmocka_unit_test(objective_is_a_percentile_and_a_time),
		cmocka_unit_test(objective_refuses_the_rest),
		cmocka_unit_test(other_parts_are_words_and_units),
		cmocka_unit_test(merge_takes_what_was_said_and_no_more),
		cmocka_unit_test(check_refuses_what_parse_would_not_make),
		cmocka_unit_test(objective_goes_with_class_latency_only),
		cmocka_unit_test(a_difference_names_the_parts_that_differ),
		cmocka_unit_test(sm_is_a_part_of_the_sms_of_a_domain),
		cmocka_unit_test(check_refuses_sms_that_parse_would_not_make),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* units: what people type for sizes, times and numbers, and the one line they get when it is wrong. */
#include "base/units.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void size_takes_bytes_and_powers_of_1024(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "1", 1 },
		{ "4096", 4096 },
		{ "007", 7 },
		{ "1B", 1 },
		{ "1K", 1024 },
		{ "1k", 1024 },
		{ "1KB", 1024 },
		{ "1KiB", 1024 },
		{ "512M", 512ull << 20 },
		{ "8G", 8ull << 30 },
		{ "8g", 8ull << 30 },
		{ "8GiB", 8ull << 30 },
		{ "1T", 1ull << 40 },
		{ "8191T", 8191ull << 40 },
		{ "9007199254740991", 9007199254740991ull },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(good); i++) {
		struct bf_error err = { 0 };
		uint64_t bytes = 0;

		if (bf_parse_size(good[i].text, &bytes, &err))
			fail_msg("'%s' was refused: %s", good[i].text, err.text);
		assert_int_equal(bytes, good[i].bytes);
	}
}

static void size_takes_decimals_that_are_whole_bytes(void **state)
{
	char text[32];
	uint64_t bytes;

	(void)state;
	assert_int_equal(bf_parse_size("1.5GiB", &bytes, NULL), 0);
	assert_int_equal(bytes, 3ull << 29);
	assert_int_equal(bf_parse_size("0.5K", &bytes, NULL), 0);
	assert_int_equal(bytes, 512);
	assert_int_equal(bf_parse_size("2.0", &bytes, NULL), 0);
	assert_int_equal(bytes, 2);
	/* Every eighth has an exact decimal of three digits: all of them are whole bytes and must be taken. */
	for (unsigned eighths = 1; eighths < 8 * 64; eighths++) {
		struct bf_error err = { 0 };

		snprintf(text, sizeof(text), "%u.%03uG", eighths / 8, eighths % 8 * 125);
		if (bf_parse_size(text, &bytes, &err))
			fail_msg("'%s' was refused: %s", text, err.text);
		assert_int_equal(bytes, (uint64_t)eighths << 27);
	}
}

static void assert_size_is_refused(const char *text, int code)
{
	struct bf_error err = { 0 };
	uint64_t bytes = 77;

	if (bf_parse_size(text, &bytes, &err) != -code)
		fail_msg("'%s': %d was expected, not %d (%s)", text, code, err.code, err.text);
	assert_int_equal(bytes, 77);
	assert_int_equal(err.code, code);
	/* One line that names what was typed. */
	assert_non_null(strstr(err.text, "size '"));
	assert_null(strchr(err.text, '\n'));
	if (strlen(text) < 100)
		assert_non_null(strstr(err.text, text));
}

static void size_refuses_what_is_not_a_positive_number(void **state)
{
	static const char *const bad[] = {
		"",    "-1",  "-1G", "+1",   "abc", "G",  ".5G", "5.",	 "5.G", "0",	 "0G",
		"0.0", "nan", "inf", "0x10", " 1",  "1 ", "1 G", "1,5G", "--1", "1.2.3",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_size_is_refused(bad[i], EINVAL);
}

static void size_refuses_unknown_units(void **state)
{
	static const char *const bad[] = {
		"5X",  "5P",  "5E",  "5b",    "5GG", "5GiBs", "5Gi",
		"5iB", "5G8", "1e9", "1e400", "5%",  "5KM",   "1KBB",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_size_is_refused(bad[i], EINVAL);
}

static void size_is_rounded_down_to_whole_bytes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "1.1G", 1181116006 },
		{ "1.5", 1 },
		{ "1.9B", 1 },
		{ "1.0001K", 1024 },
		{ "0.3M", 314572 },
		{ "7.7T", 8466239533875ull },
		{ "0.33333333333333333T", 366503875925ull },
		{ "8191.99999999999999T", (1ull << 53) - 1 },
		{ "9007199254740991.9", (1ull << 53) - 1 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(good); i++) {
		struct bf_error err = { 0 };
		uint64_t bytes = 0;

		if (bf_parse_size(good[i].text, &bytes, &err))
			fail_msg("'%s' was refused: %s", good[i].text, err.text);
		if (bytes != good[i].bytes)
			fail_msg("'%s': %llu bytes", good[i].text, (unsigned long long)bytes);
	}
}

static void size_refuses_less_than_a_byte(void **state)
{
	static const char *const bad[] = { "0.5", "0.0001K", "0.0000000000001T", "0.9B" };

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_size_is_refused(bad[i], EINVAL);
}

static void size_refuses_the_huge(void **state)
{
	char digits[512];

	(void)state;
	assert_size_is_refused("8192T", ERANGE);
	assert_size_is_refused("9007199254740992", ERANGE);
	assert_size_is_refused("18446744073709551615", ERANGE);
	assert_size_is_refused("18446744073709551617", ERANGE);
	assert_size_is_refused("99999999999999999999999999999999999999T", ERANGE);
	memset(digits, '9', sizeof(digits) - 1);
	digits[sizeof(digits) - 1] = 0;
	assert_size_is_refused(digits, ERANGE);
}

static void time_takes_microseconds_to_seconds(void **state)
{
	static const struct {
		const char *text;
		uint64_t us;
	} good[] = {
		{ "1us", 1 },
		{ "200us", 200 },
		{ "2ms", 2000 },
		{ "1s", 1000000 },
		{ "1.5s", 1500000 },
		{ "0.5ms", 500 },
		{ "0.001ms", 1 },
		{ "0.000001s", 1 },
		{ "300ms", 300000 },
		{ "86400s", 86400000000 },
		{ "86400000ms", 86400000000 },
	};
	char text[32];
	uint64_t us;

	(void)state;
	for (size_t i = 0; i < COUNT(good); i++) {
		struct bf_error err = { 0 };

		if (bf_parse_time(good[i].text, &us, &err))
			fail_msg("'%s' was refused: %s", good[i].text, err.text);
		assert_int_equal(us, good[i].us);
	}
	/* Every whole number of microseconds can be written in milliseconds. */
	for (unsigned i = 1; i < 20000; i++) {
		struct bf_error err = { 0 };

		snprintf(text, sizeof(text), "%u.%03ums", i / 1000, i % 1000);
		if (bf_parse_time(text, &us, &err))
			fail_msg("'%s' was refused: %s", text, err.text);
		assert_int_equal(us, i);
	}
}

static void time_refuses_the_rest(void **state)
{
	static const char *const bad[] = {
		"",	"0us",	"0s",	 "-1us",  "5",	      "1m",    "1h",	 "1min", "us",	 "ms",
		"1usx", "1 us", "0.5us", "1.5us", "0.0001ms", "1e3us", "1e400s", "abc",	 "0x1s", "1US",
	};
	static const char *const huge[] = { "86401s", "86400000001us", "99999999999999999999s" };
	uint64_t us = 77;

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct bf_error err = { 0 };

		if (bf_parse_time(bad[i], &us, &err) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
		assert_non_null(strstr(err.text, "time '"));
		assert_null(strchr(err.text, '\n'));
	}
	for (size_t i = 0; i < COUNT(huge); i++)
		assert_int_equal(bf_parse_time(huge[i], &us, NULL), -ERANGE);
	assert_int_equal(us, 77);
}

static void number_is_between_its_bounds(void **state)
{
	static const char *const bad[] = {
		"", "x", "-1", "+1", " 1", "1 ", "0x1", "1.0", "254", "99999999999999999999", "1e1",
	};
	long value;

	(void)state;
	assert_int_equal(bf_parse_number("--gpu", "0", 0, 253, &value, NULL), 0);
	assert_int_equal(value, 0);
	assert_int_equal(bf_parse_number("--gpu", "253", 0, 253, &value, NULL), 0);
	assert_int_equal(value, 253);
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct bf_error err = { 0 };

		if (bf_parse_number("--gpu", bad[i], 0, 253, &value, &err) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
		assert_non_null(strstr(err.text, "--gpu '"));
		assert_non_null(strstr(err.text, "from 0 to 253"));
	}
}

static void format_is_for_people(void **state)
{
	char to[24];

	(void)state;
	assert_string_equal(bf_format_size(0, to, sizeof(to)), "0 B");
	assert_string_equal(bf_format_size(1023, to, sizeof(to)), "1023 B");
	assert_string_equal(bf_format_size(1024, to, sizeof(to)), "1 KiB");
	assert_string_equal(bf_format_size(15ull << 29, to, sizeof(to)), "7.50 GiB");
	assert_string_equal(bf_format_size(8ull << 30, to, sizeof(to)), "8 GiB");
	/* The longest there is fits into the least room that is promised. */
	char least[16];
	for (unsigned shift = 0; shift < 53; shift++)
		assert_true(strlen(bf_format_size((1ull << shift) - 1, least, sizeof(least))) <
			    sizeof(least) - 1);
}

static void error_text_is_cut_not_overrun(void **state)
{
	char text[2000];
	struct bf_error err = { 0 };
	uint64_t bytes;

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	assert_int_equal(bf_fail(&err, EINVAL, "%s", text), -EINVAL);
	assert_true(strlen(err.text) == sizeof(err.text) - 1);
	/* A long value does not displace the reason. */
	assert_int_equal(bf_parse_size(text, &bytes, &err), -EINVAL);
	assert_non_null(strstr(err.text, "not a positive number"));
	assert_int_equal(bf_fail(NULL, ENOENT, "nobody reads %d", 1), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(size_takes_bytes_and_powers_of_1024),
		cmocka_unit_test(size_takes_decimals_that_are_whole_bytes),
		cmocka_unit_test(size_refuses_what_is_not_a_positive_number),
		cmocka_unit_test(size_refuses_unknown_units),
		cmocka_unit_test(size_is_rounded_down_to_whole_bytes),
		cmocka_unit_test(size_refuses_less_than_a_byte),
		cmocka_unit_test(size_refuses_the_huge),
		cmocka_unit_test(time_takes_microseconds_to_seconds),
		cmocka_unit_test(time_refuses_the_rest),
		cmocka_unit_test(number_is_between_its_bounds),
		cmocka_unit_test(format_is_for_people),
		cmocka_unit_test(error_text_is_cut_not_overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* base: words at any alignment, rounding, repeated system calls and the limit on open files. */
#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/number.h"
#include "base/process.h"
#include "base/retry.h"

static void words_are_read_and_written_at_any_alignment(void **state)
{
	uint8_t bytes[] = { 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 0xff };

	(void)state;
	assert_int_equal(bf_get16(bytes + 1), 0x0201);
	assert_int_equal(bf_get32(bytes + 1), 0x04030201);
	assert_true(bf_get64(bytes + 1) == 0x0807060504030201ull);
	bf_put32(bytes + 3, 0xa4a3a2a1);
	assert_true(bf_get64(bytes + 1) == 0x0807a4a3a2a10201ull);
	bf_put64(bytes + 1, 0x1817161514131211ull);
	assert_true(bf_get64(bytes + 1) == 0x1817161514131211ull);
	assert_int_equal(bytes[0], 0xff);
	assert_int_equal(bytes[9], 0xff);
}

static void rounding_up_takes_any_multiple(void **state)
{
	(void)state;
	assert_int_equal(bf_round_up(0, 12), 0);
	assert_int_equal(bf_round_up(1, 12), 12);
	assert_int_equal(bf_round_up(12, 12), 12);
	assert_int_equal(bf_round_up(4097, 4096), 8192);
	assert_true(bf_round_up(0xfffffffffull, 0x1000) == 0x1000000000ull);
	assert_true(bf_min(UINT64_MAX, 1) == 1);
	assert_true(bf_min(1, UINT64_MAX) == 1);
}

/* A system call that a signal interrupts `interruptions` times, and that then fails with `code`, or returns 7. */
static long interrupted(int *interruptions, int code)
{
	errno = (*interruptions)-- > 0 ? EINTR : code;
	return errno ? -1 : 7;
}

static void only_an_interrupted_call_is_repeated(void **state)
{
	int interruptions = 2;

	(void)state;
	assert_int_equal(bf_retry(interrupted(&interruptions, 0)), 7);
	assert_int_equal(interruptions, -1);
	interruptions = 1;
	assert_int_equal(bf_retry(interrupted(&interruptions, EAGAIN)), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(interruptions, -1);
}

static void limit_on_files_is_raised_to_the_hard_limit(void **state)
{
	struct rlimit before, lowered, after;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	lowered = (struct rlimit){ before.rlim_max / 2, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lowered), 0);
	bf_raise_file_limit();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
	assert_true(after.rlim_cur == before.rlim_max);
	assert_true(after.rlim_max == before.rlim_max);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_read_and_written_at_any_alignment),
		cmocka_unit_test(rounding_up_takes_any_multiple),
		cmocka_unit_test(only_an_interrupted_call_is_repeated),
		cmocka_unit_test(limit_on_files_is_raised_to_the_hard_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

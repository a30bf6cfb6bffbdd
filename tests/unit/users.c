/* base/users: names in the place of numbers, where people read them. */
#include "base/users.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The libraries' lookup is replaced: users 0 and 1234 have names, and every question is counted. */
#include <pwd.h>
static unsigned asked;
struct passwd *getpwuid(uid_t uid)
{
	static struct passwd root = { .pw_name = "root" }, alice = { .pw_name = "alice" };

	asked++;
	return uid == 0 ? &root : uid == 1234 ? &alice : NULL;
}

static void assert_becomes(const char *text, const char *wanted)
{
	char to[128];

	assert_string_equal(bf_name_users(text, to, sizeof(to)), wanted);
}

static void numbers_become_names_where_there_are_some(void **state)
{
	(void)state;
	assert_becomes("", "");
	assert_becomes("a: belongs to user 0; only that user and root may do that",
		       "a: belongs to user root; only that user and root may do that");
	assert_becomes("served by user 1234, and user 0", "served by user alice, and user root");
	assert_becomes("user 77", "user 77");
	assert_becomes("user 1234", "user alice");
}

static void other_numbers_stay(void **state)
{
	(void)state;
	assert_becomes("the user has 0 vGPUs", "the user has 0 vGPUs");
	assert_becomes("user 0x10 user 0_ user 1234a", "user 0x10 user 0_ user 1234a");
	assert_becomes("user 4294967295 user 99999999999999999999",
		       "user 4294967295 user 99999999999999999999");
	assert_becomes("user ", "user ");
	assert_becomes("user", "user");
}

static void what_does_not_fit_is_cut(void **state)
{
	char to[10];

	(void)state;
	assert_string_equal(bf_name_users("user 1234 is there", to, sizeof(to)), "user alic");
	assert_string_equal(bf_name_users("0123456789", to, sizeof(to)), "012345678");
	assert_string_equal(bf_name_users("user 1234", to, 1), "");
}

static void a_user_is_looked_up_once(void **state)
{
	char to[BF_USER_ROOM];

	(void)state;
	bf_user_text(1234, to, sizeof(to));
	bf_user_text(4321, to, sizeof(to));
	asked = 0;
	for (int i = 0; i < 1000; i++) {
		assert_string_equal(bf_user_text(1234, to, sizeof(to)), "alice");
		assert_string_equal(bf_user_text(4321, to, sizeof(to)), "4321");
	}
	assert_int_equal(asked, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_become_names_where_there_are_some),
		cmocka_unit_test(other_numbers_stay),
		cmocka_unit_test(what_does_not_fit_is_cut),
		cmocka_unit_test(a_user_is_looked_up_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

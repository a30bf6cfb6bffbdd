#include "skipping.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "check.h"

void skip_case(const char *why)
{
	check_skip(why);
	skip();
	abort(); /* skip() does not return, but its declaration does not say so */
}

/* The linker puts this in the place of _cmocka_run_group_tests (--wrap). */
int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
				   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
				   CMFixtureFunction setup, CMFixtureFunction teardown);

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
				   CMFixtureFunction setup, CMFixtureFunction teardown)
{
	int failed = __real__cmocka_run_group_tests(name, tests, count, setup, teardown);

	return failed ? failed : check_status();
}

/* policy_about: what is said of a policy to people, of what belfryd tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/policy.h"
#include "cli/report.h"

/* What is printed about it. */
static const char *told(const char *json)
{
	static char text[1024];
	struct json_object *policy = json_tokener_parse(json);
	FILE *file = tmpfile();
	int out = dup(STDOUT_FILENO);

	assert_non_null(policy);
	assert_non_null(file);
	fflush(stdout);
	assert_return_code(dup2(fileno(file), STDOUT_FILENO), 0);
	policy_about(policy);
	fflush(stdout);
	assert_return_code(dup2(out, STDOUT_FILENO), 0);
	rewind(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	close(out);
	fclose(file);
	json_object_put(policy);
	return text;
}

static void tunables_and_where_maps_are_are_told(void **state)
{
	(void)state;
	assert_string_equal(
		told("{\"tunables\": {\"slice_ns\": 5000000, \"level\": -1, \"all\": 18446744073709551615},"
		     " \"pinned\": \"/sys/fs/bpf/belfry/x\", \"unasked\": []}"),
		"  tunables: slice_ns=5000000 level=-1 all=18446744073709551615\n"
		"  maps: /sys/fs/bpf/belfry/x\n");
	assert_string_equal(told("{\"pinned\": \"not pinned: no bpffs\"}"), "  maps: not pinned: no bpffs\n");
}

static void hooks_that_are_never_asked_are_named(void **state)
{
	(void)state;
	assert_string_equal(
		told("{\"unasked\": [\"tick\", \"preempt\"], \"tunables\": {}, \"pinned\": \"\"}"),
		"  never asked of a vGPU's own policy: tick preempt\n");
}

static void what_an_older_belfryd_does_not_tell_is_left_out(void **state)
{
	(void)state;
	assert_string_equal(told("{}"), "");
	assert_string_equal(told("{\"tunables\": null, \"unasked\": null, \"pinned\": null}"), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tunables_and_where_maps_are_are_told),
		cmocka_unit_test(hooks_that_are_never_asked_are_named),
		cmocka_unit_test(what_an_older_belfryd_does_not_tell_is_left_out),
	};

	return cmocka_run_group_tests_name("policy_about", tests, NULL, NULL);
}

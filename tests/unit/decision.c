/* Decisions in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "replay/decision.h"

static void clamps_are_told_by_name(void **state)
{
	char text[64];

	(void)state;
	assert_string_equal(decision_clamps(0, text, sizeof(text)), "");
	assert_string_equal(decision_clamps(SCHED_CLAMP_SLICE, text, sizeof(text)), "slice");
	assert_string_equal(decision_clamps(SCHED_CLAMP_STOP | SCHED_CLAMP_CHOICE, text, sizeof(text)),
			    "choice,stop");
	assert_string_equal(decision_clamps(~0u, text, sizeof(text)),
			    "choice,promise,slice,space,turns,stop,weight");
	assert_string_equal(decision_clamps(1u << 31, text, sizeof(text)), "");
	assert_string_equal(decision_reason(0), "");
	assert_non_null(strstr(decision_reason(SCHED_CLAMP_TURNS), "the ride was out of range"));
	assert_string_equal(decision_reason(SCHED_CLAMP_SLICE | SCHED_CLAMP_PROMISE),
			    decision_reason(SCHED_CLAMP_PROMISE));
}

static void numbers_mean_what_the_hook_says(void **state)
{
	char text[32];

	(void)state;
	assert_string_equal(decision_value(BELFRY_HOOK_PICK, 2000000, 0, text, sizeof(text)), "2.0 ms");
	assert_string_equal(decision_value(BELFRY_HOOK_PICK, 0, 0, text, sizeof(text)), "");
	assert_string_equal(decision_value(BELFRY_HOOK_TICK, 200, 0, text, sizeof(text)), "200 us");
	assert_string_equal(decision_value(BELFRY_HOOK_PREEMPT, 1, 0, text, sizeof(text)), "stop the holder");
	assert_string_equal(decision_value(BELFRY_HOOK_PREEMPT, 0, 0, text, sizeof(text)),
			    "leave the holder");
	assert_string_equal(decision_value(BELFRY_HOOK_ENQUEUE, 5000000, 2000000, text, sizeof(text)),
			    "due in 3.0 ms");
	assert_string_equal(decision_value(BELFRY_HOOK_INIT, 1, 0, text, sizeof(text)), "");
}

static void what_is_only_told_proposes_nothing(void **state)
{
	(void)state;
	assert_true(decision_proposes(BELFRY_HOOK_PICK));
	assert_false(decision_proposes(BELFRY_HOOK_RUNNING));
	assert_false(decision_proposes(BELFRY_HOOK_VGPU_INIT));
}

static void a_vgpus_own_is_not_asked_what_is_between_vgpus(void **state)
{
	char text[256];

	(void)state;
	assert_true(decision_is_asked(BELFRY_HOOK_PICK, true));
	assert_true(decision_is_asked(BELFRY_HOOK_FAULT, true));
	assert_true(decision_is_asked(BELFRY_HOOK_PREEMPT, false));
	assert_false(decision_is_asked(BELFRY_HOOK_PREEMPT, true));
	assert_false(decision_is_asked(BELFRY_HOOK_TICK, true));
	assert_false(decision_is_asked(BELFRY_HOOK_MEM_PRESSURE, true));
	assert_true(decision_is_asked(BELFRY_HOOK_MODULE_LOAD, false));
	assert_string_equal(decision_own_hooks(text, sizeof(text)),
			    "init, exit, dump, vgpu_init, vgpu_exit, vgpu_set, ctx_init, enqueue, pick, "
			    "running, stopping, mem_alloc, objective_missed, fault, module_load");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clamps_are_told_by_name),
		cmocka_unit_test(numbers_mean_what_the_hook_says),
		cmocka_unit_test(what_is_only_told_proposes_nothing),
		cmocka_unit_test(a_vgpus_own_is_not_asked_what_is_between_vgpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

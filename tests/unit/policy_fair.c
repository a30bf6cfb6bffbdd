/* policies/fair.bpf.c and the built-in policy decide the same: on every table and context that comes up on the simulated
 * GPU, over histories of all kinds. */
#include "policy/policy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sched_trial.h"
#include "skipping.h"

enum { TRIALS = 40, OBJECT_MOST = 1 << 20 };

struct twin {
	struct policy *policy;
	struct sched_policy asked;
	uint64_t picks, preempts, stops, different;
};

/* What it proposes, and what comes of it. That somebody is owed more is another matter. */
static bool is_same_pick(const struct twin *twin, const struct belfry_pick *built_in,
			 const struct belfry_pick *fair)
{
	struct belfry_pick got = *fair;
	uint32_t clamps = sched_clamp_pick(twin->asked.table, &got);

	if (clamps)
		return clamps == SCHED_CLAMP_PROMISE && fair->choice == built_in->choice;
	return got.choice == built_in->choice && got.slice_ns == built_in->slice_ns && !got.units &&
	       got.beside == BELFRY_NOBODY;
}

static void compare_pick(struct twin *twin, struct belfry_pick *built_in, const struct belfry_pick *fair,
			 bool is_proposed)
{
	sched_fair_pick(twin->asked.table, built_in);
	twin->picks++;
	twin->different += is_proposed ? !is_same_pick(twin, built_in, fair)
				       : built_in->choice != BELFRY_NOBODY;
}

static void compare_preempt(struct twin *twin, struct belfry_preempt *built_in,
			    const struct belfry_preempt *fair, bool is_proposed)
{
	sched_fair_preempt(twin->asked.table, built_in);
	twin->preempts++;
	twin->stops += built_in->stop != 0;
	twin->different += !is_proposed || !built_in->stop != !fair->stop;
}

static int ask(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	struct twin *twin = context;
	struct belfry_preempt preempt = { .stop = 0 };
	struct belfry_pick pick = { .choice = 0 };
	int rc;

	if (hook == BELFRY_HOOK_PICK)
		pick = *(const struct belfry_pick *)ctx;
	else if (hook == BELFRY_HOOK_PREEMPT)
		preempt = *(const struct belfry_preempt *)ctx;
	rc = policy_call(twin->policy, hook, ctx, size);
	if (rc < 0)
		fail_msg("%s: %s", policy_hook_name(hook), strerror(-rc));
	if (hook == BELFRY_HOOK_PICK)
		compare_pick(twin, &pick, ctx, rc == BELFRY_PROPOSE);
	else if (hook == BELFRY_HOOK_PREEMPT)
		compare_preempt(twin, &preempt, ctx, rc == BELFRY_PROPOSE);
	return rc;
}

static void no_failure(void *context, const char *why)
{
	(void)context;
	fail_msg("put out: %s", why);
}

static const struct sched_policy *next(void *context, uint64_t *seed)
{
	struct twin *twin = context;

	(void)seed;
	return &twin->asked;
}

static struct policy *load_fair(void)
{
	static uint8_t object[OBJECT_MOST];
	struct bf_error err;
	struct policy *policy;
	size_t bytes;
	FILE *file = fopen(BELFRY_BUILD_DIR "/policies/fair.bpf.o", "re");

	if (!file || policy_is_possible(&err)) {
		const char *why = file ? err.text : "fair.bpf.o was not built";

		if (file)
			fclose(file);
		skip_case(why);
	}
	bytes = fread(object, 1, sizeof(object), file);
	fclose(file);
	/* How long a call takes is not the question here, and the machine may be busy. */
	policy = policy_load(object, bytes, &(struct policy_options){ .budget_ns = 10 * S }, NULL, &err);
	if (!policy)
		fail_msg("%s", err.text);
	return policy;
}

static void fair_decides_as_the_built_in_does(void **state)
{
	struct twin twin = { .policy = load_fair() };
	struct trial_policies policies = { next, &twin };
	struct trial_result result = { .limit = -100 };

	(void)state;
	twin.asked = (struct sched_policy){
		.ask = ask, .fail = no_failure, .context = &twin, .table = policy_table(twin.policy)
	};
	for (unsigned hook = 0; hook < BELFRY_HOOKS; hook++)
		twin.asked.hooks |= (uint32_t)policy_has(twin.policy, (enum belfry_hook)hook) << hook;
	for (uint64_t seed = 1; seed <= TRIALS; seed++) {
		trial_steady(seed, &policies, &result);
		trial_disturbed(seed, &policies, &result);
	}
	print_message("%.0f min: %u picks, %u questions whether to stop, %u yes; %u differ\n",
		      (double)result.virtual_ns / 6e10, (unsigned)twin.picks, (unsigned)twin.preempts,
		      (unsigned)twin.stops, (unsigned)twin.different);
	assert_true(twin.picks > 1000 && twin.preempts > 1000 && twin.stops > 10);
	assert_int_equal(twin.different, 0);
	policy_put(twin.policy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fair_decides_as_the_built_in_does),
	};

	return cmocka_run_group_tests_name("policy_fair", tests, NULL, NULL);
}

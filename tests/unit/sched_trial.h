/* Random workloads on the simulated GPU under policies that mean no good, and what must hold all the same:
 *
 *	limits	nobody has more than its limit over a window, and one point
 *	token	two who may not never have it together (sched_sim.c)
 *	promise	who wants the GPU all the time has, of what the GPU ran for anybody, at least its request (over the sum of all
 *		weights where that is more than the whole, since those without a request have theirs), less its request's part of
 *		a quarter of a window, which may be owed to it, and of a round, which another's slice may be; and less the
 *		switches to it
 *	hunger	nobody waits for longer than two windows, or two rounds for everybody, and then as long as under the built-in
 *	work	every kernel submitted comes to its end */
#ifndef BELFRY_TESTS_SCHED_TRIAL_H
#define BELFRY_TESTS_SCHED_TRIAL_H

#include "sched_sim.h"

/* What trials find does not depend on the sanitizers, which look for something else: so many times fewer are enough. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TRIAL_FEWER = 8 };
#else
enum { TRIAL_FEWER = 1 };
#endif

struct trial_policies {
	/* Another one, or NULL: the built-in. It is good until the next is asked for. */
	const struct sched_policy *(*next)(void *context, uint64_t *seed);
	void *context;
};

struct trial_result {
	uint64_t virtual_ns, handovers;
	/* The worst of each, of what is allowed. */
	double promise, hunger;
	double limit; /* points above it */
};

/* Shares stay as they are, policies change: limits, token, promise, and hunger where one policy stays. */
void trial_steady(uint64_t seed, const struct trial_policies *policies, struct trial_result *result);
/* Everything changes, all the time: token, work. */
void trial_disturbed(uint64_t seed, const struct trial_policies *policies, struct trial_result *result);

#endif

/* sched: whatever a policy proposes, limits and promises hold, nobody starves, and nothing is lost. */
#include "sched/sched.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sched_trial.h"

/* Policies that mean no good, each in its way. */
enum kind {
	RANDOM,	  /* any proposal that there is */
	NONSENSE, /* any bytes, also over what it was told */
	SAME,	  /* always one and the same */
	GREEDY,	  /* whoever has had the most */
	SHORTEST, /* slices of nothing */
	LONGEST,  /* slices without end, for the same two */
	RIDE_ALL, /* nobody needs a token */
	RIDE_ONE, /* one does not, and its turns never end */
	FICKLE,	  /* all ride and all do not, in turn */
	HEAVY,	  /* one weighs everything, the others nothing */
	STOPPER,  /* stops whoever begins */
	FAILING,  /* now and then it fails */
	KINDS,
};

struct hostile {
	enum kind kind;
	uint64_t seed, favourite, asked;
	unsigned failed;
	struct belfry_vgpu table[BELFRY_VGPUS_MAX];
};

static bool is_favourite(const struct hostile *hostile, uint32_t entry)
{
	return hostile->table[entry].id % 4 == hostile->favourite % 4;
}

static uint32_t entry_with_most(const struct hostile *hostile, const struct belfry_head *head, bool by_id)
{
	uint32_t most = BELFRY_NOBODY;

	for (uint32_t i = 0; i < head->count; i++) {
		const struct belfry_vgpu *v = &hostile->table[i], *w = &hostile->table[most];

		if (!(v->flags & BELFRY_MAY_HAVE))
			continue;
		if (most == BELFRY_NOBODY || (by_id ? is_favourite(hostile, i) : v->gpu_ns > w->gpu_ns))
			most = i;
	}
	return most;
}

static void pick(struct hostile *hostile, struct belfry_pick *ctx)
{
	uint64_t *seed = &hostile->seed;

	ctx->choice = entry_with_most(hostile, &ctx->head, hostile->kind != GREEDY);
	if (hostile->kind == RANDOM || hostile->kind == SHORTEST)
		ctx->choice = (uint32_t)sim_random(seed) % (ctx->head.count + 1);
	if (hostile->kind == RANDOM)
		ctx->beside = (uint32_t)sim_random(seed) % (ctx->head.count + 1);
	if (hostile->kind == SHORTEST)
		ctx->slice_ns = 1;
	else if (hostile->kind == LONGEST || hostile->kind == SAME)
		ctx->slice_ns = UINT64_MAX;
	else
		ctx->slice_ns = sim_random(seed) % 3 ? sim_between(seed, 0, 200 * MS) : 0;
}

static void tick(struct hostile *hostile, struct belfry_tick *ctx)
{
	uint64_t *seed = &hostile->seed;
	bool is_one = is_favourite(hostile, ctx->head.vgpu);

	switch (hostile->kind) {
	case RIDE_ALL:
		ctx->ride = 1;
		ctx->timeslice_us = is_one ? 1000000 : 1;
		ctx->weight_ppm = is_one ? 1000000 : 1;
		break;
	case RIDE_ONE:
		ctx->ride = is_one;
		ctx->timeslice_us = is_one ? UINT64_MAX : 1;
		ctx->interleave = is_one ? 2 : 0;
		ctx->weight_ppm = is_one ? 1000000 : 0;
		break;
	case FICKLE:
		ctx->ride = hostile->asked / 8 % 2 != 0;
		ctx->weight_ppm = hostile->asked % 2 ? 1 : 1000000;
		break;
	case HEAVY:
		ctx->weight_ppm = is_one ? UINT32_MAX : 1;
		break;
	default:
		ctx->ride = (int32_t)sim_between(seed, 0, 2) - 1;
		ctx->timeslice_us = sim_random(seed) % 4 ? 0 : sim_between(seed, 0, 2000000);
		ctx->interleave = (int32_t)sim_between(seed, 0, 3) - 1;
		ctx->weight_ppm = sim_random(seed) % 2 ? 0 : (uint32_t)sim_between(seed, 0, 2000000);
	}
}

static int scribble(struct hostile *hostile, void *ctx, size_t size)
{
	uint8_t *bytes = ctx;

	for (size_t i = 0; i < size; i++)
		if (sim_random(&hostile->seed) % 3)
			bytes[i] =
				(uint8_t)(sim_random(&hostile->seed) % 4 ? sim_random(&hostile->seed) : 255);
	memset(hostile->table, (int)sim_random(&hostile->seed), sizeof(hostile->table));
	return sim_random(&hostile->seed) % 5 ? BELFRY_PROPOSE : BELFRY_DEFAULT;
}

static int ask(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	struct hostile *hostile = context;

	hostile->asked++;
	if (hostile->kind == FAILING && sim_random(&hostile->seed) % 2000 == 0)
		return -EPROTO;
	if (hostile->kind == NONSENSE)
		return scribble(hostile, ctx, size);
	switch (hook) {
	case BELFRY_HOOK_PICK:
		pick(hostile, ctx);
		break;
	case BELFRY_HOOK_TICK:
		tick(hostile, ctx);
		break;
	case BELFRY_HOOK_PREEMPT:
		((struct belfry_preempt *)ctx)->stop = hostile->kind == STOPPER ||
						       sim_random(&hostile->seed) % 2;
		break;
	case BELFRY_HOOK_ENQUEUE:
		((struct belfry_enqueue *)ctx)->deadline_ns = sim_random(&hostile->seed);
		break;
	default:
		break;
	}
	return hostile->kind != HEAVY || hook == BELFRY_HOOK_TICK ? BELFRY_PROPOSE : BELFRY_DEFAULT;
}

static void put_out(void *context, const char *why)
{
	struct hostile *hostile = context;

	assert_string_equal(why, "it left a vGPU without the GPU for too long");
	hostile->failed++;
}

struct villains {
	struct hostile hostile;
	struct sched_policy policy;
	enum kind kind; /* KINDS: any */
	unsigned asked_for;
};

static const struct sched_policy *next(void *context, uint64_t *seed)
{
	struct villains *villains = context;
	unsigned failed = villains->hostile.failed;

	villains->asked_for++;
	if (villains->kind == KINDS && sim_random(seed) % 8 == 0)
		return NULL;
	villains->hostile = (struct hostile){
		.kind = villains->kind == KINDS ? (enum kind)(sim_random(seed) % KINDS) : villains->kind,
		.seed = sim_random(seed),
		.favourite = sim_random(seed),
		.failed = failed,
	};
	villains->policy = (struct sched_policy){
		.hooks = sim_random(seed) % 4 ? ~0u : (uint32_t)sim_random(seed),
		.ask = ask,
		.fail = put_out,
		.context = &villains->hostile,
		.table = villains->hostile.table,
	};
	return &villains->policy;
}

static const char *const names[KINDS + 1] = { "random",	 "nonsense", "same",	 "greedy", "shortest",
					      "longest", "ride all", "ride one", "fickle", "heavy",
					      "stopper", "failing",  "any" };

/* Of each kind, of 9 s each: hours are a matter of patience. */
static unsigned trials(void)
{
	const char *wanted = getenv("BELFRY_TRIALS");

	return wanted ? (unsigned)strtoul(wanted, NULL, 10) : 16 / TRIAL_FEWER;
}

static void print(const struct villains *villains, const struct trial_result *result)
{
	print_message(
		"%-9s %.0f min: promise %.2f, hunger %.2f, limit %+.2f; %u policies, %u put out; hand-overs/s %.0f\n",
		names[villains->kind], (double)result->virtual_ns / 6e10, result->promise, result->hunger,
		result->limit, villains->asked_for, villains->hostile.failed,
		(double)result->handovers * 1e9 / (double)result->virtual_ns);
}

static void limits_and_promises_hold_under_any_policy(void **state)
{
	static struct villains villains;
	struct trial_policies policies = { next, &villains };

	(void)state;
	for (unsigned kind = 0; kind <= KINDS; kind++) {
		struct trial_result result = { .limit = -100 };

		villains = (struct villains){ .kind = (enum kind)kind };
		for (uint64_t seed = 1; seed <= trials(); seed++)
			trial_steady(seed + (uint64_t)kind * 100000, &policies, &result);
		print(&villains, &result);
	}
}

static void nothing_is_lost_when_policies_and_all_else_change(void **state)
{
	static struct villains villains = { .kind = KINDS };
	struct trial_policies policies = { next, &villains };
	struct trial_result result = { .limit = -100 };

	(void)state;
	for (uint64_t seed = 1; seed <= 4ull * trials(); seed++)
		trial_disturbed(seed, &policies, &result);
	print(&villains, &result);
}

/* Of three without a request one is never picked. */
static int leave_out(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	struct hostile *hostile = context;
	struct belfry_pick *proposal = ctx;

	(void)size;
	assert_int_equal(hook, BELFRY_HOOK_PICK);
	for (uint32_t i = 0; i < proposal->head.count; i++)
		if (hostile->table[i].flags & BELFRY_MAY_HAVE && hostile->table[i].id != hostile->favourite)
			proposal->choice = i;
	return BELFRY_PROPOSE;
}

static void who_leaves_somebody_out_is_put_out(void **state)
{
	static struct hostile hostile;
	struct sched_policy policy = { 1u << BELFRY_HOOK_PICK, leave_out, put_out, &hostile, hostile.table };
	struct sched_options options = sched_default;
	struct sched_share none = sim_request(0);
	struct sim_vgpu *last = NULL;
	struct sim *sim;

	(void)state;
	options.how = SCHED_TOKENS;
	sim = sim_new(&options, 90, 12 * S);
	for (unsigned i = 0; i < 3; i++)
		last = sim_add(sim, &none, &sim_busy_load);
	hostile.favourite = sched_id(last->vgpu);
	sim_set_policy(sim, &policy);
	sim_run(sim, 200 * MS);
	sim_mark(sim);
	sim_run(sim, 1700 * MS);
	assert_int_equal(last->ran_ns, 0);
	assert_int_equal(hostile.failed, 0);
	/* Two windows, the time to the next look, and what the built-in would have left to the holder. */
	sim_run(sim, 200 * MS);
	assert_int_equal(hostile.failed, 1);
	assert_true(last->ran_ns > 0);
	sim_mark(sim);
	sim_run(sim, 5 * S);
	for (unsigned i = 0; i < 3; i++)
		sim_assert_near("as under the built-in", sim_share(sim->vgpus[i]), 100.0 / 3, 1.5);
	sim_free(sim);
}

/* In C what fair.bpf.c is in eBPF. */
static int decide_as_the_built_in(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	struct hostile *fair = context;
	struct belfry_pick *proposal = ctx;

	(void)size;
	if (hook == BELFRY_HOOK_PREEMPT) {
		sched_fair_preempt(fair->table, ctx);
		return BELFRY_PROPOSE;
	}
	sched_fair_pick(fair->table, proposal);
	proposal->slice_ns = 0;
	return BELFRY_PROPOSE;
}

/* Also in how slices get shorter as others come: everybody has run as long, and waited as long. */
static void who_decides_as_the_built_in_changes_nothing(void **state)
{
	static struct hostile fair;
	struct sched_policy policy = { 1u << BELFRY_HOOK_PICK | 1u << BELFRY_HOOK_PREEMPT,
				       decide_as_the_built_in, put_out, &fair, fair.table };
	struct sim *sims[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct sched_options options = sched_default;
		struct sched_share request = sim_request(30), none = sim_request(0);

		options.how = SCHED_TOKENS;
		sims[i] = sim_new(&options, 93, 20 * S);
		sim_add(sims[i], &request, &sim_busy_load);
		sim_add(sims[i], &none, &sim_now_and_then);
		sim_add(sims[i], &none, &sim_busy_load);
		sim_set_policy(sims[i], i ? &policy : NULL);
		sim_run(sims[i], 10 * S);
	}
	for (unsigned i = 0; i < sims[0]->count; i++) {
		assert_int_equal(sims[0]->vgpus[i]->ran_ns, sims[1]->vgpus[i]->ran_ns);
		assert_int_equal(sim_seen(sims[0]->vgpus[i])->longest_starve_ns,
				 sim_seen(sims[1]->vgpus[i])->longest_starve_ns);
	}
	assert_int_equal(fair.failed, 0);
	sim_free(sims[0]);
	sim_free(sims[1]);
}

static int leave_it(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	(void)context, (void)hook, (void)ctx, (void)size;
	return BELFRY_DEFAULT;
}

struct asked {
	struct belfry_vgpu table[BELFRY_VGPUS_MAX];
	unsigned calls[BELFRY_HOOKS], most;
};

static int count_calls(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	struct asked *asked = context;
	const struct belfry_head *head = ctx;

	(void)size;
	asked->calls[hook]++;
	asked->most = head->count > asked->most ? head->count : asked->most;
	return BELFRY_DEFAULT;
}

/* However many there are that do nothing, with programs or without. */
static void idle_vgpus_do_not_keep_a_policy_from_being_asked(void **state)
{
	static struct asked asked;
	struct sched_policy policy = { 1u << BELFRY_HOOK_PICK | 1u << BELFRY_HOOK_VGPU_INIT, count_calls,
				       put_out, &asked, asked.table };
	struct sched_share none = sim_request(0), latency = sim_latency(0);
	struct sched_options options = sched_default;
	struct belfry_vgpu_init ctx = { 0 };
	struct sim *sim;

	(void)state;
	options.how = SCHED_TOKENS;
	for (unsigned is_present = 0; is_present < 2; is_present++) {
		asked = (struct asked){ .most = 0 };
		sim = sim_new(&options, 94, 4 * S);
		for (unsigned i = 0; i < BELFRY_VGPUS_MAX + 44; i++)
			sim_set_present(sim_add(sim, &latency, &sim_none), is_present);
		sim_add(sim, &none, &sim_busy_load);
		sim_add(sim, &none, &sim_busy_load);
		sim_set_policy(sim, &policy);
		sched_ask(sim->sched, BELFRY_HOOK_VGPU_INIT, sim->vgpus[0]->vgpu, &ctx, sizeof(ctx),
			  sim->now_ns);
		assert_int_equal(asked.calls[BELFRY_HOOK_VGPU_INIT], 1);
		assert_int_equal(asked.most, 1);
		sim_run(sim, 2 * S);
		assert_true(asked.calls[BELFRY_HOOK_PICK] > 10);
		assert_true(asked.most <= 4);
		sim_free(sim);
	}
}

/* On a GPU where one who is to leave, or to be let go, takes seconds to, everybody waits long, and no policy can help it. */
static void run_slowly(uint64_t stop_ns, uint64_t resume_ns)
{
	static struct hostile hostile;
	struct sched_policy policy = { 1u << BELFRY_HOOK_PICK, leave_it, put_out, &hostile, hostile.table };
	struct sched_options options = sched_default;
	struct sched_share none = sim_request(0);
	struct sim_load load = { .in_flight = 2, .kernel_least_ns = 20 * S, .kernel_most_ns = 30 * S };
	struct sim *sim;

	hostile.failed = 0;
	options.how = SCHED_TOKENS;
	sim = sim_new(&options, 92, 120 * S);
	sim->manners.stop_ns = stop_ns;
	sim->manners.resume_ns = resume_ns;
	for (unsigned i = 0; i < 3; i++)
		sim_add(sim, &none, &load);
	sim_set_policy(sim, &policy);
	sim_run(sim, 100 * S);
	for (unsigned i = 0; i < 3; i++)
		assert_true(sim_seen(sim->vgpus[i])->longest_starve_ns > 2 * S);
	assert_int_equal(hostile.failed, 0);
	sim_free(sim);
}

static void slow_stops_are_not_held_against_a_policy(void **state)
{
	(void)state;
	run_slowly(4 * S, 1 * MS);
	run_slowly(1 * MS, 4 * S);
}

/* Two in line beside a rider that has work for so much of each millisecond and uses so much of the GPU, for 20 s under a
 * policy that leaves all to the built-in. How long one waited at most; each must have had so many slices. */
static uint64_t longest_wait_beside_rider(const struct sched_share *latency, const struct sched_share *share,
					  uint64_t work_us, uint64_t used_us, uint64_t slices_least)
{
	static struct hostile hostile;
	struct sched_policy policy = { 1u << BELFRY_HOOK_PICK, leave_it, put_out, &hostile, hostile.table };
	struct sched_options options = sched_default;
	uint64_t now_ns = SIM_BEGIN_NS, longest_ns = 0;
	struct sched_vgpu *rider, *line[2];
	struct sched_report report;
	struct sched_order order;
	struct sched *sched;

	hostile.failed = 0;
	options.is_measured = true;
	sched = sched_new(&options, now_ns);
	rider = sched_add(sched, latency, NULL, now_ns);
	sched_set_present(sched, rider, true, now_ns);
	for (unsigned i = 0; i < 2; i++) {
		line[i] = sched_add(sched, share, NULL, now_ns);
		sched_set_present(sched, line[i], true, now_ns);
		sched_waits(sched, line[i], now_ns);
	}
	sched_set_policy(sched, &policy, now_ns);
	for (unsigned ms = 0; ms < 20000; ms++) {
		sched_runs(sched, rider, now_ns);
		if (work_us < 1000)
			sched_done(sched, rider, now_ns + work_us * 1000);
		now_ns += 1 * MS;
		sched_used(sched, rider, used_us * 1000, now_ns);
		while (sched_next(sched, now_ns, &order)) {
			if (order.kind == SCHED_STOP)
				sched_stopped(sched, order.vgpu, now_ns);
			else if (order.kind == SCHED_OPEN)
				sched_resumed(sched, order.vgpu, now_ns);
		}
		for (unsigned i = 0; i < 2; i++) {
			sched_report(sched, line[i], &report);
			if (report.state == SCHED_IS_WAITING && now_ns - report.since_ns > longest_ns)
				longest_ns = now_ns - report.since_ns;
		}
	}
	sched_report(sched, rider, &report);
	assert_true(report.is_rider);
	for (unsigned i = 0; i < 2; i++) {
		sched_report(sched, line[i], &report);
		assert_true(report.grants >= slices_least);
	}
	print_message("rider with work for %u us and %u used of each ms: the longest wait is %.0f ms\n",
		      (unsigned)work_us, (unsigned)used_us, (double)longest_ns / 1e6);
	assert_int_equal(hostile.failed, 0);
	sched_free(sched);
	return longest_ns;
}

/* One that always has work and takes little of the GPU, as one that copies: slices run out beside it. */
static void who_rides_and_leaves_the_gpu_alone_keeps_nobody_waiting(void **state)
{
	struct sched_share latency = sim_latency(10), share = sim_request(20);

	(void)state;
	for (uint64_t used_us = 0; used_us <= 400; used_us += 200)
		assert_true(longest_wait_beside_rider(&latency, &share, 1000, used_us, 40) < 400 * MS);
}

/* One that takes nearly all, as it may: everybody else waits long, and no policy can help it. */
static void what_riders_take_is_not_held_against_a_policy(void **state)
{
	struct sched_share latency = sim_latency(90), share = sim_request(1);

	(void)state;
	assert_true(longest_wait_beside_rider(&latency, &share, 980, 980, 2) > 2 * S);
}

/* Nobody pays for what a policy let him have: after an hour of the one, the other has not an hour to catch up with. */
static void what_a_policy_let_somebody_have_is_not_held_against_him(void **state)
{
	static struct hostile hostile;
	struct sched_policy policy = { 1u << BELFRY_HOOK_PICK, leave_out, NULL, &hostile, hostile.table };
	struct sched_share some = sim_request(5);
	struct sim *sim = sim_new(&sched_default, 91, 40 * S);
	struct sim_vgpu *a = sim_add(sim, &some, &sim_busy_load);
	struct sim_vgpu *b = sim_add(sim, &some, &sim_busy_load);

	(void)state;
	hostile.favourite = sched_id(b->vgpu);
	sim_set_policy(sim, &policy);
	sim_run(sim, 20 * S);
	assert_true(sim_use(a) > 85);
	sim_set_policy(sim, NULL);
	sim_run(sim, 500 * MS);
	sim_mark(sim);
	sim_run(sim, 5 * S);
	sim_assert_near("after it", sim_share(a), 50, 1.5);
	sim_free(sim);
}

/* Says for how long, and leaves the rest as it finds it. */
struct open {
	uint64_t slice_ns;
	unsigned picks, clamped, others, deadlines;
	struct belfry_vgpu table[BELFRY_VGPUS_MAX];
};

static int leave_open(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	struct open *open = context;
	const struct belfry_head *head = ctx;

	(void)size;
	for (uint32_t i = 0; i < head->count; i++)
		assert_true(open->table[i].weight_ppm >= open->table[i].request_ppm);
	if (hook == BELFRY_HOOK_PICK)
		((struct belfry_pick *)ctx)->slice_ns = open->slice_ns;
	return BELFRY_PROPOSE;
}

static void count_open(void *context, const struct sched_decision *decision, const void *ctx, size_t size,
		       const struct belfry_vgpu *table)
{
	struct open *open = context;
	const struct belfry_enqueue *enqueue = ctx;

	(void)size;
	if (decision->hook == BELFRY_HOOK_ENQUEUE) {
		const struct belfry_vgpu *v = &table[enqueue->head.vgpu];

		assert_int_equal(decision->got_ns, v->objective_ns ? v->wants_since_ns + v->objective_ns : 0);
		open->deadlines += v->objective_ns != 0;
	} else if (decision->decider != SCHED_BUILT_IN) {
		open->picks++;
		open->clamped += decision->clamps != 0;
		open->others += decision->proposed_id != decision->got_id ||
				decision->got_ns != (open->slice_ns > 2 * MS ? open->slice_ns : 2 * MS);
	}
}

static struct open run_open(uint64_t slice_ns, bool is_own)
{
	static struct open open;
	struct sched_policy policy = { 1u << BELFRY_HOOK_PICK | 1u << BELFRY_HOOK_ENQUEUE, leave_open, NULL,
				       &open, open.table };
	struct sched_watch watch = { .decided = count_open, .context = &open };
	struct sched_share odd = sim_request(0), some = sim_request(20), latency = sim_latency(20);
	struct sim *sim = sim_new(&sched_default, 92, 4 * S);
	struct sim_vgpu *v;

	open = (struct open){ .slice_ns = slice_ns };
	odd.request_ppm = 251; /* 251 / 1e6 * 1e6 < 251 */
	latency.objective_ns = 5 * MS, latency.percentile_ppm = 990000;
	sim_add(sim, &odd, &sim_busy_load);
	sim_add(sim, &latency, &sim_synchronous);
	v = sim_add(sim, &some, &sim_busy_load);
	sched_watch(sim->sched, &watch);
	if (is_own)
		sched_set_vgpu_policy(sim->sched, v->vgpu, &policy, sim->now_ns);
	else
		sim_set_policy(sim, &policy);
	sim_run(sim, 2 * S);
	sim_free(sim);
	return open;
}

static void what_a_policy_leaves_open_is_as_it_would_be(void **state)
{
	struct open open = run_open(5 * MS, false);

	(void)state;
	print_message("%u picks, %u clamped, %u others, %u deadlines\n", open.picks, open.clamped,
		      open.others, open.deadlines);
	assert_true(open.picks > 20 && open.deadlines > 0);
	/* Promises come first all the same. */
	assert_true(open.clamped < open.picks / 4 && open.others <= open.clamped);
}

static void a_slice_of_its_own_policy_is_made_to_fit(void **state)
{
	struct open fits = run_open(3 * MS, true), short_one = run_open(1, true);

	(void)state;
	assert_true(fits.picks > 5 && short_one.picks > 5);
	assert_int_equal(fits.clamped, 0);
	assert_int_equal(short_one.clamped, short_one.picks);
	assert_int_equal(fits.others + short_one.others, 0);
}

/* Nobody has said that of whoever comes first because of a promise. */
static void company_is_of_whom_it_was_proposed_for(void **state)
{
	struct belfry_vgpu table[3] = {
		{ .id = 1, .flags = BELFRY_MAY_HAVE, .domain = 1, .request_ppm = 200000 },
		{ .id = 2,
		  .flags = BELFRY_MAY_HAVE | BELFRY_OVERDUE,
		  .domain = 1,
		  .request_ppm = 200000,
		  .owed_ns = 100 * MS },
		{ .id = 3, .flags = BELFRY_MAY_HAVE, .domain = 1, .request_ppm = 200000 },
	};
	struct belfry_pick ctx = { .head = { .count = 3, .round_ns = 100 * MS, .slice_min_ns = 2 * MS },
				   .choice = 0,
				   .beside = 0 };

	(void)state;
	assert_int_equal(sched_clamp_pick(table, &ctx), SCHED_CLAMP_PROMISE);
	assert_int_equal(ctx.choice, 1);
	assert_int_equal(ctx.beside, BELFRY_NOBODY);
	table[1].flags = BELFRY_MAY_HAVE;
	ctx.choice = ctx.beside = 0;
	ctx.slice_ns = 5 * MS;
	assert_int_equal(sched_clamp_pick(table, &ctx), 0);
	assert_int_equal(ctx.beside, 0);
}

static void units_are_for_vgpus_of_shared_domains(void **state)
{
	struct belfry_vgpu table[2] = { { .id = 1, .flags = BELFRY_MAY_HAVE, .units = 2, .units_all = 16 },
					{ .id = 2, .flags = BELFRY_MAY_HAVE } };
	struct belfry_pick pick = { .head = { .count = 2, .round_ns = 100 * MS, .slice_min_ns = 2 * MS },
				    .beside = BELFRY_NOBODY,
				    .slice_ns = 5 * MS,
				    .units = 12 };
	struct belfry_tick tick = { .head = pick.head, .interleave = -1, .ride = -1, .units = 17 };

	(void)state;
	assert_int_equal(sched_clamp_pick(table, &pick), 0);
	assert_int_equal(pick.units, 12);
	assert_int_equal(sched_clamp_tick(table, &tick), SCHED_CLAMP_SPACE);
	assert_int_equal(tick.units, 16);
	assert_int_equal(sched_clamp_tick(table, &tick), 0);
	pick.choice = tick.head.vgpu = 1;
	assert_int_equal(sched_clamp_pick(table, &pick), SCHED_CLAMP_SPACE);
	assert_int_equal(pick.units, 0);
	assert_int_equal(sched_clamp_tick(table, &tick), SCHED_CLAMP_SPACE);
	assert_int_equal(tick.units, 0);
}

/* Whoever is furthest behind, and beside it the first other of its domain, or nobody. */
struct couple {
	bool is_alone;
	struct belfry_vgpu table[BELFRY_VGPUS_MAX];
};

static int pair_up(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	struct couple *couple = context;
	struct belfry_pick *pick = ctx;
	const struct belfry_vgpu *table = couple->table;

	(void)hook;
	(void)size;
	for (uint32_t i = 0; i < pick->head.count; i++)
		if (table[i].flags & BELFRY_MAY_HAVE &&
		    (pick->choice == BELFRY_NOBODY || table[i].pass_ns < table[pick->choice].pass_ns))
			pick->choice = i;
	if (pick->choice == BELFRY_NOBODY || !table[pick->choice].domain)
		return BELFRY_PROPOSE;
	pick->beside = pick->choice;
	for (uint32_t i = 0; i < pick->head.count && !couple->is_alone; i++)
		if (i != pick->choice && table[i].domain == table[pick->choice].domain &&
		    table[i].flags & BELFRY_MAY_HAVE)
			pick->beside = i;
	return BELFRY_PROPOSE;
}

/* The most of the first three that were let in at once. */
static unsigned most_together(struct sim *sim)
{
	unsigned most = 0;

	for (unsigned ms = 0; ms < 2000; ms++) {
		unsigned open = 0;

		sim_run(sim, 1 * MS);
		for (unsigned i = 0; i < 3; i++)
			open += sim->vgpus[i]->is_open;
		most = open > most ? open : most;
	}
	return most;
}

static void who_runs_beside_whom_is_a_policys_to_say(void **state)
{
	static struct couple couple;
	struct sched_policy policy = { 1u << BELFRY_HOOK_PICK, pair_up, NULL, &couple, couple.table };
	struct sched_share share = sim_request(20);
	struct sim *sim = sim_new(&sched_default, 93, 20 * S);

	(void)state;
	share.domain = 1;
	for (unsigned i = 0; i < 3; i++)
		sim_add(sim, &share, &sim_busy_load);
	share.domain = 0;
	sim_add(sim, &share, &sim_busy_load);
	assert_int_equal(most_together(sim), 3);
	sim_set_policy(sim, &policy);
	sim_run(sim, 200 * MS);
	assert_int_equal(most_together(sim), 2);
	couple.is_alone = true;
	sim_run(sim, 200 * MS);
	sim_mark(sim);
	assert_int_equal(most_together(sim), 1);
	for (unsigned i = 0; i < 4; i++)
		assert_true(sim_share(sim->vgpus[i]) > 18);
	sim_set_policy(sim, NULL);
	assert_int_equal(most_together(sim), 3);
	sim_free(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_and_promises_hold_under_any_policy),
		cmocka_unit_test(nothing_is_lost_when_policies_and_all_else_change),
		cmocka_unit_test(who_leaves_somebody_out_is_put_out),
		cmocka_unit_test(who_decides_as_the_built_in_changes_nothing),
		cmocka_unit_test(idle_vgpus_do_not_keep_a_policy_from_being_asked),
		cmocka_unit_test(slow_stops_are_not_held_against_a_policy),
		cmocka_unit_test(who_rides_and_leaves_the_gpu_alone_keeps_nobody_waiting),
		cmocka_unit_test(what_riders_take_is_not_held_against_a_policy),
		cmocka_unit_test(what_a_policy_let_somebody_have_is_not_held_against_him),
		cmocka_unit_test(what_a_policy_leaves_open_is_as_it_would_be),
		cmocka_unit_test(units_are_for_vgpus_of_shared_domains),
		cmocka_unit_test(a_slice_of_its_own_policy_is_made_to_fit),
		cmocka_unit_test(company_is_of_whom_it_was_proposed_for),
		cmocka_unit_test(who_runs_beside_whom_is_a_policys_to_say),
	};

	return cmocka_run_group_tests_name("sched_policy", tests, NULL, NULL);
}

/* sched: where GPU time is measured, the next holder gets the token before the work of the last holder is stopped. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched_sim.h"

#define STOP_NS (700 * US)
#define RESUME_NS (350 * US)

enum { MOST = 4 };

/* vGPUs that always have work, and a caller that carries out each order before it asks for the next one. */
struct rig {
	struct sched *sched;
	struct sched_vgpu *vgpus[MOST];
	bool is_open[MOST], is_stopped[MOST];
	unsigned count;
	uint64_t now_ns;
	int64_t pass_ns[MOST]; /* see read_passes() */

	/* After run_until_overlap(): `next` has the token, the work of `leaving` is still to be stopped, and `third` is stopped. */
	struct sched_vgpu *next, *leaving, *third;
	uint64_t closed_ns; /* the gate of `leaving` */
};

static struct rig *rig_of(void **state)
{
	return *state;
}

static unsigned index_of(const struct rig *rig, const struct sched_vgpu *vgpu)
{
	for (unsigned i = 0; i < rig->count; i++)
		if (rig->vgpus[i] == vgpu)
			return i;
	fail_msg("there is no such vGPU");
	return 0;
}

static struct sched_vgpu *add(struct rig *rig, const struct sched_share *share)
{
	struct sched_vgpu *v = sched_add(rig->sched, share, NULL, rig->now_ns);

	assert_non_null(v);
	rig->vgpus[rig->count++] = v;
	sched_set_present(rig->sched, v, true, rig->now_ns);
	sched_waits(rig->sched, v, rig->now_ns);
	return v;
}

static void carry_out(struct rig *rig, const struct sched_order *order)
{
	unsigned i = index_of(rig, order->vgpu);

	switch (order->kind) {
	case SCHED_OPEN:
		assert_false(rig->is_open[i]);
		rig->is_open[i] = true;
		rig->now_ns += rig->is_stopped[i] ? RESUME_NS : 0;
		rig->is_stopped[i] = false;
		sched_resumed(rig->sched, order->vgpu, rig->now_ns);
		break;
	case SCHED_CLOSE:
		assert_true(rig->is_open[i]);
		rig->is_open[i] = false;
		break;
	case SCHED_STOP:
		assert_false(rig->is_open[i] || rig->is_stopped[i]);
		rig->is_stopped[i] = true;
		sched_stopped(rig->sched, order->vgpu, rig->now_ns += STOP_NS);
		break;
	case SCHED_SLICE:
		break;
	}
}

/* The next order that is not about turns in hardware. The clock advances until there is one. */
static struct sched_order wait_order(struct rig *rig)
{
	uint64_t end_ns = rig->now_ns + 1 * S;
	struct sched_order order = { .vgpu = NULL };

	while (rig->now_ns < end_ns) {
		uint64_t wake_ns;

		if (sched_next(rig->sched, rig->now_ns, &order)) {
			if (order.kind != SCHED_SLICE)
				return order;
			continue;
		}
		wake_ns = sched_wake_ns(rig->sched);
		rig->now_ns = wake_ns > rig->now_ns ? wake_ns : rig->now_ns + 1;
	}
	fail_msg("no order within a second");
	return order;
}

static struct sched_order next_order(struct rig *rig)
{
	struct sched_order order = wait_order(rig);

	carry_out(rig, &order);
	return order;
}

static void expect(struct rig *rig, enum sched_order_kind kind, const struct sched_vgpu *vgpu)
{
	struct sched_order order = next_order(rig);

	assert_int_equal(order.kind, kind);
	assert_ptr_equal(order.vgpu, vgpu);
}

/* Until every vGPU has been stopped once, and one has got the token while the work of another one still runs. */
static void run_until_overlap(struct rig *rig)
{
	unsigned opens = 0;

	for (unsigned i = 0; i < 100; i++) {
		struct sched_order order = next_order(rig);

		if (order.kind == SCHED_CLOSE) {
			rig->leaving = order.vgpu;
			rig->closed_ns = rig->now_ns;
		}
		opens += order.kind == SCHED_OPEN;
		if (opens <= rig->count || order.kind != SCHED_OPEN)
			continue;
		rig->next = order.vgpu;
		assert_false(rig->is_stopped[index_of(rig, rig->leaving)]);
		for (unsigned k = 0; k < rig->count; k++)
			if (rig->vgpus[k] != rig->next && rig->vgpus[k] != rig->leaving)
				rig->third = rig->vgpus[k];
		assert_true(rig->is_stopped[index_of(rig, rig->third)]);
		return;
	}
	fail_msg("no hand-over");
}

static struct rig *rig_new(bool is_measured)
{
	static struct rig rig;
	struct sched_options options = sched_default;

	options.how = SCHED_TOKENS;
	options.is_measured = is_measured;
	rig = (struct rig){ .now_ns = 1000 * S };
	rig.sched = sched_new(&options, rig.now_ns);
	assert_non_null(rig.sched);
	return &rig;
}

static int begin(void **state)
{
	const struct sched_share share = sim_request(30);
	struct rig *rig = rig_new(true);

	for (unsigned i = 0; i < 3; i++)
		add(rig, &share);
	run_until_overlap(rig);
	*state = rig;
	return 0;
}

static int end(void **state)
{
	sched_free(rig_of(state)->sched);
	return 0;
}

static enum sched_state state_of(const struct rig *rig, const struct sched_vgpu *vgpu)
{
	struct sched_report report;

	sched_report(rig->sched, vgpu, &report);
	return report.state;
}

/* The resume ends with the grace time, so the stop is not later than without it. */
static void the_next_holder_runs_before_the_last_one_is_stopped(void **state)
{
	struct rig *rig = rig_of(state);

	assert_int_equal(rig->now_ns, rig->closed_ns + sched_default.grace_ns);
	assert_int_equal(state_of(rig, rig->next), SCHED_IS_RUNNING);
	assert_int_equal(state_of(rig, rig->leaving), SCHED_IS_RUNNING);
	expect(rig, SCHED_STOP, rig->leaving);
	assert_int_equal(rig->now_ns, rig->closed_ns + sched_default.grace_ns + STOP_NS);
	expect(rig, SCHED_CLOSE, rig->next);
	expect(rig, SCHED_OPEN, rig->third);
	expect(rig, SCHED_STOP, rig->next);
}

/* Otherwise the GPU time of two vGPUs that share the GPU is not known. */
static void without_measured_time_the_last_holder_is_stopped_first(void **state)
{
	const struct sched_share share = sim_request(30);
	struct rig *rig = rig_new(false);
	struct sched_vgpu *leaving = NULL;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		add(rig, &share);
	for (unsigned i = 0; i < 60; i++) {
		struct sched_order order = next_order(rig);

		if (order.kind == SCHED_CLOSE)
			leaving = order.vgpu;
		if (order.kind == SCHED_OPEN && leaving)
			assert_true(rig->is_stopped[index_of(rig, leaving)]);
	}
	sched_free(rig->sched);
}

static void expect_third_in_its_place(struct rig *rig)
{
	expect(rig, SCHED_OPEN, rig->third);
	expect(rig, SCHED_STOP, rig->leaving);
	assert_int_equal(state_of(rig, rig->third), SCHED_IS_RUNNING);
}

static void a_next_holder_that_is_removed_is_replaced(void **state)
{
	struct rig *rig = rig_of(state);

	sched_remove(rig->sched, rig->next, rig->now_ns);
	rig->vgpus[index_of(rig, rig->next)] = NULL;
	expect_third_in_its_place(rig);
}

/* As after any other end of its work, the token stays with it for a short time. */
static void a_next_holder_whose_programs_end_is_replaced(void **state)
{
	struct rig *rig = rig_of(state);

	sched_set_present(rig->sched, rig->next, false, rig->now_ns);
	sched_hold(rig->sched, rig->next, false, rig->now_ns);
	rig->is_open[index_of(rig, rig->next)] = false;
	expect(rig, SCHED_STOP, rig->leaving);
	expect(rig, SCHED_OPEN, rig->third);
}

/* While it is held, it gets no orders. Afterwards it still has work on the GPU and no token, so it is stopped. */
static void a_next_holder_that_is_held_is_replaced(void **state)
{
	struct rig *rig = rig_of(state);

	sched_hold(rig->sched, rig->next, true, rig->now_ns);
	rig->is_open[index_of(rig, rig->next)] = false; /* by the caller */
	expect_third_in_its_place(rig);
	sched_hold(rig->sched, rig->next, false, rig->now_ns);
	expect(rig, SCHED_STOP, rig->next);
}

static void spend(struct rig *rig, struct sched_vgpu *vgpu)
{
	const struct sched_share limited = sim_limit(30, 30);

	sched_set(rig->sched, vgpu, &limited, rig->now_ns);
	sched_used(rig->sched, vgpu, 500 * MS, rig->now_ns);
}

/* The vGPU after it gets the token after both were stopped: the first of them has reached its limit. */
static void a_next_holder_that_reaches_its_limit_is_stopped(void **state)
{
	struct rig *rig = rig_of(state);

	spend(rig, rig->next);
	expect(rig, SCHED_CLOSE, rig->next);
	expect(rig, SCHED_STOP, rig->leaving);
	expect(rig, SCHED_STOP, rig->next);
	expect(rig, SCHED_OPEN, rig->third);
}

/* It is not given the time of a resume. */
static void a_holder_that_reaches_its_limit_is_stopped_first(void **state)
{
	struct rig *rig = rig_of(state);

	expect(rig, SCHED_STOP, rig->leaving);
	spend(rig, rig->next);
	expect(rig, SCHED_CLOSE, rig->next);
	expect(rig, SCHED_STOP, rig->next);
	expect(rig, SCHED_OPEN, rig->third);
}

/* No more than two vGPUs share the GPU. */
static void a_latency_vgpu_that_comes_during_a_hand_over_goes_first(void **state)
{
	struct rig *rig = rig_of(state);
	const struct sched_share latency = sim_latency(10);
	struct sched_vgpu *first = add(rig, &latency);
	uint64_t from_ns = rig->now_ns;

	expect(rig, SCHED_CLOSE, rig->next);
	assert_int_equal(next_order(rig).kind, SCHED_STOP);
	expect(rig, SCHED_OPEN, first);
	assert_int_equal(rig->now_ns, from_ns + STOP_NS);
	assert_int_equal(next_order(rig).kind, SCHED_STOP);
	assert_true(rig->is_stopped[index_of(rig, rig->leaving)]);
	assert_true(rig->is_stopped[index_of(rig, rig->next)]);
}

static void a_last_holder_whose_work_ends_is_not_stopped(void **state)
{
	struct rig *rig = rig_of(state);

	sched_done(rig->sched, rig->leaving, rig->now_ns);
	expect(rig, SCHED_CLOSE, rig->next);
}

static void a_next_holder_whose_work_ends_gives_the_token_back(void **state)
{
	struct rig *rig = rig_of(state);

	sched_done(rig->sched, rig->next, rig->now_ns);
	expect(rig, SCHED_STOP, rig->leaving);
	expect(rig, SCHED_CLOSE, rig->next);
	expect(rig, SCHED_OPEN, rig->third);
}

/* A vGPU without stopped work needs no resume. Its gate opens at the end of the grace time. */
static void a_vgpu_that_only_waits_gets_the_token_before_the_stop(void **state)
{
	struct rig *rig = rig_of(state);

	sched_set_present(rig->sched, rig->third, false, rig->now_ns);
	sched_hold(rig->sched, rig->third, false, rig->now_ns);
	rig->is_stopped[index_of(rig, rig->third)] = false;
	sched_set_present(rig->sched, rig->third, true, rig->now_ns);
	sched_waits(rig->sched, rig->third, rig->now_ns);
	expect(rig, SCHED_STOP, rig->leaving);
	expect(rig, SCHED_CLOSE, rig->next);
	rig->closed_ns = rig->now_ns;
	expect(rig, SCHED_OPEN, rig->third);
	assert_int_equal(rig->now_ns, rig->closed_ns + sched_default.grace_ns);
	expect(rig, SCHED_STOP, rig->next);
}

/* For a caller that carries out orders in the background. */
static void the_stop_waits_for_the_end_of_the_resume(void **state)
{
	struct rig *rig = rig_of(state);
	struct sched_order order;

	expect(rig, SCHED_STOP, rig->leaving);
	expect(rig, SCHED_CLOSE, rig->next);
	order = wait_order(rig);
	assert_int_equal(order.kind, SCHED_OPEN);
	for (unsigned i = 0; i < 20; i++)
		assert_false(sched_next(rig->sched, rig->now_ns += 50 * US, &order));
	carry_out(rig, &(struct sched_order){ .kind = SCHED_OPEN, .vgpu = rig->third });
	expect(rig, SCHED_STOP, rig->next);
}

/* With shorter timeslices the GPU would only switch between the two. */
static void vgpus_with_short_timeslices_do_not_overlap(void **state)
{
	struct rig *rig = rig_of(state);
	struct sched_share share = sim_request(30);

	share.timeslice_us = 500;
	sched_set(rig->sched, rig->third, &share, rig->now_ns);
	expect(rig, SCHED_STOP, rig->leaving);
	expect(rig, SCHED_CLOSE, rig->next);
	expect(rig, SCHED_STOP, rig->next);
	expect(rig, SCHED_OPEN, rig->third);
}

/* Of two vGPUs of one domain, the first is stopped before the next holder gets the token. */
static void only_the_last_one_of_a_domain_overlaps(void **state)
{
	struct sched_share alone = sim_request(20), both = sim_request(20);
	struct rig *rig = rig_new(true);
	unsigned overlaps = 0;

	(void)state;
	both.domain = 1;
	add(rig, &both);
	add(rig, &both);
	add(rig, &alone);
	for (unsigned i = 0; i < 40; i++) {
		struct sched_order order = next_order(rig);

		if (i < 10 || order.kind != SCHED_OPEN || order.vgpu != rig->vgpus[2])
			continue;
		assert_true(rig->is_stopped[0] != rig->is_stopped[1]);
		overlaps++;
	}
	assert_true(overlaps > 1);
	sched_free(rig->sched);
}

static int ask(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	(void)context, (void)hook, (void)ctx, (void)size;
	return BELFRY_DEFAULT;
}

/* The pass of each vGPU, as policies see it. */
static void read_passes(struct rig *rig)
{
	static struct belfry_vgpu table[BELFRY_VGPUS_MAX];
	const struct sched_policy policy = { .hooks = 1u << BELFRY_HOOK_MEM_PRESSURE,
					     .ask = ask,
					     .table = table };
	struct belfry_mem_pressure ctx = { .head = { .hook = BELFRY_HOOK_MEM_PRESSURE } };

	sched_set_policy(rig->sched, &policy, rig->now_ns);
	sched_ask(rig->sched, BELFRY_HOOK_MEM_PRESSURE, NULL, &ctx, sizeof(ctx), rig->now_ns);
	for (unsigned i = 0; i < rig->count; i++)
		for (uint32_t entry = 0; entry < ctx.head.count; entry++)
			if (table[entry].id == sched_id(rig->vgpus[i]))
				rig->pass_ns[i] = table[entry].pass_ns;
}

/* Equal parts, so a pass grows by three times the time charged. */
static double charged_us(struct rig *rig, const struct sched_vgpu *vgpu, const int64_t *before_ns)
{
	unsigned i = index_of(rig, vgpu);

	return (double)(rig->pass_ns[i] - before_ns[i]) / 3e3;
}

static uint64_t waited_ns(const struct sched_vgpu *vgpu, const struct sched_vgpu *other)
{
	struct sched_waited waited[16];
	size_t count = sched_waited_for(vgpu, waited, 16);

	for (size_t i = 0; i < count; i++)
		if (waited[i].other == other)
			return waited[i].ns;
	return 0;
}

/* The time of the stop is divided, and waiting vGPUs wait for the vGPU that leaves. */
static void the_time_of_a_stop_is_charged_once(void **state)
{
	struct rig *rig = rig_of(state);
	int64_t before_ns[MOST];
	uint64_t for_leaving_ns = waited_ns(rig->third, rig->leaving);
	uint64_t for_next_ns = waited_ns(rig->third, rig->next);
	uint64_t next_ns = waited_ns(rig->next, rig->leaving);

	read_passes(rig);
	memcpy(before_ns, rig->pass_ns, sizeof(before_ns));
	expect(rig, SCHED_STOP, rig->leaving);
	read_passes(rig);
	sim_assert_near("leaving", charged_us(rig, rig->leaving, before_ns), STOP_NS / 4e3, 0.1);
	sim_assert_near("next", charged_us(rig, rig->next, before_ns), STOP_NS * 3 / 4e3, 0.1);
	sim_assert_near("third", charged_us(rig, rig->third, before_ns), 0, 0.1);
	assert_int_equal(waited_ns(rig->third, rig->leaving) - for_leaving_ns, STOP_NS);
	assert_int_equal(waited_ns(rig->third, rig->next), for_next_ns);
	assert_int_equal(waited_ns(rig->next, rig->leaving), next_ns);
}

/* Eight vGPUs for ten seconds: each has its share, within a point. Returns how much of the time the GPU ran, in percent. */
static double run_eight(const char *name, const struct sim_load *const *loads, bool is_measured)
{
	static const double percent[8] = { 5, 5, 10, 10, 15, 15, 20, 20 };
	struct sched_options options = sched_default;
	uint64_t handovers;
	struct sim *sim;
	double busy;

	options.is_measured = is_measured;
	sim = sim_new(&options, 8, 11 * S);
	for (unsigned i = 0; i < 8; i++) {
		struct sched_share share = sim_request(percent[i]);

		sim_add(sim, &share, loads[i]);
	}
	sim_run(sim, 500 * MS);
	sim_mark(sim);
	handovers = sched_handovers(sim->sched);
	sim_run(sim, 10 * S);
	handovers = sched_handovers(sim->sched) - handovers;
	sim_print(name, sim);
	for (unsigned i = 0; i < 8; i++)
		sim_assert_near(name, sim_share(sim->vgpus[i]), percent[i], 1);
	assert_true(sim_overlap_ns(sim) <= (is_measured ? handovers * STOP_NS : 0));
	busy = sim_busy(sim);
	sim_free(sim);
	return busy;
}

static void eight_busy_vgpus_keep_the_gpu_at_work(void **state)
{
	const struct sim_load *const loads[8] = { &sim_busy_load, &sim_busy_load, &sim_busy_load,
						  &sim_busy_load, &sim_busy_load, &sim_busy_load,
						  &sim_busy_load, &sim_busy_load };
	double with = run_eight("eight", loads, true), without = run_eight("eight, stop first", loads, false);

	(void)state;
	if (with < 96 || without >= 94)
		fail_msg("the GPU ran for %.1f %% of the time, and for %.1f %% without overlap", with,
			 without);
}

static void programs_of_all_kinds_have_their_shares(void **state)
{
	const struct sim_load *const loads[8] = { &sim_small, &sim_synchronous, &sim_busy_load,
						  &sim_small, &sim_graphs,	&sim_synchronous,
						  &sim_small, &sim_busy_load };
	double with = run_eight("mixed eight", loads, true);
	double without = run_eight("mixed eight, stop first", loads, false);

	(void)state;
	assert_true(with > without + 2);
}

#define WITH_OVERLAP(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_OVERLAP(the_next_holder_runs_before_the_last_one_is_stopped),
		cmocka_unit_test(without_measured_time_the_last_holder_is_stopped_first),
		WITH_OVERLAP(a_next_holder_that_is_removed_is_replaced),
		WITH_OVERLAP(a_next_holder_whose_programs_end_is_replaced),
		WITH_OVERLAP(a_next_holder_that_is_held_is_replaced),
		WITH_OVERLAP(a_next_holder_that_reaches_its_limit_is_stopped),
		WITH_OVERLAP(a_holder_that_reaches_its_limit_is_stopped_first),
		WITH_OVERLAP(a_latency_vgpu_that_comes_during_a_hand_over_goes_first),
		WITH_OVERLAP(a_last_holder_whose_work_ends_is_not_stopped),
		WITH_OVERLAP(a_next_holder_whose_work_ends_gives_the_token_back),
		WITH_OVERLAP(a_vgpu_that_only_waits_gets_the_token_before_the_stop),
		WITH_OVERLAP(the_stop_waits_for_the_end_of_the_resume),
		WITH_OVERLAP(vgpus_with_short_timeslices_do_not_overlap),
		cmocka_unit_test(only_the_last_one_of_a_domain_overlaps),
		WITH_OVERLAP(the_time_of_a_stop_is_charged_once),
		cmocka_unit_test(eight_busy_vgpus_keep_the_gpu_at_work),
		cmocka_unit_test(programs_of_all_kinds_have_their_shares),
	};

	return cmocka_run_group_tests_name("sched_overlap", tests, NULL, NULL);
}

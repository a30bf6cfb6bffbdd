/* sched: how busy each vGPU keeps the SMs and the memory bus is worked out from what was measured of all together. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "sched_sim.h"

enum { VGPUS = 3 };
static const uint64_t interval_ns = 500 * MS;

struct rig {
	uint64_t over_ns; /* what the GPU's clock goes on in an interval; 0: as ours */
	struct sched *sched;
	struct sched_vgpu *vgpus[VGPUS];
	uint64_t now_ns;
};

static struct rig rig_new(void)
{
	struct sched_options options = sched_default;
	struct sched_share share = sim_request(20);
	struct rig rig = { .now_ns = SIM_BEGIN_NS };

	options.is_measured = true;
	rig.sched = sched_new(&options, rig.now_ns);
	for (unsigned i = 0; i < VGPUS; i++) {
		rig.vgpus[i] = sched_add(rig.sched, &share, NULL, rig.now_ns);
		sched_set_present(rig.sched, rig.vgpus[i], true, rig.now_ns);
	}
	sched_busy(rig.sched, 0, 0, 0, rig.now_ns);
	return rig;
}

/* An interval in which each had its part of the GPU's time; what is measured is what they make of it. */
static void pass(struct rig *rig, const double *parts, const double *sm, const double *mem)
{
	double all_sm = 0, all_mem = 0, ns = (double)(rig->over_ns ? rig->over_ns : interval_ns);

	rig->now_ns += interval_ns;
	for (unsigned i = 0; i < VGPUS; i++) {
		sched_used(rig->sched, rig->vgpus[i], (uint64_t)(parts[i] * ns), rig->now_ns);
		all_sm += parts[i] * sm[i];
		all_mem += parts[i] * mem[i];
	}
	sched_busy(rig->sched, (uint32_t)(all_sm * 1e6), (uint32_t)(all_mem * 1e6), rig->over_ns,
		   rig->now_ns);
}

static struct sched_report report(const struct rig *rig, unsigned which)
{
	struct sched_report report;

	sched_report(rig->sched, rig->vgpus[which], &report);
	return report;
}

/* As on a GPU with a training on it that an inference comes to: their parts do not change, but one of them is known. */
static void who_comes_is_told_from_who_was_there(void **state)
{
	static const double alone[VGPUS] = { 1 }, both[VGPUS] = { 0.73, 0.27 }, sm[VGPUS] = { 0.965, 0.8 },
			    mem[VGPUS] = { 0.177, 0.4 };
	struct rig rig = rig_new();

	(void)state;
	for (unsigned i = 0; i < 16; i++)
		pass(&rig, alone, sm, mem);
	for (unsigned i = 0; i < 20; i++)
		pass(&rig, both, sm, mem);
	for (unsigned v = 0; v < 2; v++) {
		sim_assert_near("SMs", report(&rig, v).sm_ppm / 1e4, sm[v] * 100, 5);
		sim_assert_near("memory", report(&rig, v).mem_ppm / 1e4, mem[v] * 100, 5);
	}
	sched_free(rig.sched);
}

/* A program goes from one phase into another. */
static void what_has_changed_is_followed(void **state)
{
	static const double alone[VGPUS] = { 0.9 }, before[VGPUS] = { 0.9 }, after[VGPUS] = { 0.3 };
	struct rig rig = rig_new();

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		pass(&rig, alone, before, after);
	for (unsigned i = 0; i < 20; i++) /* ten seconds */
		pass(&rig, alone, after, before);
	sim_assert_near("SMs", report(&rig, 0).sm_ppm / 1e4, 30, 3);
	sim_assert_near("memory", report(&rig, 0).mem_ppm / 1e4, 90, 3);
	sched_free(rig.sched);
}

static void who_is_alone_is_known_at_once(void **state)
{
	static const double alone[VGPUS] = { 0.6 }, sm[VGPUS] = { 0.9 }, mem[VGPUS] = { 0.2 };
	struct rig rig = rig_new();

	(void)state;
	assert_int_equal(report(&rig, 0).sm_ppm, 0);
	pass(&rig, alone, sm, mem);
	sim_assert_near("SMs", report(&rig, 0).sm_ppm / 1e4, 90, 5);
	sim_assert_near("memory", report(&rig, 0).mem_ppm / 1e4, 20, 5);
	for (unsigned i = 0; i < 10; i++)
		pass(&rig, alone, sm, mem);
	sim_assert_near("SMs", report(&rig, 0).sm_ppm / 1e4, 90, 0.5);
	sim_assert_near("memory", report(&rig, 0).mem_ppm / 1e4, 20, 0.5);
	assert_int_equal(report(&rig, 1).sm_ppm, 0); /* it has not run */
	sched_free(rig.sched);
}

static void those_who_take_turns_are_told_apart(void **state)
{
	static const double sm[VGPUS] = { 0.95, 0.3, 0.6 }, mem[VGPUS] = { 0.15, 0.9, 0.5 };
	struct rig rig = rig_new();
	uint64_t seed = 7;

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		double parts[VGPUS], sum = 0;

		for (unsigned v = 0; v < VGPUS; v++)
			sum += parts[v] = (double)sim_between(&seed, 1, 100);
		for (unsigned v = 0; v < VGPUS; v++)
			parts[v] /= sum;
		pass(&rig, parts, sm, mem);
	}
	for (unsigned v = 0; v < VGPUS; v++) {
		sim_assert_near("SMs", report(&rig, v).sm_ppm / 1e4, sm[v] * 100, 1);
		sim_assert_near("memory", report(&rig, v).mem_ppm / 1e4, mem[v] * 100, 1);
	}
	sched_free(rig.sched);
}

/* A software GPU on a slow host: its clock stands still most of the time, and nothing it measures goes by ours. */
static void a_slow_clock_of_the_gpu_makes_no_difference(void **state)
{
	static const double parts[VGPUS] = { 0.3, 0.6 }, sm[VGPUS] = { 0.9, 0.7 }, mem[VGPUS] = { 0.05, 0.2 };
	struct rig usual = rig_new(), slow = rig_new();

	(void)state;
	slow.over_ns = interval_ns / 50;
	for (unsigned i = 0; i < 4; i++) {
		pass(&usual, parts, sm, mem);
		pass(&slow, parts, sm, mem);
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_true(report(&slow, i).sm_ppm > 500000);
		assert_int_equal(report(&slow, i).sm_ppm, report(&usual, i).sm_ppm);
		assert_int_equal(report(&slow, i).mem_ppm, report(&usual, i).mem_ppm);
	}
	sched_free(usual.sched);
	sched_free(slow.sched);
}

/* What could be measured twice cannot be true: figures stay figures. */
static void nonsense_and_silence_do_no_harm(void **state)
{
	static const double parts[VGPUS] = { 0.5, 0.5 }, whole[VGPUS] = { 2, 2, 2 }, none[VGPUS] = { 0 };
	struct rig rig = rig_new();

	(void)state;
	for (unsigned i = 0; i < 200; i++)
		pass(&rig, parts, whole, none);
	assert_int_equal(report(&rig, 0).sm_ppm, 1000000);
	assert_in_range(report(&rig, 1).mem_ppm, 1, 1000); /* known, and next to none */
	for (unsigned i = 0; i < 20; i++)
		pass(&rig, none, whole, whole); /* nobody ran */
	assert_int_equal(report(&rig, 0).sm_ppm, 1000000);
	sched_busy(rig.sched, UINT32_MAX, UINT32_MAX, 0, rig.now_ns); /* no time has passed */
	sched_busy(rig.sched, UINT32_MAX, UINT32_MAX, 0, rig.now_ns + 1);
	assert_int_equal(report(&rig, 0).sm_ppm, 1000000);
	sched_free(rig.sched);
}

static int note(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	(void)hook, (void)ctx, (void)size;
	++*(unsigned *)context;
	return BELFRY_DEFAULT;
}

static void policies_are_told(void **state)
{
	static const double alone[VGPUS] = { 0.6 }, sm[VGPUS] = { 0.9 }, mem[VGPUS] = { 0.2 };
	static struct belfry_vgpu table[BELFRY_VGPUS_MAX];
	unsigned asked = 0;
	const struct sched_policy policy = {
		.hooks = 1u << BELFRY_HOOK_FAULT, .ask = note, .context = &asked, .table = table
	};
	struct rig rig = rig_new();
	struct belfry_fault ctx = { .code = 31 };

	(void)state;
	pass(&rig, alone, sm, mem);
	sched_set_policy(rig.sched, &policy, rig.now_ns);
	sched_ask(rig.sched, BELFRY_HOOK_FAULT, rig.vgpus[0], &ctx, sizeof(ctx), rig.now_ns);
	assert_int_equal(asked, 1);
	assert_true(ctx.head.vgpu < ctx.head.count);
	sim_assert_near("SMs", table[ctx.head.vgpu].sm_ppm / 1e4, 90, 5);
	sim_assert_near("memory", table[ctx.head.vgpu].mem_ppm / 1e4, 20, 5);
	sched_free(rig.sched);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_alone_is_known_at_once),
		cmocka_unit_test(who_comes_is_told_from_who_was_there),
		cmocka_unit_test(what_has_changed_is_followed),
		cmocka_unit_test(those_who_take_turns_are_told_apart),
		cmocka_unit_test(a_slow_clock_of_the_gpu_makes_no_difference),
		cmocka_unit_test(nonsense_and_silence_do_no_harm),
		cmocka_unit_test(policies_are_told),
	};

	return cmocka_run_group_tests_name("sched_busy", tests, NULL, NULL);
}

/* Shared domains: groups that are on the GPU together, like the programs of one MPS server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "hw_rig.h"

enum { DOMAIN = 5, ROUNDS = 100000 / GPU_RIG_LESS, FULL = 4 * 32 /* blocks: as many as 4 SMs hold */ };

static const uint64_t all[SOFT_SMS_MAX / 64] = { 15 }, low[SOFT_SMS_MAX / 64] = { 3 },
					 high[SOFT_SMS_MAX / 64] = { 12 };

static struct gpu_rig rig;

static int begin(void **state)
{
	(void)state;
	gpu_open(&rig, NULL, true);
	return 0;
}

static int end(void **state)
{
	(void)state;
	gpu_close(&rig);
	return 0;
}

static void open_on(struct app *app, uint32_t domain, const uint64_t *sms)
{
	app_open(app, rig.gpu, app_work_text);
	assert_int_equal(hw_group_set_domain(app->group, domain), 0);
	hw_channel_set_sms(app->channel, sms);
}

static void start_on(struct app *app, uint32_t domain, const uint64_t *sms, uint32_t blocks, uint32_t rounds)
{
	open_on(app, domain, sms);
	app_time_work(app, app_alloc(app, (size_t)blocks * 32 * 4, NULL), blocks, rounds);
	app_submit(app);
}

/* How long two programs with equal work take, from the first start to the last end. */
static uint64_t two_take_ns(uint32_t domain, const uint64_t *a_sms, const uint64_t *b_sms)
{
	uint64_t start, end;
	struct app a, b;

	open_on(&a, domain, a_sms);
	open_on(&b, domain, b_sms);
	hw_channels_disable(&a.channel, 1, true); /* so that both start together */
	hw_channels_disable(&b.channel, 1, true);
	app_time_work(&a, app_alloc(&a, 4096, NULL), 8, ROUNDS);
	app_time_work(&b, app_alloc(&b, 4096, NULL), 8, ROUNDS);
	app_submit(&a);
	app_submit(&b);
	hw_channels_disable((struct hw_channel *[]){ a.channel, b.channel }, 2, false);
	app_assert_result(&a, 8, ROUNDS);
	app_assert_result(&b, 8, ROUNDS);
	start = app_slot_time(&a, 0) < app_slot_time(&b, 0) ? app_slot_time(&a, 0) : app_slot_time(&b, 0);
	end = app_slot_time(&a, 1) > app_slot_time(&b, 1) ? app_slot_time(&a, 1) : app_slot_time(&b, 1);
	app_close(&a);
	app_close(&b);
	return end - start;
}

/* The time of 8 blocks on this many SMs. */
static uint64_t alone_ns(unsigned sms)
{
	return app_work_cost(ROUNDS, 8 * 32ull) / sms * 1000000000ull / rig.options.rate;
}

/* At least that long, up to roundings. A host that is late makes it a little longer. */
static void assert_takes(uint64_t got_ns, uint64_t want_ns)
{
	if (got_ns < want_ns * 97 / 100 || got_ns > want_ns * 3 / 2)
		fail_msg("%llu ns, not %llu", (unsigned long long)got_ns, (unsigned long long)want_ns);
}

static void on_disjoint_sms_two_take_half_of_the_time_in_turns(void **state)
{
	(void)state;
	assert_takes(two_take_ns(0, low, high), 2 * alone_ns(2));
	assert_takes(two_take_ns(DOMAIN, low, high), alone_ns(2));
}

static void on_the_same_sms_two_take_as_long_as_in_turns(void **state)
{
	(void)state;
	assert_takes(two_take_ns(0, all, all), 2 * alone_ns(4));
	assert_takes(two_take_ns(DOMAIN, all, all), 2 * alone_ns(4));
}

/* Neither has a mask. Each has two blocks, for which there is an SM each. */
static void small_kernels_use_different_sms(void **state)
{
	struct app a, b;

	(void)state;
	start_on(&b, DOMAIN, all, 2, APP_FOREVER);
	app_wait_running(&b);
	start_on(&a, DOMAIN, all, 2, ROUNDS);
	app_assert_result(&a, 2, ROUNDS);
	assert_takes(app_slot_time(&a, 1) - app_slot_time(&a, 0),
		     app_work_cost(ROUNDS, 32) * 1000000000ull / rig.options.rate);
	app_close(&a);
	app_close(&b);
}

/* The GPU time of three programs, all at one moment. */
static void read_held(struct app *const apps[3], uint64_t held[3])
{
	uint64_t now;

	do {
		now = hw_gpu_now_ns(rig.gpu);
		for (unsigned i = 0; i < 3; i++)
			held[i] = app_time(apps[i]).held_ns;
	} while (hw_gpu_now_ns(rig.gpu) - now > 300000); /* another thread had the processor in between */
}

/* The GPU time of two programs of a domain and of one outside of it, for a while. */
static void share_with_another(uint64_t us, uint64_t held[3])
{
	struct app a, b, c, *const apps[3] = { &a, &b, &c };
	uint64_t before[3];

	start_on(&a, DOMAIN, low, 8, APP_FOREVER);
	start_on(&b, DOMAIN, high, 8, APP_FOREVER);
	start_on(&c, 0, all, 8, APP_FOREVER);
	hw_group_set_timeslice(b.group, us);
	for (unsigned i = 0; i < 3; i++)
		app_wait_running(apps[i]);
	read_held(apps, before);
	gpu_wait_ms(rig.gpu, 240 / GPU_RIG_LESS);
	read_held(apps, held);
	for (unsigned i = 0; i < 3; i++) {
		held[i] -= before[i];
		app_close(apps[i]);
	}
}

static void others_take_turns_with_the_domain(void **state)
{
	uint64_t held[3];

	(void)state;
	share_with_another(2000, held);
	rig_assert_near(held[0] + held[1], held[2], 15);
	rig_assert_near(held[0], held[1], 15);
}

static void the_longest_timeslice_is_the_domains(void **state)
{
	uint64_t held[3];

	(void)state;
	share_with_another(6000, held);
	rig_assert_near(held[0] + held[1], 3 * held[2], 20);
	rig_assert_near(held[0], held[1], 15);
}

/* One SM and three SMs: a quarter of the time and three quarters. Together it is the time of their turn. */
static void time_is_divided_by_work(void **state)
{
	const uint64_t one[SOFT_SMS_MAX / 64] = { 1 }, three[SOFT_SMS_MAX / 64] = { 14 };
	uint64_t held[2], busy;
	struct app a, b;

	(void)state;
	start_on(&a, DOMAIN, one, 8, APP_FOREVER);
	start_on(&b, DOMAIN, three, 12, APP_FOREVER);
	app_wait_running(&a);
	app_wait_running(&b);
	hw_channels_disable((struct hw_channel *[]){ a.channel, b.channel }, 2, true);
	held[0] = app_time(&a).held_ns;
	held[1] = app_time(&b).held_ns;
	busy = hw_gpu_busy_ns(rig.gpu);
	hw_channels_disable((struct hw_channel *[]){ a.channel, b.channel }, 2, false);
	gpu_wait_ms(rig.gpu, 200 / GPU_RIG_LESS);
	hw_channels_disable((struct hw_channel *[]){ a.channel, b.channel }, 2, true);
	held[0] = app_time(&a).held_ns - held[0];
	held[1] = app_time(&b).held_ns - held[1];
	busy = hw_gpu_busy_ns(rig.gpu) - busy;
	rig_assert_near(4 * held[0], busy, 15);
	rig_assert_near(held[0] + held[1], busy, 1);
	app_close(&a);
	app_close(&b);
}

/* A copy uses one engine, like a kernel on one SM. */
static void copies_are_work_too(void **state)
{
	const uint64_t one[SOFT_SMS_MAX / 64] = { 1 };
	uint64_t from, to;
	struct app a, b;

	(void)state;
	start_on(&a, DOMAIN, one, 8, APP_FOREVER);
	open_on(&b, DOMAIN, all);
	from = app_alloc(&b, 8 << 20, NULL);
	to = app_alloc(&b, 8 << 20, NULL);
	app_wait_running(&a);
	for (unsigned i = 0; i < 20; i++)
		app_copy(&b, to, from, 8 << 20);
	app_fence(&b);
	rig_assert_near(app_time(&b).held_ns * 2, 20 * (8ull << 20), 15); /* a byte takes 1 ns */
	app_close(&a);
	app_close(&b);
}

/* The blocks of the stopped one fill all SMs. They wait there, and take no space. */
static void stop_of_one_leaves_the_other_running(void **state)
{
	struct app a, b;

	(void)state;
	start_on(&a, DOMAIN, all, FULL, 2 * ROUNDS / 8);
	app_wait_running(&a);
	hw_channels_disable(&a.channel, 1, true);
	start_on(&b, DOMAIN, all, 8, ROUNDS);
	app_assert_result(&b, 8, ROUNDS);
	app_assert_stands_still(&a);
	hw_channels_disable(&a.channel, 1, false);
	app_assert_result(&a, FULL, 2 * ROUNDS / 8);
	app_close(&a);
	app_close(&b);
}

static void unscheduled_group_leaves_the_other_running(void **state)
{
	struct app a, b;

	(void)state;
	start_on(&a, DOMAIN, all, FULL, 2 * ROUNDS / 8);
	start_on(&b, DOMAIN, all, 8, ROUNDS);
	app_wait_running(&a);
	hw_group_set_scheduled(a.group, false);
	app_assert_result(&b, 8, ROUNDS);
	app_assert_stands_still(&a);
	hw_group_set_scheduled(a.group, true);
	app_assert_result(&a, FULL, 2 * ROUNDS / 8);
	app_close(&a);
	app_close(&b);
}

/* The SMs of the stopped one are idle meanwhile. It must not use that time afterwards. */
static void stopped_work_is_not_done_in_the_past(void **state)
{
	uint64_t took_ns, at[4];
	struct app a, b;

	(void)state;
	start_on(&a, DOMAIN, low, 8, ROUNDS);
	start_on(&b, DOMAIN, high, 8, APP_FOREVER);
	app_wait_running(&a);
	at[0] = hw_gpu_now_ns(rig.gpu);
	hw_channels_disable(&a.channel, 1, true);
	at[1] = hw_gpu_now_ns(rig.gpu);
	gpu_wait_ms(rig.gpu, 100);
	at[2] = hw_gpu_now_ns(rig.gpu);
	hw_channels_disable(&a.channel, 1, false);
	at[3] = hw_gpu_now_ns(rig.gpu);
	app_assert_result(&a, 8, ROUNDS);
	took_ns = app_slot_time(&a, 1) - app_slot_time(&a, 0);
	/* A quantum before the stop may be computed 0.4 ms early. The clock may be 10 ms ahead of the work
	 * whenever the host is late. */
	assert_true(took_ns + 1000000 >= alone_ns(2) + at[2] - at[1]);
	assert_true(took_ns <= alone_ns(2) + at[3] - at[0] + 50000000);
	app_close(&a);
	app_close(&b);
}

static void preempted_one_leaves_the_turn_to_the_other(void **state)
{
	struct app a, b;
	uint64_t turns;

	(void)state;
	start_on(&a, DOMAIN, low, 8, ROUNDS);
	start_on(&b, DOMAIN, high, 8, APP_FOREVER);
	app_wait_running(&a);
	app_wait_running(&b);
	turns = app_time(&b).turns;
	for (unsigned i = 0; i < 100; i++)
		hw_group_preempt(a.group);
	app_wait_running(&b); /* in a new turn, if its own had ended */
	assert_int_equal(app_time(&b).turns, turns);
	app_assert_result(&a, 8, ROUNDS);
	app_close(&a);
	app_close(&b);
}

/* One that ends leaves its space to launches that wait for it. */
static void space_of_one_that_ends_goes_to_the_other(void **state)
{
	struct app a, b;

	(void)state;
	start_on(&a, DOMAIN, all, FULL, APP_FOREVER);
	app_wait_running(&a);
	start_on(&b, DOMAIN, all, 8, ROUNDS);
	gpu_wait_ms(rig.gpu, 20);
	assert_int_equal(app_time(&b).thread_instructions, 0); /* there is no space */
	app_close(&a);
	app_assert_result(&b, 8, ROUNDS);
	app_close(&b);
}

static void one_that_leaves_the_domain_finds_space(void **state)
{
	struct app a, b;

	(void)state;
	start_on(&a, DOMAIN, all, FULL, APP_FOREVER);
	app_wait_running(&a);
	start_on(&b, DOMAIN, all, 8, ROUNDS);
	gpu_wait_ms(rig.gpu, 20);
	assert_int_equal(hw_group_set_domain(b.group, 0), 0);
	app_assert_result(&b, 8, ROUNDS);
	app_close(&a);
	app_close(&b);
}

static void group_changes_its_domain_while_it_runs(void **state)
{
	struct app a, b;

	(void)state;
	app_start_work(&a, rig.gpu, 100, 30000 / GPU_RIG_LESS);
	app_start_work(&b, rig.gpu, 100, 30000 / GPU_RIG_LESS);
	for (uint32_t i = 1; i < 10; i++) {
		gpu_wait_ms(rig.gpu, 3);
		hw_group_set_domain(a.group, i % 3);
		hw_group_set_domain(b.group, i % 2);
	}
	app_assert_result(&a, 100, 30000 / GPU_RIG_LESS);
	app_assert_result(&b, 100, 30000 / GPU_RIG_LESS);
	app_close(&a);
	app_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_disjoint_sms_two_take_half_of_the_time_in_turns),
		cmocka_unit_test(on_the_same_sms_two_take_as_long_as_in_turns),
		cmocka_unit_test(small_kernels_use_different_sms),
		cmocka_unit_test(others_take_turns_with_the_domain),
		cmocka_unit_test(the_longest_timeslice_is_the_domains),
		cmocka_unit_test(time_is_divided_by_work),
		cmocka_unit_test(copies_are_work_too),
		cmocka_unit_test(stop_of_one_leaves_the_other_running),
		cmocka_unit_test(unscheduled_group_leaves_the_other_running),
		cmocka_unit_test(stopped_work_is_not_done_in_the_past),
		cmocka_unit_test(preempted_one_leaves_the_turn_to_the_other),
		cmocka_unit_test(space_of_one_that_ends_goes_to_the_other),
		cmocka_unit_test(one_that_leaves_the_domain_finds_space),
		cmocka_unit_test(group_changes_its_domain_while_it_runs),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

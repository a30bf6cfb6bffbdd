/* Many vGPUs: a decision that does not look at each of them is the same as one made on a table of all. */
#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000ull
#define S 1000000000ull

enum { VGPUS = 96, HISTORIES = 24, EVENTS = 3000, ORDERS_MAX = 16 * (VGPUS + 1) };

static uint64_t seed;

static unsigned any(unsigned below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(seed >> 33) % below;
}

/* The same history twice: `table` has a watch that wants the table of every decision, `queue` has none. */
struct twins {
	struct sched *table, *queue;
	struct sched_vgpu *in_table[VGPUS], *in_queue[VGPUS];
	bool is_open[VGPUS], is_present[VGPUS], is_held[VGPUS];
	uint64_t now_ns, decisions, orders;
};

static void count(void *context, const struct sched_decision *decision, const void *ctx, size_t size,
		  const struct belfry_vgpu *table)
{
	struct twins *twins = context;

	(void)ctx, (void)size;
	assert_non_null(table);
	twins->decisions += decision->hook == BELFRY_HOOK_PICK;
}

static struct sched_share any_share(void)
{
	struct sched_share share = { .limit_ppm = SCHED_WHOLE_PPM, .interleave = -1 };

	if (any(3))
		share.request_ppm = 1000 * any(10);
	if (any(4) == 0)
		share.limit_ppm = 10000 + 10000 * any(60);
	if (any(5) == 0)
		share.class = SCHED_LATENCY;
	if (any(5) == 0)
		share.domain = 1 + any(4);
	return share;
}

static void add(struct twins *twins, size_t i)
{
	struct sched_share share = any_share();

	twins->in_table[i] = sched_add(twins->table, &share, (void *)(i + 1), twins->now_ns);
	twins->in_queue[i] = sched_add(twins->queue, &share, (void *)(i + 1), twins->now_ns);
	assert_non_null(twins->in_table[i]);
	assert_non_null(twins->in_queue[i]);
}

static void remove_both(struct twins *twins, size_t i)
{
	sched_remove(twins->table, twins->in_table[i], twins->now_ns);
	sched_remove(twins->queue, twins->in_queue[i], twins->now_ns);
	twins->in_table[i] = twins->in_queue[i] = NULL;
	twins->is_open[i] = twins->is_present[i] = twins->is_held[i] = false;
}

static void set_present(struct twins *twins, size_t i)
{
	bool is_present = twins->is_present[i] = !twins->is_present[i];

	sched_set_present(twins->table, twins->in_table[i], is_present, twins->now_ns);
	sched_set_present(twins->queue, twins->in_queue[i], is_present, twins->now_ns);
	if (!is_present)
		twins->is_open[i] = twins->is_held[i] = false;
	sched_hold(twins->table, twins->in_table[i], twins->is_held[i], twins->now_ns);
	sched_hold(twins->queue, twins->in_queue[i], twins->is_held[i], twins->now_ns);
	twins->is_open[i] = false;
}

static void hold(struct twins *twins, size_t i)
{
	twins->is_held[i] = !twins->is_held[i];
	twins->is_open[i] = false;
	sched_hold(twins->table, twins->in_table[i], twins->is_held[i], twins->now_ns);
	sched_hold(twins->queue, twins->in_queue[i], twins->is_held[i], twins->now_ns);
}

static void get_work(struct twins *twins, size_t i)
{
	void (*happens)(struct sched *, struct sched_vgpu *, uint64_t) = twins->is_open[i] ? sched_runs
											   : sched_waits;

	if (!twins->is_present[i])
		return;
	happens(twins->table, twins->in_table[i], twins->now_ns);
	happens(twins->queue, twins->in_queue[i], twins->now_ns);
}

static void happen(struct twins *twins)
{
	size_t i = any(VGPUS);
	struct sched_share share;
	uint64_t ns;

	if (!twins->in_table[i]) {
		add(twins, i);
		return;
	}
	switch (any(24)) {
	case 0:
		remove_both(twins, i);
		break;
	case 1:
	case 2:
		set_present(twins, i);
		break;
	case 3:
		hold(twins, i);
		break;
	case 4:
		share = any_share();
		sched_set(twins->table, twins->in_table[i], &share, twins->now_ns);
		sched_set(twins->queue, twins->in_queue[i], &share, twins->now_ns);
		break;
	case 5:
	case 6:
	case 7:
		sched_done(twins->table, twins->in_table[i], twins->now_ns);
		sched_done(twins->queue, twins->in_queue[i], twins->now_ns);
		break;
	case 8:
	case 9:
		ns = any(3000000);
		sched_used(twins->table, twins->in_table[i], ns, twins->now_ns);
		sched_used(twins->queue, twins->in_queue[i], ns, twins->now_ns);
		break;
	default:
		get_work(twins, i);
	}
}

static void carry_out(struct twins *twins, const struct sched_order *a, const struct sched_order *b)
{
	size_t i = (size_t)sched_owner(a->vgpu) - 1;

	assert_int_equal(a->kind, b->kind);
	assert_ptr_equal(twins->in_table[i], a->vgpu);
	assert_ptr_equal(twins->in_queue[i], b->vgpu);
	assert_int_equal(a->timeslice_us, b->timeslice_us);
	assert_int_equal(a->interleave, b->interleave);
	if (a->kind == SCHED_OPEN || a->kind == SCHED_CLOSE)
		twins->is_open[i] = a->kind == SCHED_OPEN;
	twins->now_ns += a->kind == SCHED_STOP ? 700000 : a->kind == SCHED_OPEN ? 350000 : 0;
	if (a->kind == SCHED_STOP) {
		sched_stopped(twins->table, a->vgpu, twins->now_ns);
		sched_stopped(twins->queue, b->vgpu, twins->now_ns);
	} else if (a->kind == SCHED_OPEN) {
		sched_resumed(twins->table, a->vgpu, twins->now_ns);
		sched_resumed(twins->queue, b->vgpu, twins->now_ns);
	}
}

static void decide(struct twins *twins)
{
	struct sched_order a, b;
	unsigned orders = 0;

	while (sched_next(twins->table, twins->now_ns, &a)) {
		assert_true(sched_next(twins->queue, twins->now_ns, &b));
		carry_out(twins, &a, &b);
		assert_true(++orders < ORDERS_MAX);
	}
	assert_false(sched_next(twins->queue, twins->now_ns, &b));
	assert_int_equal(sched_wake_ns(twins->table), sched_wake_ns(twins->queue));
	twins->orders += orders;
}

static void compare_reports(const struct twins *twins)
{
	for (size_t i = 0; i < VGPUS; i++) {
		struct sched_report a, b;

		if (!twins->in_table[i])
			continue;
		sched_report(twins->table, twins->in_table[i], &a);
		sched_report(twins->queue, twins->in_queue[i], &b);
		assert_int_equal(a.state, b.state);
		assert_int_equal(a.reason, b.reason);
		assert_int_equal(a.waited_ns, b.waited_ns);
		assert_int_equal(a.limited_ns, b.limited_ns);
		assert_int_equal(a.stopped_ns, b.stopped_ns);
		assert_int_equal(a.grants, b.grants);
		/* What is owed is added up in another order. */
		assert_true(llabs(a.owed_ns - b.owed_ns) <= 2);
	}
}

/* Time passes until something is due, or for a while. */
static void pass_time(struct twins *twins)
{
	uint64_t wake_ns = sched_wake_ns(twins->table), ns = any(8) ? any(400000) : any(60000000);

	if (any(3) && wake_ns > twins->now_ns && wake_ns - twins->now_ns < 50 * MS)
		twins->now_ns = wake_ns;
	else
		twins->now_ns += ns;
}

static void run_history(uint64_t number, uint64_t *decisions, uint64_t *orders)
{
	struct sched_options options = sched_default;
	struct twins twins = { .now_ns = 1000 * S };
	struct sched_watch watch = { .decided = count, .context = &twins, .wants_all = true };

	seed = number;
	options.how = number % 3 ? SCHED_TOKENS : SCHED_AUTO;
	options.is_measured = number % 2;
	twins.table = sched_new(&options, twins.now_ns);
	twins.queue = sched_new(&options, twins.now_ns);
	assert_non_null(twins.table);
	assert_non_null(twins.queue);
	sched_watch(twins.table, &watch);
	for (unsigned event = 0; event < EVENTS; event++) {
		happen(&twins);
		decide(&twins);
		if (event % 16 == 0)
			compare_reports(&twins);
		pass_time(&twins);
		decide(&twins);
	}
	*decisions += twins.decisions;
	*orders += twins.orders;
	sched_free(twins.table);
	sched_free(twins.queue);
}

static void a_queue_decides_as_a_table_of_all_does(void **state)
{
	uint64_t decisions = 0, orders = 0;

	(void)state;
	for (uint64_t number = 1; number <= HISTORIES; number++)
		run_history(number, &decisions, &orders);
	print_message("%u picks, %u orders\n", (unsigned)decisions, (unsigned)orders);
	assert_true(decisions > 5000 && orders > 20000);
}

/* A vGPU with a limit that was spent is let go on when its budget allows it, however often sched was asked before. */
static uint64_t goes_on_after_ns(uint64_t every_ns)
{
	struct sched_share share = { .limit_ppm = 150000, .interleave = -1 };
	struct sched_options options = sched_default;
	struct sched_order order;
	struct sched *sched;
	struct sched_vgpu *v;
	uint64_t now_ns = 1000 * S, from_ns;

	options.is_measured = true;
	options.how = SCHED_TOKENS;
	sched = sched_new(&options, now_ns);
	v = sched_add(sched, &share, NULL, now_ns);
	sched_set_present(sched, v, true, now_ns);
	sched_waits(sched, v, now_ns);
	sched_used(sched, v, 1 * MS, now_ns);
	from_ns = now_ns;
	for (;;) {
		while (sched_next(sched, now_ns, &order))
			if (order.kind == SCHED_OPEN) {
				sched_free(sched);
				return now_ns - from_ns;
			}
		assert_true(sched_wake_ns(sched) > now_ns);
		now_ns = every_ns && now_ns + every_ns < sched_wake_ns(sched) ? now_ns + every_ns
									      : sched_wake_ns(sched);
	}
}

static void a_budget_does_not_depend_on_how_often_it_is_looked_at(void **state)
{
	uint64_t once_ns = goes_on_after_ns(0);

	(void)state;
	assert_true(once_ns > 1 * MS);
	assert_int_equal(goes_on_after_ns(333), once_ns);
	assert_int_equal(goes_on_after_ns(1001), once_ns);
}

/* 300 vGPUs take turns with the token: each has the same number of slices, and knows how long it waited. */
static void many_take_turns(void **state)
{
	enum { MANY = 300, ROUNDS = 5 };
	struct sched_options options = sched_default;
	struct sched_share share = { .limit_ppm = SCHED_WHOLE_PPM, .interleave = -1 };
	static struct sched_vgpu *vgpus[MANY];
	struct sched_waited waited[16];
	struct sched_report report;
	struct sched_order order;
	uint64_t now_ns = 1000 * S, from_ns = now_ns, asked_ns = now_ns;
	struct sched *sched;

	(void)state;
	options.how = SCHED_TOKENS;
	sched = sched_new(&options, now_ns);
	for (unsigned i = 0; i < MANY; i++) {
		vgpus[i] = sched_add(sched, &share, NULL, now_ns);
		sched_set_present(sched, vgpus[i], true, now_ns);
		sched_waits(sched, vgpus[i], now_ns);
	}
	while (sched_handovers(sched) < (uint64_t)MANY * ROUNDS) {
		while (sched_next(sched, now_ns, &order))
			if (order.kind == SCHED_STOP)
				sched_stopped(sched, order.vgpu, now_ns);
			else if (order.kind == SCHED_OPEN)
				sched_resumed(sched, order.vgpu, now_ns);
		assert_true(sched_wake_ns(sched) > now_ns);
		asked_ns = now_ns;
		now_ns = sched_wake_ns(sched);
	}
	for (unsigned i = 0; i < MANY; i++) {
		sched_report(sched, vgpus[i], &report);
		assert_in_range(report.grants, ROUNDS - 1, ROUNDS + 1);
		assert_int_equal(report.waited_ns + report.held_ns, asked_ns - from_ns);
		assert_int_equal(sched_waited_for(vgpus[i], waited, 16), 16);
	}
	sched_free(sched);
}

static void a_waiter_is_let_in_when_the_holder_joins_its_domain(void **state)
{
	struct sched_share alone = { .limit_ppm = SCHED_WHOLE_PPM, .interleave = -1 }, domain = alone;
	struct sched_options options = sched_default;
	uint64_t now_ns = 1000 * S;
	struct sched_vgpu *holder, *waiter;
	struct sched_order order;
	struct sched *sched;

	(void)state;
	options.how = SCHED_TOKENS;
	domain.domain = 5;
	sched = sched_new(&options, now_ns);
	holder = sched_add(sched, &alone, NULL, now_ns);
	waiter = sched_add(sched, &domain, NULL, now_ns);
	sched_set_present(sched, holder, true, now_ns);
	sched_set_present(sched, waiter, true, now_ns);
	sched_waits(sched, holder, now_ns);
	assert_true(sched_next(sched, now_ns, &order));
	assert_ptr_equal(order.vgpu, holder);
	sched_waits(sched, waiter, now_ns);
	assert_false(sched_next(sched, now_ns + 1, &order));
	sched_set(sched, holder, &domain, now_ns + 2);
	assert_true(sched_next(sched, now_ns + 2, &order));
	assert_int_equal(order.kind, SCHED_OPEN);
	assert_ptr_equal(order.vgpu, waiter);
	sched_free(sched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_queue_decides_as_a_table_of_all_does),
		cmocka_unit_test(a_budget_does_not_depend_on_how_often_it_is_looked_at),
		cmocka_unit_test(many_take_turns),
		cmocka_unit_test(a_waiter_is_let_in_when_the_holder_joins_its_domain),
	};

	return cmocka_run_group_tests_name("sched_many", tests, NULL, NULL);
}

/* gate: several vGPUs, several threads, and what the house is told of them. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tower.h"

/* A second vGPU, with a program of one channel. */
#define OTHER_TOKEN 0x777u
struct annex {
	struct gate_vgpu *vgpu;
	struct gate_program *program;
	struct gate_channel *channel;
	struct page bell, userd, gpu;
};

static struct annex annex_new(struct gate *gate, uint32_t token)
{
	struct annex a = {
		.vgpu = gate_vgpu_add(gate), .bell = page_new(), .userd = page_new(), .gpu = page_new()
	};

	assert_non_null(a.vgpu);
	a.program = gate_program_add(a.vgpu);
	assert_non_null(a.program);
	assert_non_null(gate_bell_add(a.program, a.bell.gate));
	a.channel = gate_channel_add(a.program, a.userd.gate, a.gpu.gate);
	assert_non_null(a.channel);
	gate_channel_set_token(a.channel, token);
	return a;
}

static void annex_free(struct annex *a)
{
	gate_vgpu_remove(a->vgpu);
	page_free(&a->bell);
	page_free(&a->userd);
	page_free(&a->gpu);
}

/* What was submitted may be found before its bell is: a bell is not rung over another, so that each is counted. */
static void annex_ring(struct annex *a, uint32_t token, uint32_t put)
{
	wait_word(&a->bell.test[GATE_BELL_WORD], GATE_NO_TOKEN);
	atomic_store(&a->userd.test[GATE_GP_PUT_WORD], put);
	atomic_store(&a->bell.test[GATE_BELL_WORD], token);
}

/* The poller counts after it has passed something on. */
static void wait_rings(const struct gate_vgpu *vgpu, uint64_t rings)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	while (gate_vgpu_counts(vgpu).rings < rings) {
		if (bf_now_ns() > give_up_ns)
			fail_msg("%lu rings never came", (unsigned long)rings);
		sched_yield();
	}
}

static void vgpus_are_counted_one_by_one(void **state)
{
	struct tower *t = tower_new(NULL);
	struct annex other = annex_new(t->gate, OTHER_TOKEN);
	uint64_t start_ns = bf_now_ns();

	(void)state;
	for (uint32_t put = 1; put <= 5; put++) {
		ring(t, 0, put);
		wait_word(&t->gpu[0].test[GATE_GP_PUT_WORD], put);
		wait_rings(t->vgpu, put);
	}
	assert_int_equal(gate_vgpu_counts(other.vgpu).forwards, 0);
	assert_int_equal(gate_vgpu_counts(other.vgpu).last_forward_ns, 0);
	annex_ring(&other, OTHER_TOKEN, 1);
	wait_word(&other.gpu.test[GATE_GP_PUT_WORD], 1);
	wait_rings(other.vgpu, 1);
	poller_goes_around(t);
	struct gate_vgpu_counts one = gate_vgpu_counts(t->vgpu), two = gate_vgpu_counts(other.vgpu);
	assert_int_equal(one.rings, 5);
	assert_int_equal(one.forwards, 5);
	assert_int_equal(two.rings, 1);
	assert_int_equal(two.forwards, 1);
	assert_in_range(one.last_forward_ns, start_ns, bf_now_ns());
	assert_in_range(two.last_forward_ns, one.last_forward_ns, bf_now_ns());
	assert_int_equal(gate_counts(t->gate).forwards, 6);
	assert_int_equal(gate_channel_sent(t->channel[0]), 5);
	assert_int_equal(gate_channel_sent(t->channel[1]), 0);
	assert_int_equal(gate_channel_sent(other.channel), 1);
	annex_free(&other);
	tower_free(t);
}

static void ring_once_more(struct tower *t, uint32_t put)
{
	ring(t, 0, put);
	wait_word(&t->gpu[0].test[GATE_GP_PUT_WORD], put);
	wait_rings(t->vgpu, put);
	poller_goes_around(t); /* when that was is noted last */
}

static uint64_t found_after(const struct gate_vgpu *vgpu, uint64_t after_ns)
{
	struct gate_came came = gate_vgpu_came_after(vgpu, after_ns);

	assert_true(came.likely_ns <= came.found_ns);
	return came.found_ns;
}

static void what_came_after_a_moment_is_known_for_a_while(void **state)
{
	struct tower *t = tower_new(NULL);
	uint64_t start_ns = bf_now_ns(), moment_ns, found_ns;

	(void)state;
	assert_int_equal(found_after(t->vgpu, 0), 0);
	ring_once_more(t, 1);
	moment_ns = bf_now_ns();
	assert_in_range(found_after(t->vgpu, start_ns), start_ns, moment_ns);
	assert_int_equal(found_after(t->vgpu, moment_ns), 0);
	ring_once_more(t, 2);
	found_ns = found_after(t->vgpu, moment_ns);
	assert_in_range(found_ns, moment_ns, bf_now_ns());
	ring_once_more(t, 3);
	assert_int_equal(found_after(t->vgpu, moment_ns), found_ns);
	for (uint32_t put = 4; put <= 3 + GATE_FORWARDS_KEPT; put++)
		ring_once_more(t, put);
	assert_int_equal(found_after(t->vgpu, moment_ns), 0); /* too long ago */
	tower_free(t);
}

/* A poller that looks every 20 ms finds a ring up to 20 ms late: it is likely to have come halfway. A ring that comes while
 * the poller has not gone to rest yet is found at once. */
static void what_is_found_late_came_earlier(void **state)
{
	static const struct gate_rest slow = { .spin_us = 0, .stages = { { 20000, 0 } } };
	struct tower *t = tower_new(&slow);
	struct gate_came came = { 0 };
	uint64_t start_ns;

	(void)state;
	for (uint32_t put = 1; came.found_ns - came.likely_ns < 9000000; put++) {
		assert_true(put < 100);
		start_ns = bf_now_ns();
		ring_once_more(t, put);
		came = gate_vgpu_came_after(t->vgpu, start_ns);
		assert_in_range(came.found_ns, start_ns, bf_now_ns());
		assert_true(came.likely_ns <= came.found_ns);
	}
	tower_free(t);
}

static void waiting_begins_with_the_first_bell_and_ends_with_opening(void **state)
{
	struct tower *t = tower_new(NULL);
	struct annex other = annex_new(t->gate, OTHER_TOKEN);
	uint64_t start_ns, since_ns;

	(void)state;
	for (uint32_t round = 1; round <= 3; round++) {
		gate_close(t->vgpu);
		assert_int_equal(gate_vgpu_counts(t->vgpu).waiting_since_ns, 0);
		start_ns = bf_now_ns();
		ring(t, 0, round);
		wait_rings(t->vgpu, 2ull * round - 1);
		poller_goes_around(t);
		since_ns = gate_vgpu_counts(t->vgpu).waiting_since_ns;
		assert_in_range(since_ns, start_ns, bf_now_ns());
		ring(t, 1, round); /* another does not begin it again */
		wait_rings(t->vgpu, 2ull * round);
		gate_close(t->vgpu); /* and neither does closing what is closed */
		assert_int_equal(gate_vgpu_counts(t->vgpu).waiting_since_ns, since_ns);
		assert_int_equal(gate_vgpu_counts(other.vgpu).waiting_since_ns, 0);
		gate_open(t->vgpu);
		assert_int_equal(gate_vgpu_counts(t->vgpu).waiting_since_ns, 0);
		wait_word(&t->gpu[1].test[GATE_GP_PUT_WORD], round);
	}
	annex_free(&other);
	tower_free(t);
}

/* What waited came when its bell rang, not when the gate was opened; what comes later did not wait. */
static void what_waited_came_with_its_bell(void **state)
{
	struct tower *t = tower_new(NULL);
	uint64_t since_ns, opened_ns;

	(void)state;
	for (uint32_t round = 1; round <= 3; round++) {
		gate_vgpu_quiet(t->vgpu);
		gate_close(t->vgpu);
		ring(t, 0, 2 * round - 1);
		wait_rings(t->vgpu, 2ull * round - 1);
		poller_goes_around(t);
		since_ns = gate_vgpu_counts(t->vgpu).waiting_since_ns;
		opened_ns = bf_now_ns();
		gate_open(t->vgpu);
		assert_int_equal(found_after(t->vgpu, since_ns - 1), since_ns);
		assert_int_equal(gate_vgpu_counts(t->vgpu).woke.found_ns, since_ns);
		assert_true(gate_vgpu_counts(t->vgpu).woke_ns >= since_ns);
		assert_int_equal(found_after(t->vgpu, opened_ns), 0);
		ring(t, 1, round);
		wait_rings(t->vgpu, 2ull * round);
		poller_goes_around(t);
		assert_in_range(found_after(t->vgpu, since_ns), opened_ns, bf_now_ns());
	}
	/* A sweep for another reason finds nothing that waited. The poller looks at the clock now and then only. */
	since_ns = found_after(t->vgpu, since_ns);
	for (uint32_t i = 1; !found_after(t->vgpu, since_ns); i++) {
		assert_true(i < 100000);
		atomic_store(&t->userd[2].test[GATE_GP_PUT_WORD], i);
		gate_channel_set_token(t->channel[2], TOKEN + CHANNELS + i % 2);
	}
	tower_free(t);
}

static void count_call(void *context)
{
	atomic_fetch_add((_Atomic unsigned *)context, 1);
}

static void wait_calls(_Atomic unsigned *calls, unsigned count)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	while (atomic_load(calls) < count) {
		if (bf_now_ns() > give_up_ns)
			fail_msg("%u calls never came", count);
		sched_yield();
	}
}

/* One of two vGPUs; the other one is as it was. */
static void house_is_called_when_one_wakes_and_when_one_waits(void **state)
{
	struct page bell = page_new();
	struct gate *gate = gate_new(bell.gate, NULL, NULL);
	_Atomic unsigned calls = 0;

	(void)state;
	assert_non_null(gate);
	gate_set_call(gate, count_call, &calls);
	struct annex one = annex_new(gate, 1), two = annex_new(gate, 2);
	assert_int_equal(gate_vgpu_counts(one.vgpu).woke_ns, 0); /* a new one is quiet */
	uint64_t start_ns = bf_now_ns();
	annex_ring(&one, 1, 1);
	wait_calls(&calls, 1);
	uint64_t woke_ns = gate_vgpu_counts(one.vgpu).woke_ns;
	assert_in_range(woke_ns, start_ns, bf_now_ns());
	assert_int_equal(gate_vgpu_counts(two.vgpu).woke_ns, 0);
	for (uint32_t put = 2; put < 10; put++) { /* awake, it is not told again */
		annex_ring(&one, 1, put);
		wait_word(&one.gpu.test[GATE_GP_PUT_WORD], put);
	}
	wait_rings(one.vgpu, 9);
	assert_int_equal(gate_vgpu_counts(one.vgpu).woke_ns, woke_ns);
	gate_vgpu_quiet(one.vgpu);
	assert_int_equal(gate_vgpu_counts(one.vgpu).woke_ns, 0);
	assert_int_equal(atomic_load(&calls), 1);
	annex_ring(&one, 1, 10);
	wait_calls(&calls, 2);
	assert_true(gate_vgpu_counts(one.vgpu).woke_ns > woke_ns);
	/* A wait is told once, and what is passed on when it ends is no news of one that is awake. */
	gate_close(one.vgpu);
	annex_ring(&one, 1, 11);
	wait_calls(&calls, 3);
	assert_true(gate_vgpu_counts(one.vgpu).waiting_since_ns > woke_ns);
	annex_ring(&one, 1, 12);
	wait_rings(one.vgpu, 12);
	gate_open(one.vgpu);
	wait_word(&one.gpu.test[GATE_GP_PUT_WORD], 12);
	gate_close(one.vgpu);
	assert_int_equal(atomic_load(&calls), 3);
	annex_free(&one);
	annex_free(&two);
	gate_free(gate);
	page_free(&bell);
}

/* A quiet one whose work was held wakes when the gate opens. */
static void work_that_waited_wakes_a_quiet_vgpu(void **state)
{
	struct page bell = page_new();
	struct gate *gate = gate_new(bell.gate, NULL, NULL);
	_Atomic unsigned calls = 0;

	(void)state;
	assert_non_null(gate);
	gate_set_call(gate, count_call, &calls);
	struct annex one = annex_new(gate, 1);
	gate_close(one.vgpu);
	annex_ring(&one, 1, 1);
	wait_calls(&calls, 1); /* it waits */
	assert_int_equal(gate_vgpu_counts(one.vgpu).woke_ns, 0);
	gate_open(one.vgpu);
	wait_calls(&calls, 2); /* it woke */
	assert_true(gate_vgpu_counts(one.vgpu).woke_ns != 0);
	annex_free(&one);
	gate_free(gate);
	page_free(&bell);
}

struct house {
	struct tower *tower;
	uint32_t token;
	_Atomic bool is_over;
};

/* A house of its own: vGPUs come, are held and opened, and go. */
static void *house_main(void *arg)
{
	struct house *house = arg;

	for (uint32_t put = 1; !atomic_load(&house->is_over); put++) {
		struct annex a = annex_new(house->tower->gate, house->token);

		gate_close(a.vgpu);
		annex_ring(&a, house->token, put);
		gate_open(a.vgpu);
		gate_vgpu_quiet(a.vgpu);
		wait_word(&a.gpu.test[GATE_GP_PUT_WORD], put);
		gate_ring_again(a.vgpu);
		annex_free(&a);
	}
	return NULL;
}

static void vgpus_come_and_go_in_several_threads(void **state)
{
	enum { HOUSES = 3, ROUNDS = 400 };
	struct tower *t = tower_new(NULL);
	struct house houses[HOUSES];
	pthread_t threads[HOUSES];

	(void)state;
	for (uint32_t i = 0; i < HOUSES; i++) {
		houses[i] = (struct house){ .tower = t, .token = OTHER_TOKEN + i };
		assert_int_equal(pthread_create(&threads[i], NULL, house_main, &houses[i]), 0);
	}
	/* Whoever is there all the time loses nothing by it. */
	for (uint32_t put = 1; put <= ROUNDS; put++) {
		gate_close(t->vgpu);
		ring(t, put % CHANNELS, put);
		gate_open(t->vgpu);
		wait_word(&t->gpu[put % CHANNELS].test[GATE_GP_PUT_WORD], put);
	}
	for (uint32_t i = 0; i < HOUSES; i++) {
		atomic_store(&houses[i].is_over, true);
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	}
	gate_close(t->vgpu);
	assert_int_equal(gate_vgpu_counts(t->vgpu).forwards, ROUNDS);
	tower_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vgpus_are_counted_one_by_one),
		cmocka_unit_test(what_came_after_a_moment_is_known_for_a_while),
		cmocka_unit_test(what_is_found_late_came_earlier),
		cmocka_unit_test(waiting_begins_with_the_first_bell_and_ends_with_opening),
		cmocka_unit_test(what_waited_came_with_its_bell),
		cmocka_unit_test(house_is_called_when_one_wakes_and_when_one_waits),
		cmocka_unit_test(work_that_waited_wakes_a_quiet_vgpu),
		cmocka_unit_test(vgpus_come_and_go_in_several_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

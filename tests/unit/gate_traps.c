/* gate: breakpoints on doorbells wake the poller. The program is another process, as it must be: a breakpoint belongs to a
 * thread. net_us is longer than any test, so that a ring which no breakpoint reports is never found. */
#include "gate/gate.h"

#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tower.h"

static const struct gate_rest trapped_rest = {
	.spin_us = 100, .stages = { { 50, 1000 }, { 100, 0 } }, .trap_us = 2000, .net_us = 600000000
};

enum order { RING, RING_IN_THREAD, SPRING_AND_RING, FLOOD };
enum { REPEATS = 20, MANY_BELLS = 100 };

/* The program: it rings when it is told to. */
struct program {
	struct tower *tower;
	pid_t pid;
	int orders;
};

static void *ring_once(void *arg)
{
	struct tower *t = arg;

	ring(t, 0, atomic_load(&t->userd[0].test[GATE_GP_PUT_WORD]) + 1);
	return NULL;
}

/* Tokens of no channel, for half a second. */
static void flood(struct tower *t)
{
	uint64_t until_ns = bf_now_ns() + 500000000;

	while (bf_now_ns() < until_ns)
		atomic_store(&t->doorbell.test[GATE_BELL_WORD], 0x5a5a5a5a);
}

static void program_main(struct tower *t, int orders)
{
	pthread_t thread;
	char order;

	while (read(orders, &order, 1) == 1) {
		if (order == RING) {
			ring_once(t);
		} else if (order == FLOOD) {
			flood(t);
		} else if (order == SPRING_AND_RING) { /* a store that is no ring springs the trap */
			atomic_store(&t->doorbell.test[GATE_BELL_WORD], GATE_NO_TOKEN);
			usleep(300);
			ring_once(t);
		} else if (!pthread_create(&thread, NULL, ring_once, t)) {
			pthread_join(thread, NULL);
		}
	}
	_exit(0);
}

static void program_start(struct program *p)
{
	int ends[2];

	p->tower = tower_new(&trapped_rest);
	assert_int_equal(pipe(ends), 0);
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (!p->pid) {
		close(ends[1]);
		program_main(p->tower, ends[0]);
	}
	close(ends[0]);
	p->orders = ends[1];
}

static void program_end(struct program *p)
{
	close(p->orders);
	assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
	tower_free(p->tower);
}

static void tell(const struct program *p, enum order order)
{
	char byte = (char)order;

	assert_int_equal(write(p->orders, &byte, 1), 1);
}

static int open_trap(pid_t pid, const _Atomic uint32_t *word)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_BREAKPOINT,
					.size = sizeof(attr),
					.bp_type = HW_BREAKPOINT_W,
					.bp_addr = (uintptr_t)word,
					.bp_len = HW_BREAKPOINT_LEN_4,
					.sample_period = 1,
					.wakeup_events = 1,
					.inherit = 1,
					.disabled = 1,
					.exclude_kernel = 1,
					.exclude_hv = 1 };

	return (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static void set_trap(const struct program *p)
{
	int event = open_trap(p->pid, &p->tower->doorbell.test[GATE_BELL_WORD]);

	assert_true(event >= 0);
	assert_int_equal(gate_bell_set_traps(p->tower->watched, &event, 1), 0);
}

static void wait_armed(const struct program *p)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	while (!gate_counts(p->tower->gate).is_armed && bf_now_ns() < give_up_ns)
		usleep(100);
	assert_true(gate_counts(p->tower->gate).is_armed);
}

static void ring_wakes_the_sleeping_poller(void **state)
{
	struct program p;

	(void)state;
	program_start(&p);
	set_trap(&p);
	for (uint32_t i = 1; i <= REPEATS; i++) {
		wait_armed(&p);
		tell(&p, RING);
		wait_word(&p.tower->gpu[0].test[GATE_GP_PUT_WORD], i);
		atomic_store(&p.tower->gpu[0].test[GATE_GP_GET_WORD], i); /* the GPU has read it */
	}
	assert_true(gate_counts(p.tower->gate).trapped >= 1);
	program_end(&p);
}

static void thread_that_is_made_later_wakes_it_too(void **state)
{
	struct program p;

	(void)state;
	program_start(&p);
	set_trap(&p);
	wait_armed(&p);
	tell(&p, RING_IN_THREAD);
	wait_word(&p.tower->gpu[0].test[GATE_GP_PUT_WORD], 1);
	program_end(&p);
}

/* The traps are disarmed after the first store: the poller must not sleep on them. */
static void ring_after_a_store_that_is_none_is_found(void **state)
{
	struct program p;

	(void)state;
	program_start(&p);
	set_trap(&p);
	for (uint32_t i = 1; i <= REPEATS; i++) {
		wait_armed(&p);
		tell(&p, SPRING_AND_RING);
		wait_word(&p.tower->gpu[0].test[GATE_GP_PUT_WORD], i);
		atomic_store(&p.tower->gpu[0].test[GATE_GP_GET_WORD], i);
	}
	program_end(&p);
}

static int open_nothing(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
					.size = sizeof(attr),
					.config = PERF_COUNT_SW_DUMMY,
					.disabled = 1,
					.exclude_kernel = 1 };

	return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* A pass reads 64 doorbells of a vGPU. The one that rings is behind those. */
static void ring_is_found_among_many_doorbells(void **state)
{
	struct page bell = page_new();
	struct program p;

	(void)state;
	program_start(&p);
	set_trap(&p);
	for (unsigned i = 0; i < MANY_BELLS; i++) {
		struct gate_bell *other = gate_bell_add(p.tower->program, bell.gate);
		int event = open_nothing();

		assert_non_null(other);
		assert_true(event >= 0);
		assert_int_equal(gate_bell_set_traps(other, &event, 1), 0);
	}
	for (uint32_t i = 1; i <= REPEATS; i++) {
		wait_armed(&p);
		tell(&p, RING);
		wait_word(&p.tower->gpu[0].test[GATE_GP_PUT_WORD], i);
		atomic_store(&p.tower->gpu[0].test[GATE_GP_GET_WORD], i);
	}
	program_end(&p);
	page_free(&bell);
}

static void doorbell_without_a_trap_is_polled(void **state)
{
	struct program p;
	struct page bell = page_new();
	struct gate_bell *other;

	(void)state;
	program_start(&p);
	set_trap(&p);
	wait_armed(&p);
	other = gate_bell_add(p.tower->program, bell.gate);
	assert_non_null(other);
	assert_false(gate_counts(p.tower->gate).is_armed);
	atomic_store(&p.tower->userd[3].test[GATE_GP_PUT_WORD], 9);
	atomic_store(&bell.test[GATE_BELL_WORD], TOKEN + 3);
	wait_word(&p.tower->gpu[3].test[GATE_GP_PUT_WORD], 9);
	atomic_store(&p.tower->gpu[3].test[GATE_GP_GET_WORD], 9);
	gate_bell_remove(other); /* and then all have one again */
	wait_armed(&p);
	page_free(&bell);
	program_end(&p);
}

/* The program may be waiting for room in its ring. */
static void poller_is_awake_until_gp_get_is_returned(void **state)
{
	struct program p;

	(void)state;
	program_start(&p);
	set_trap(&p);
	wait_armed(&p);
	tell(&p, RING);
	wait_word(&p.tower->gpu[0].test[GATE_GP_PUT_WORD], 1);
	usleep(20000); /* ten times trap_us: it would rest by now */
	atomic_store(&p.tower->gpu[0].test[GATE_GP_GET_WORD], 1);
	wait_word(&p.tower->userd[0].test[GATE_GP_GET_WORD], 1);
	program_end(&p);
}

static void flood_springs_few_traps(void **state)
{
	struct program p;
	uint64_t trapped;

	(void)state;
	program_start(&p);
	set_trap(&p);
	wait_armed(&p);
	tell(&p, FLOOD);
	tell(&p, RING); /* after the flood */
	wait_word(&p.tower->gpu[0].test[GATE_GP_PUT_WORD], 1);
	trapped = gate_counts(p.tower->gate).trapped;
	/* Each time that the traps are armed, at most every trap_us, some rings before they are disarmed. */
	assert_in_range(trapped, 1, 2000);
	program_end(&p);
}

static void traps_that_are_forbidden_are_disarmed(void **state)
{
	struct program p;

	(void)state;
	program_start(&p);
	set_trap(&p);
	wait_armed(&p);
	gate_allow_traps(p.tower->gate, false);
	assert_false(gate_counts(p.tower->gate).is_armed);
	tell(&p, RING);
	wait_word(&p.tower->gpu[0].test[GATE_GP_PUT_WORD], 1); /* it is polled */
	atomic_store(&p.tower->gpu[0].test[GATE_GP_GET_WORD], 1);
	gate_allow_traps(p.tower->gate, true);
	wait_armed(&p);
	program_end(&p);
}

static void program_that_dies_while_armed_leaves_nothing(void **state)
{
	struct program p;

	(void)state;
	program_start(&p);
	set_trap(&p);
	wait_armed(&p);
	kill(p.pid, SIGKILL);
	program_end(&p); /* removes its doorbell */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_wakes_the_sleeping_poller),
		cmocka_unit_test(thread_that_is_made_later_wakes_it_too),
		cmocka_unit_test(ring_after_a_store_that_is_none_is_found),
		cmocka_unit_test(ring_is_found_among_many_doorbells),
		cmocka_unit_test(doorbell_without_a_trap_is_polled),
		cmocka_unit_test(poller_is_awake_until_gp_get_is_returned),
		cmocka_unit_test(flood_springs_few_traps),
		cmocka_unit_test(traps_that_are_forbidden_are_disarmed),
		cmocka_unit_test(program_that_dies_while_armed_leaves_nothing),
	};
	static _Atomic uint32_t word;
	int event = open_trap(0, &word);

#if defined(__SANITIZE_THREAD__)
	printf("skipped: the thread sanitizer delays signals\n");
	return 77;
#endif
	if (event < 0) {
		printf("skipped: no hardware breakpoints here: %s\n", strerror(errno));
		return 77;
	}
	close(event);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

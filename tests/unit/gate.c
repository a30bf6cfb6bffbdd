/* gate: what one vGPU's programs see of it. */
#include "gate/gate.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tower.h"

static void ring_is_carried_to_the_gpu(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	ring(t, 3, 17);
	wait_word(&t->gpu[3].test[GATE_GP_PUT_WORD], 17);
	wait_word(&t->bell.test[GATE_BELL_WORD], TOKEN + 3);
	wait_word(&t->doorbell.test[GATE_BELL_WORD], GATE_NO_TOKEN);
	for (uint32_t i = 0; i < CHANNELS; i++)
		assert_int_equal(gpu_put(t, i), i == 3 ? 17 : 0);
	tower_free(t);
}

/* The GPU looks at GP_PUT when the bell rings: whatever it finds then must be at least what was rung for. */
static void gp_put_is_there_before_the_bell(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	for (uint32_t put = 1; put < 20000; put++) {
		uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

		ring(t, 0, put);
		while (atomic_exchange(&t->bell.test[GATE_BELL_WORD], GATE_NO_TOKEN) != TOKEN)
			if (bf_now_ns() > give_up_ns)
				fail_msg("ring %u was lost", put);
		assert_int_equal(gpu_put(t, 0), put);
	}
	tower_free(t);
}

static void gp_get_comes_back(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	for (uint32_t put = 1; put < 200; put++) {
		ring(t, 1, put);
		wait_word(&t->gpu[1].test[GATE_GP_PUT_WORD], put);
		atomic_store(&t->gpu[1].test[GATE_GP_GET_WORD], put); /* the GPU has read it */
		wait_word(&t->userd[1].test[GATE_GP_GET_WORD], put);
	}
	tower_free(t);
}

static void strange_tokens_ring_nobody(void **state)
{
	static const uint32_t strange[] = { 0, 1, TOKEN - 1, TOKEN + CHANNELS, 0x7fffffff, 0xfffffffe };
	struct tower *t = tower_new(NULL);

	(void)state;
	atomic_store(&t->bell.test[GATE_BELL_WORD], 0x5a5a5a5a);
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

		atomic_store(&t->doorbell.test[GATE_BELL_WORD], strange[i]);
		while (gate_counts(t->gate).strange != i + 1 && bf_now_ns() < give_up_ns)
			sched_yield();
		assert_int_equal(gate_counts(t->gate).strange, i + 1);
	}
	poller_goes_around(t);
	assert_int_equal(atomic_load(&t->bell.test[GATE_BELL_WORD]), 0x5a5a5a5a);
	assert_int_equal(gate_counts(t->gate).forwards, 0);
	tower_free(t);
}

/* A token of another program on the same GPU is as strange as any. */
static void one_program_cannot_ring_for_another(void **state)
{
	struct tower *t = tower_new(NULL);
	struct gate_program *other = gate_program_add(t->vgpu);
	struct page bell = page_new(), userd = page_new(), gpu = page_new();
	struct gate_channel *channel = gate_channel_add(other, userd.gate, gpu.gate);
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	(void)state;
	assert_non_null(gate_bell_add(other, bell.gate));
	gate_channel_set_token(channel, 0x777);
	atomic_store(&userd.test[GATE_GP_PUT_WORD], 5);
	atomic_store(&t->doorbell.test[GATE_BELL_WORD], 0x777);
	while (!gate_counts(t->gate).strange && bf_now_ns() < give_up_ns)
		sched_yield();
	poller_goes_around(t);
	assert_int_equal(gate_counts(t->gate).strange, 1);
	assert_int_equal(atomic_load(&gpu.test[GATE_GP_PUT_WORD]), 0);
	atomic_store(&bell.test[GATE_BELL_WORD], 0x777); /* its own bell does */
	wait_word(&gpu.test[GATE_GP_PUT_WORD], 5);
	gate_program_remove(other);
	page_free(&bell);
	page_free(&userd);
	page_free(&gpu);
	tower_free(t);
}

static void closed_gate_holds_and_opening_sends(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	assert_true(gate_is_open(t->vgpu));
	gate_close(t->vgpu);
	gate_close(t->vgpu);
	assert_false(gate_is_open(t->vgpu));
	for (uint32_t i = 0; i < CHANNELS; i++) {
		ring(t, i, 100 + i);
		wait_word(&t->doorbell.test[GATE_BELL_WORD], GATE_NO_TOKEN); /* taken, and remembered */
	}
	poller_goes_around(t);
	for (uint32_t i = 0; i < CHANNELS; i++)
		assert_int_equal(gpu_put(t, i), 0);
	assert_int_equal(gate_counts(t->gate).forwards, 0);
	gate_open(t->vgpu);
	gate_open(t->vgpu);
	for (uint32_t i = 0; i < CHANNELS; i++)
		wait_word(&t->gpu[i].test[GATE_GP_PUT_WORD], 100 + i);
	tower_free(t);
}

static void stopped_gate_opens_only_when_it_is_resumed(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	assert_int_equal(gate_state(t->vgpu), GATE_OPEN);
	gate_stop(t->vgpu);
	gate_stop(t->vgpu);
	assert_int_equal(gate_state(t->vgpu), GATE_STOPPED);
	gate_close(t->vgpu);
	gate_open(t->vgpu);
	assert_int_equal(gate_state(t->vgpu), GATE_STOPPED);
	ring(t, 0, 7);
	wait_word(&t->doorbell.test[GATE_BELL_WORD], GATE_NO_TOKEN);
	poller_goes_around(t);
	assert_int_equal(gpu_put(t, 0), 0);
	gate_resume(t->vgpu);
	assert_int_equal(gate_state(t->vgpu), GATE_OPEN);
	wait_word(&t->gpu[0].test[GATE_GP_PUT_WORD], 7);
	tower_free(t);
}

static void gate_closed_while_stopped_is_closed_when_resumed(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	gate_stop(t->vgpu);
	gate_close(t->vgpu);
	gate_resume(t->vgpu);
	assert_int_equal(gate_state(t->vgpu), GATE_CLOSED);
	ring(t, 0, 7);
	wait_word(&t->doorbell.test[GATE_BELL_WORD], GATE_NO_TOKEN);
	poller_goes_around(t);
	assert_int_equal(gpu_put(t, 0), 0);
	gate_resume(t->vgpu); /* it is not stopped: nothing changes */
	assert_int_equal(gate_state(t->vgpu), GATE_CLOSED);
	gate_open(t->vgpu);
	wait_word(&t->gpu[0].test[GATE_GP_PUT_WORD], 7);
	tower_free(t);
}

static void vgpus_are_closed_one_by_one(void **state)
{
	struct tower *t = tower_new(NULL);
	struct gate_vgpu *other = gate_vgpu_add(t->gate);
	struct gate_program *program = gate_program_add(other);
	struct page bell = page_new(), userd = page_new(), gpu = page_new();

	(void)state;
	assert_non_null(gate_bell_add(program, bell.gate));
	gate_channel_set_token(gate_channel_add(program, userd.gate, gpu.gate), 0x777);
	gate_close(t->vgpu);
	ring(t, 0, 9);
	atomic_store(&userd.test[GATE_GP_PUT_WORD], 9);
	atomic_store(&bell.test[GATE_BELL_WORD], 0x777);
	wait_word(&gpu.test[GATE_GP_PUT_WORD], 9);
	poller_goes_around(t);
	assert_int_equal(gpu_put(t, 0), 0);
	gate_vgpu_remove(other);
	page_free(&bell);
	page_free(&userd);
	page_free(&gpu);
	tower_free(t);
}

struct hammer {
	struct tower *tower;
	uint32_t first, count; /* channels */
	_Atomic bool is_over;
	_Atomic uint64_t rings;
	uint32_t last[CHANNELS];
};

static void *hammer_main(void *arg)
{
	struct hammer *h = arg;

	for (uint32_t put = 1; !atomic_load(&h->is_over); put++)
		for (uint32_t i = h->first; i < h->first + h->count; i++) {
			ring(h->tower, i, put);
			h->last[i] = put;
			atomic_fetch_add(&h->rings, 1);
		}
	return NULL;
}

static void hammer_stop(struct hammer *h, pthread_t thread)
{
	atomic_store(&h->is_over, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void wait_for_rings(struct hammer *h, uint64_t more)
{
	uint64_t until = atomic_load(&h->rings) + more;

	while (atomic_load(&h->rings) < until)
		sched_yield();
}

static void nothing_passes_once_close_has_returned(void **state)
{
	struct tower *t = tower_new(NULL);
	struct hammer h = { .tower = t, .count = CHANNELS };
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, hammer_main, &h), 0);
	for (int round = 0; round < 300; round++) {
		uint32_t seen[CHANNELS];
		uint64_t forwards;

		gate_close(t->vgpu);
		for (uint32_t i = 0; i < CHANNELS; i++)
			seen[i] = gpu_put(t, i);
		atomic_store(&t->bell.test[GATE_BELL_WORD], 0xabcdabcd);
		forwards = gate_counts(t->gate).forwards;
		wait_for_rings(&h, 500); /* it does ring meanwhile */
		for (int look = 0; look < 200; look++) {
			for (uint32_t i = 0; i < CHANNELS; i++)
				assert_int_equal(gpu_put(t, i), seen[i]);
			assert_int_equal(atomic_load(&t->bell.test[GATE_BELL_WORD]), 0xabcdabcd);
		}
		assert_int_equal(gate_counts(t->gate).forwards, forwards);
		gate_open(t->vgpu);
		while (gate_counts(t->gate).forwards == forwards)
			sched_yield(); /* and it does reach the GPU when it may */
	}
	hammer_stop(&h, thread);
	tower_free(t);
}

/* Two threads of a program that ring at once leave one token in the word; the other's work must not be lost. */
static void overwritten_rings_are_found(void **state)
{
	struct tower *t = tower_new(NULL);
	struct hammer a = { .tower = t, .first = 0, .count = 4 }, b = { .tower = t, .first = 4, .count = 4 };
	pthread_t one, two;

	(void)state;
	assert_int_equal(pthread_create(&one, NULL, hammer_main, &a), 0);
	assert_int_equal(pthread_create(&two, NULL, hammer_main, &b), 0);
	wait_for_rings(&a, 20000);
	wait_for_rings(&b, 20000);
	hammer_stop(&a, one);
	hammer_stop(&b, two);
	/* Nobody rings any more. */
	for (uint32_t i = 0; i < CHANNELS; i++)
		wait_word(&t->gpu[i].test[GATE_GP_PUT_WORD], i < 4 ? a.last[i] : b.last[i]);
	tower_free(t);
}

/* As above, but the gate closes before the poller has looked at the other channel. */
static struct tower *_Atomic closing;

/* Called by the poller after it has rung the GPU's bell for channel 0, and before it looks at the other channels. */
static void wait_for_close(volatile uint32_t *bell)
{
	struct tower *t = atomic_exchange(&closing, NULL);
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	(void)bell;
	if (!t)
		return;
	while (gate_is_open(t->vgpu) && bf_now_ns() < give_up_ns)
		sched_yield();
	atomic_store(&t->userd[1].test[GATE_GP_PUT_WORD], 1);
}

static void work_of_an_overwritten_ring_waits_at_a_closed_gate(void **state)
{
	struct tower *t = tower_new_rung(NULL, wait_for_close);
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	(void)state;
	atomic_store(&closing, t);
	ring(t, 0, 1);
	wait_word(&t->gpu[0].test[GATE_GP_PUT_WORD], 1);
	gate_close(t->vgpu);
	while (!gate_vgpu_counts(t->vgpu).waiting_since_ns && bf_now_ns() < give_up_ns)
		sched_yield();
	assert_true(gate_vgpu_counts(t->vgpu).waiting_since_ns);
	assert_int_equal(t->gpu[1].test[GATE_GP_PUT_WORD], 0);
	tower_free(t);
}

static void swept_work_is_counted(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	/* The ring of channel 1 never made it: only its GP_PUT did. */
	for (uint32_t put = 1; put <= 50; put++) {
		atomic_store(&t->userd[1].test[GATE_GP_PUT_WORD], put);
		ring(t, 0, put);
		wait_word(&t->gpu[1].test[GATE_GP_PUT_WORD], put);
		wait_word(&t->gpu[0].test[GATE_GP_PUT_WORD], put);
	}
	/* The poller counts after it has passed something on. Channel 0's own may be found by a sweep too, before
	 * its ring. */
	while (gate_counts(t->gate).found_unrung < 50 || gate_counts(t->gate).forwards < 100)
		sched_yield();
	assert_in_range(gate_counts(t->gate).found_unrung, 50, 100);
	assert_int_equal(gate_counts(t->gate).forwards, 100);
	tower_free(t);
}

static void token_that_comes_late_finds_the_work(void **state)
{
	struct tower *t = tower_new(NULL);
	struct page userd = page_new(), gpu = page_new();
	struct gate_channel *channel = gate_channel_add(t->program, userd.gate, gpu.gate);
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	(void)state;
	atomic_store(&userd.test[GATE_GP_PUT_WORD], 3);
	atomic_store(&t->doorbell.test[GATE_BELL_WORD], 0x4242);
	while (!gate_counts(t->gate).strange && bf_now_ns() < give_up_ns)
		sched_yield();
	poller_goes_around(t);
	assert_int_equal(atomic_load(&gpu.test[GATE_GP_PUT_WORD]), 0);
	gate_channel_set_token(channel, 0x4242);
	wait_word(&gpu.test[GATE_GP_PUT_WORD], 3);
	gate_channel_remove(channel);
	page_free(&userd);
	page_free(&gpu);
	tower_free(t);
}

static void ring_again_rings_for_every_channel_with_a_token(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	gate_close(t->vgpu); /* as after a hard stop */
	atomic_store(&t->bell.test[GATE_BELL_WORD], 0);
	gate_ring_again(t->vgpu);
	assert_in_range(atomic_load(&t->bell.test[GATE_BELL_WORD]), TOKEN, TOKEN + CHANNELS - 1);
	tower_free(t);
}

/* After removal nothing touches the pages: they are unmapped at once, under a thread that goes on ringing. */
static void removal_while_ringing_is_safe(void **state)
{
	struct tower *t = tower_new(NULL);
	struct hammer h = { .tower = t, .count = CHANNELS };
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, hammer_main, &h), 0);
	for (int round = 0; round < 300; round++) {
		struct gate_program *program = gate_program_add(t->vgpu);
		struct page bell = page_new(), userd = page_new(), gpu = page_new();
		struct gate_channel *channel;

		assert_non_null(gate_bell_add(program, bell.gate));
		channel = gate_channel_add(program, userd.gate, gpu.gate);
		gate_channel_set_token(channel, 0x999);
		atomic_store(&userd.test[GATE_GP_PUT_WORD], 1);
		atomic_store(&bell.test[GATE_BELL_WORD], 0x999);
		if (round % 3 == 0)
			wait_word(&gpu.test[GATE_GP_PUT_WORD], 1);
		if (round % 2) {
			gate_channel_remove(channel);
			page_free(&userd);
			page_free(&gpu);
			gate_program_remove(program);
			page_free(&bell);
		} else {
			gate_program_remove(program);
			page_free(&userd);
			page_free(&gpu);
			page_free(&bell);
		}
	}
	/* The one that rings is removed too, and rings on into memory nobody reads. */
	gate_vgpu_remove(t->vgpu);
	t->vgpu = NULL;
	uint64_t forwards = gate_counts(t->gate).forwards;
	wait_for_rings(&h, 1000);
	assert_int_equal(gate_counts(t->gate).forwards, forwards);
	hammer_stop(&h, thread);
	tower_free(t);
}

static void pass_ms(unsigned ms)
{
	struct timespec span = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&span, NULL);
}

/* CPU time the poller uses in a span of real time, in parts of a thousand. */
static uint64_t cpu_share(struct gate *gate, unsigned ms)
{
	uint64_t cpu_ns = gate_cpu_ns(gate), start_ns = bf_now_ns();

	pass_ms(ms);
	return (gate_cpu_ns(gate) - cpu_ns) * 1000 / (bf_now_ns() - start_ns);
}

static void poller_without_bells_is_parked(void **state)
{
	struct page bell = page_new();
	struct gate *gate = gate_new(bell.gate, NULL, NULL);
	struct gate_vgpu *vgpu = gate_vgpu_add(gate);
	uint64_t cpu_ns;

	(void)state;
	gate_close(vgpu); /* it has been around once */
	gate_open(vgpu);
	/* It may still be on its way to sleep: until it uses nothing more. */
	for (int i = 0; i < 1000 && cpu_share(gate, 5); i++)
		;
	cpu_ns = gate_cpu_ns(gate);
	pass_ms(100);
	assert_int_equal(gate_cpu_ns(gate), cpu_ns);
	gate_vgpu_remove(vgpu);
	gate_free(gate);
	page_free(&bell);
}

/* Long rests and short ones, so that the figures stand apart on a slow machine too. */
static void poller_dozes_when_nobody_rings(void **state)
{
	static const struct gate_rest rest = { .spin_us = 50000,
					       .stages = { { 20000, 150000 }, { 50000, 0 } } };
	struct tower *t = tower_new(&rest);
	uint64_t asleep = 1000;

	(void)state;
	for (int i = 0; i < 100 && asleep > 100; i++)
		asleep = cpu_share(t->gate, 200);
	if (asleep > 100)
		fail_msg("%lu of 1000 parts of a CPU are used with nobody ringing", (unsigned long)asleep);
	/* And a ring still arrives, and wakes it fully: one that slept between rings would need 20 ms for each. */
	ring(t, 0, 1);
	wait_word(&t->gpu[0].test[GATE_GP_PUT_WORD], 1);
	uint64_t start_ns = bf_now_ns();
	for (uint32_t put = 2; put < 1000; put++) {
		ring(t, 0, put);
		wait_word(&t->gpu[0].test[GATE_GP_PUT_WORD], put);
	}
	assert_true(bf_now_ns() - start_ns < 998 * 10000000ull);
	tower_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_is_carried_to_the_gpu),
		cmocka_unit_test(gp_put_is_there_before_the_bell),
		cmocka_unit_test(gp_get_comes_back),
		cmocka_unit_test(strange_tokens_ring_nobody),
		cmocka_unit_test(one_program_cannot_ring_for_another),
		cmocka_unit_test(closed_gate_holds_and_opening_sends),
		cmocka_unit_test(stopped_gate_opens_only_when_it_is_resumed),
		cmocka_unit_test(gate_closed_while_stopped_is_closed_when_resumed),
		cmocka_unit_test(vgpus_are_closed_one_by_one),
		cmocka_unit_test(nothing_passes_once_close_has_returned),
		cmocka_unit_test(overwritten_rings_are_found),
		cmocka_unit_test(work_of_an_overwritten_ring_waits_at_a_closed_gate),
		cmocka_unit_test(swept_work_is_counted),
		cmocka_unit_test(token_that_comes_late_finds_the_work),
		cmocka_unit_test(ring_again_rings_for_every_channel_with_a_token),
		cmocka_unit_test(removal_while_ringing_is_safe),
		cmocka_unit_test(poller_without_bells_is_parked),
		cmocka_unit_test(poller_dozes_when_nobody_rings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

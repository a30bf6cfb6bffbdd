/* gate: what a vGPU that rings without pause costs, and whom. Work is counted, not timed: where an order matters, the
 * test rings from inside the poller, as a program that is never late. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tower.h"

enum { PROGRAMS = 3, BELLS = 60, BELLS_ALL = PROGRAMS * BELLS, MANY_CHANNELS = 40, NEIGHBOUR_RINGS = 200 };
#define FLOOD_TOKEN 0x100u
#define NEIGHBOUR_TOKEN 0x777u
#define STRANGE_TOKEN 0x6666u

/* Programs of one vGPU, with a channel and some bells each. */
struct crowd {
	struct gate_vgpu *vgpu;
	struct gate_channel *channel[PROGRAMS];
	struct page bell[BELLS_ALL], userd[PROGRAMS], gpu[PROGRAMS];
	size_t programs, bells; /* bells of each program */
	uint32_t token, put;
};

static struct crowd *crowd_new(struct gate *gate, size_t programs, size_t bells, uint32_t token)
{
	struct crowd *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	*c = (struct crowd){
		.vgpu = gate_vgpu_add(gate), .programs = programs, .bells = bells, .token = token
	};
	assert_non_null(c->vgpu);
	for (size_t p = 0; p < programs; p++) {
		struct gate_program *program = gate_program_add(c->vgpu);

		assert_non_null(program);
		for (size_t b = p * bells; b < (p + 1) * bells; b++) {
			c->bell[b] = page_new();
			assert_non_null(gate_bell_add(program, c->bell[b].gate));
		}
		c->userd[p] = page_new();
		c->gpu[p] = page_new();
		c->channel[p] = gate_channel_add(program, c->userd[p].gate, c->gpu[p].gate);
		assert_non_null(c->channel[p]);
		gate_channel_set_token(c->channel[p], token + (uint32_t)p);
	}
	return c;
}

static void crowd_free(struct crowd *c)
{
	gate_vgpu_remove(c->vgpu);
	for (size_t b = 0; b < c->programs * c->bells; b++)
		page_free(&c->bell[b]);
	for (size_t p = 0; p < c->programs; p++) {
		page_free(&c->userd[p]);
		page_free(&c->gpu[p]);
	}
	free(c);
}

static void crowd_ring(struct crowd *c, size_t bell, uint32_t token)
{
	atomic_store_explicit(&c->bell[bell].test[GATE_BELL_WORD], token, memory_order_release);
}

/* New work in every channel, and every bell of each rung for it. */
static void crowd_ring_all(struct crowd *c)
{
	c->put++;
	for (size_t p = 0; p < c->programs; p++) {
		atomic_store_explicit(&c->userd[p].test[GATE_GP_PUT_WORD], c->put, memory_order_release);
		for (size_t b = p * c->bells; b < (p + 1) * c->bells; b++)
			crowd_ring(c, b, c->token + (uint32_t)p);
	}
}

/* ---- rings that bring nothing ---- */

struct flood {
	struct crowd *crowd;
	bool is_strange;
	_Atomic bool is_over;
};

static void *flood_main(void *arg)
{
	struct flood *f = arg;

	while (!atomic_load(&f->is_over))
		for (size_t b = 0; b < BELLS_ALL; b++)
			crowd_ring(f->crowd, b,
				   f->is_strange ? STRANGE_TOKEN : FLOOD_TOKEN + (uint32_t)(b / BELLS));
	return NULL;
}

/* A neighbour rings again and again. Whatever time that takes, the poller takes no more rings of the flood than that
 * time pays for. */
static void flood_costs_the_one_who_rings(bool is_strange)
{
	struct page bell = page_new();
	struct gate *gate = gate_new(bell.gate, NULL, NULL);
	struct crowd *crowd = crowd_new(gate, PROGRAMS, BELLS, FLOOD_TOKEN);
	struct crowd *neighbour = crowd_new(gate, 1, 1, NEIGHBOUR_TOKEN);
	struct flood flood = { .crowd = crowd, .is_strange = is_strange };
	uint64_t start_ns = bf_now_ns(), taken, may_be_taken;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, flood_main, &flood), 0);
	while (gate_counts(gate).empty < 2ull * GATE_EMPTY_BURST)
		sched_yield(); /* it does ring, and is beyond what is granted */
	for (uint32_t put = 1; put <= NEIGHBOUR_RINGS; put++) {
		crowd_ring_all(neighbour);
		wait_word(&neighbour->gpu[0].test[GATE_GP_PUT_WORD], put);
	}
	taken = is_strange ? gate_counts(gate).strange : gate_vgpu_counts(crowd->vgpu).rings;
	may_be_taken = GATE_EMPTY_BURST + (bf_now_ns() - start_ns) / GATE_EMPTY_NS + 1;
	atomic_store(&flood.is_over, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_in_range(taken, 1, may_be_taken);
	assert_int_equal(gate_vgpu_counts(crowd->vgpu).forwards, 0);
	crowd_free(neighbour);
	crowd_free(crowd);
	gate_free(gate);
	page_free(&bell);
}

static void a_flood_of_rings_costs_the_one_who_rings(void **state)
{
	(void)state;
	flood_costs_the_one_who_rings(false);
}

static void a_flood_of_strange_tokens_costs_the_one_who_rings(void **state)
{
	(void)state;
	flood_costs_the_one_who_rings(true);
}

static void ring_until_taken(struct tower *t, uint32_t put)
{
	ring(t, 0, put);
	wait_word(&t->doorbell.test[GATE_BELL_WORD], GATE_NO_TOKEN);
}

/* A program stores GP_PUT and then rings. If its channel is looked at in between, the ring comes up empty; and so does a
 * second one, if that finds what a later GP_PUT submitted. */
static void a_ring_whose_work_was_found_before_is_not_charged(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	for (uint32_t put = 1; put <= 500; put++) {
		ring_until_taken(t, put);
		ring_until_taken(t, put);
	}
	poller_goes_around(t);
	assert_int_equal(gate_counts(t->gate).empty, 0);
	for (int again = 0; again < 3; again++)
		ring_until_taken(t, 500);
	poller_goes_around(t);
	assert_in_range(gate_counts(t->gate).empty, 2, 3);
	tower_free(t);
}

/* The flood ends, and the next ring with work arrives: nothing is charged for longer than it was rung. */
static void a_vgpu_that_rang_too_much_is_still_heard(void **state)
{
	struct page bell = page_new();
	struct gate *gate = gate_new(bell.gate, NULL, NULL);
	struct crowd *crowd = crowd_new(gate, 1, BELLS, FLOOD_TOKEN);
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	(void)state;
	while (gate_counts(gate).strange < 3ull * GATE_EMPTY_BURST && bf_now_ns() < give_up_ns)
		for (size_t b = 0; b < BELLS; b++)
			crowd_ring(crowd, b, STRANGE_TOKEN);
	crowd_ring_all(crowd);
	wait_word(&crowd->gpu[0].test[GATE_GP_PUT_WORD], 1);
	for (size_t b = 0; b < BELLS; b++)
		wait_word(&crowd->bell[b].test[GATE_BELL_WORD], GATE_NO_TOKEN);
	crowd_free(crowd);
	gate_free(gate);
	page_free(&bell);
}

/* ---- rings that bring work ---- */

/* Called by the poller after each ring of the GPU's bell. The flood rings on at once, from here; the neighbour rings
 * when the flood has been served `every` times more. Then what matters is how often the flood is served before it. */
static struct {
	struct crowd *flood;
	/* NULL: no contest. It is set last, because the gate does not order the other members for the poller. */
	struct crowd *_Atomic neighbour;
	uint32_t every;
	bool is_endless;	 /* the flood always has new work */
	uint32_t since;		 /* of the flood, since the neighbour was served, or has rung */
	bool is_waiting;	 /* the neighbour has rung */
	_Atomic uint32_t most;	 /* of the flood, while the neighbour waited */
	_Atomic uint32_t served; /* how often the neighbour was */
} contest;

static void contest_rang(volatile uint32_t *bell)
{
	struct crowd *neighbour = atomic_load(&contest.neighbour);

	if (!neighbour)
		return;
	if (bell[GATE_BELL_WORD] == NEIGHBOUR_TOKEN) {
		if (contest.since > atomic_load(&contest.most))
			atomic_store(&contest.most, contest.since);
		contest.since = 0;
		contest.is_waiting = false;
		atomic_fetch_add(&contest.served, 1);
		return;
	}
	contest.since++;
	if (contest.is_endless && atomic_load(&contest.served) < NEIGHBOUR_RINGS)
		crowd_ring_all(contest.flood);
	if (!contest.is_waiting && contest.since >= contest.every) {
		contest.since = 0;
		contest.is_waiting = true;
		crowd_ring_all(neighbour);
	}
}

static void wait_served(uint32_t times)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	while (atomic_load(&contest.served) < times) {
		if (bf_now_ns() > give_up_ns)
			fail_msg("the neighbour was served %u times of %u", atomic_load(&contest.served),
				 times);
		sched_yield();
	}
}

static struct gate *contest_gate(struct page *bell)
{
	struct gate *gate = gate_new(bell->gate, NULL, NULL);

	assert_non_null(gate);
	atomic_store(&contest.neighbour, NULL);
	gate_set_rang(gate, contest_rang);
	return gate;
}

static void a_pass_takes_one_ring_of_each_vgpu(void **state)
{
	struct page bell = page_new();
	struct gate *gate = contest_gate(&bell);
	struct crowd *flood = crowd_new(gate, PROGRAMS, BELLS, FLOOD_TOKEN);
	struct crowd *neighbour = crowd_new(gate, 1, 1, NEIGHBOUR_TOKEN);

	(void)state;
	gate_close(flood->vgpu);
	contest.flood = flood;
	contest.is_endless = true;
	contest.every = 7;
	contest.since = 0;
	atomic_store(&contest.most, 0);
	atomic_store(&contest.served, 0);
	atomic_store(&contest.neighbour, neighbour);
	crowd_ring_all(flood);
	gate_open(flood->vgpu);
	wait_served(NEIGHBOUR_RINGS);
	gate_close(flood->vgpu);
	/* One ring, and one channel that is looked at besides. */
	assert_in_range(atomic_load(&contest.most), 0, 2);
	crowd_free(neighbour);
	crowd_free(flood);
	gate_free(gate);
	page_free(&bell);
}

/* An opened gate sends what waited in many channels, a few in each pass. */
static void a_neighbour_does_not_wait_for_all_channels_of_an_opened_vgpu(void **state)
{
	struct page bell = page_new(), userd[MANY_CHANNELS], gpu[MANY_CHANNELS];
	struct gate *gate = contest_gate(&bell);
	struct crowd *flood = crowd_new(gate, 1, 1, FLOOD_TOKEN);
	struct gate_program *program = gate_program_add(flood->vgpu);
	struct crowd *neighbour = crowd_new(gate, 1, 1, NEIGHBOUR_TOKEN);

	(void)state;
	for (uint32_t i = 0; i < MANY_CHANNELS; i++) {
		userd[i] = page_new();
		gpu[i] = page_new();
		gate_channel_set_token(gate_channel_add(program, userd[i].gate, gpu[i].gate),
				       FLOOD_TOKEN + 1 + i);
	}
	gate_close(flood->vgpu);
	for (uint32_t i = 0; i < MANY_CHANNELS; i++)
		atomic_store(&userd[i].test[GATE_GP_PUT_WORD], 5);
	contest.flood = flood;
	contest.is_endless = false;
	contest.every = 1;
	contest.since = 0;
	atomic_store(&contest.most, 0);
	atomic_store(&contest.served, 0);
	atomic_store(&contest.neighbour, neighbour);
	gate_open(flood->vgpu);
	/* All of it has been sent when gate_open returns. */
	for (uint32_t i = 0; i < MANY_CHANNELS; i++)
		assert_int_equal(atomic_load(&gpu[i].test[GATE_GP_PUT_WORD]), 5);
	wait_served(1);
	assert_in_range(atomic_load(&contest.most), 0, 7);
	gate_close(flood->vgpu);
	crowd_free(neighbour);
	crowd_free(flood);
	gate_free(gate);
	page_free(&bell);
	for (uint32_t i = 0; i < MANY_CHANNELS; i++) {
		page_free(&userd[i]);
		page_free(&gpu[i]);
	}
}

/* The last ring of a flood may have overwritten the token of a channel that the poller has just looked at. */
static void work_of_a_ring_that_a_flood_overwrote_is_found(void **state)
{
	struct tower *t = tower_new(NULL);

	(void)state;
	for (uint32_t put = 1; put <= 100; put++) {
		/* More than the vGPU may ring without work, so that the poller reads its doorbell seldom. */
		for (uint32_t i = 0; i < (put == 1 ? 2 * GATE_EMPTY_BURST : put % 11); i++)
			ring_until_taken(t, 0);
		atomic_store(&t->userd[1].test[GATE_GP_PUT_WORD], put);
		ring_until_taken(t, 0);
		wait_word(&t->gpu[1].test[GATE_GP_PUT_WORD], put);
	}
	tower_free(t);
}

/* ---- many bells ---- */

static void every_bell_of_many_is_looked_at(void **state)
{
	struct page bell = page_new();
	struct gate *gate = gate_new(bell.gate, NULL, NULL);
	struct crowd *crowd = crowd_new(gate, PROGRAMS, BELLS, FLOOD_TOKEN);

	(void)state;
	for (size_t b = 0; b < BELLS_ALL; b++) {
		size_t p = b / BELLS;

		atomic_store(&crowd->userd[p].test[GATE_GP_PUT_WORD], (uint32_t)b + 1);
		crowd_ring(crowd, b, FLOOD_TOKEN + (uint32_t)p);
		wait_word(&crowd->gpu[p].test[GATE_GP_PUT_WORD], (uint32_t)b + 1);
		wait_word(&crowd->bell[b].test[GATE_BELL_WORD], GATE_NO_TOKEN);
	}
	crowd_free(crowd);
	gate_free(gate);
	page_free(&bell);
}

static void a_vgpu_has_a_bounded_number_of_bells(void **state)
{
	struct tower *t = tower_new(NULL); /* it has one bell */
	struct gate_vgpu *other = gate_vgpu_add(t->gate);
	struct gate_program *second = gate_program_add(t->vgpu), *third = gate_program_add(t->vgpu);
	struct page page = page_new();
	struct gate_bell *bell = NULL;

	(void)state;
	for (unsigned i = 1; i < GATE_BELLS_MAX; i++) {
		bell = gate_bell_add(i % 2 ? second : third, page.gate);
		assert_non_null(bell);
	}
	assert_null(gate_bell_add(second, page.gate));
	assert_non_null(gate_bell_add(gate_program_add(other), page.gate)); /* each vGPU has its own number */
	gate_bell_remove(bell);
	assert_non_null(gate_bell_add(third, page.gate));
	assert_null(gate_bell_add(third, page.gate));
	gate_program_remove(second); /* its bells with it */
	assert_non_null(gate_bell_add(third, page.gate));
	ring(t, 0, 1);
	wait_word(&t->gpu[0].test[GATE_GP_PUT_WORD], 1);
	gate_vgpu_remove(other);
	gate_vgpu_remove(t->vgpu);
	t->vgpu = NULL;
	page_free(&page);
	tower_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flood_of_rings_costs_the_one_who_rings),
		cmocka_unit_test(a_flood_of_strange_tokens_costs_the_one_who_rings),
		cmocka_unit_test(a_ring_whose_work_was_found_before_is_not_charged),
		cmocka_unit_test(a_vgpu_that_rang_too_much_is_still_heard),
		cmocka_unit_test(a_pass_takes_one_ring_of_each_vgpu),
		cmocka_unit_test(a_neighbour_does_not_wait_for_all_channels_of_an_opened_vgpu),
		cmocka_unit_test(work_of_a_ring_that_a_flood_overwrote_is_found),
		cmocka_unit_test(every_bell_of_many_is_looked_at),
		cmocka_unit_test(a_vgpu_has_a_bounded_number_of_bells),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

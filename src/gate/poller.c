/* The thread of the poller: passes, and how it sleeps between them. */
#include "gate/poller.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { TRAP_NS = 100000 }; /* a trap wakes the poller within about this time */

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* Sleeps until `us` have passed or `want` changes; without limit if us is 0. */
static void rest(struct gate *gate, uint32_t want, uint64_t us)
{
	struct timespec limit = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

	syscall(SYS_futex, &gate->want, FUTEX_WAIT_PRIVATE, want, us ? &limit : NULL, NULL, 0);
}

/* The time to sleep before the next pass, if the last ring was quiet_us ago. */
static uint64_t rest_us(const struct gate_rest *rest, uint64_t quiet_us)
{
	size_t stage = 0;

	while (stage + 1 < GATE_STAGES && rest->stages[stage].until_us &&
	       quiet_us >= rest->stages[stage].until_us)
		stage++;
	return rest->stages[stage].look_us;
}

/* Whether the programs know of all that the GPU has read from their GPFIFOs. Until then the poller has GP_GETs to return. */
static bool is_all_returned(const struct gate_table *table)
{
	for (size_t i = 0; i < table->program_count; i++) {
		const struct gate_watched_program *watch = &table->programs[i];

		if (gate_program_is_gone(watch))
			continue;
		for (size_t n = 0; n < watch->channel_count; n++)
			if (watch->channels[n]->seen_get !=
			    atomic_load_explicit(&watch->channels[n]->sent_put, memory_order_relaxed))
				return false;
	}
	return true;
}

/* A pass reads a part of the doorbells. The poller may sleep on the traps after a round that began when they were armed, and
 * after a wake-up it makes a round without sleeping. */
static void note_trapped(struct gate *gate, const struct gate_table *table, bool is_trapped)
{
	if (is_trapped && !gate->was_trapped)
		gate->round_left = table->round_passes;
	gate->was_trapped = is_trapped;
	if (gate->round_left)
		gate->round_left--;
}

static void confirm_pass(struct gate *gate, uint32_t want)
{
	if (atomic_load_explicit(&gate->seen, memory_order_relaxed) == want)
		return;
	/* Pairs with gate_sync's acquire: this pass used no state older than `want`. */
	atomic_store_explicit(&gate->seen, want, memory_order_release);
	syscall(SYS_futex, &gate->seen, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void *gate_poller_main(void *arg)
{
	struct gate *gate = arg;
	uint64_t last_ring_ns = gate->now_ns = gate->looked_ns = bf_now_ns();

	prctl(PR_SET_NAME, "belfry-gate");
	prctl(PR_SET_TIMERSLACK, 1); /* the default adds 50 us to each sleep */
	gate_traps_signal(&gate->traps, &gate->want);
	while (!atomic_load_explicit(&gate->is_ending, memory_order_acquire)) {
		/* Load want before table: a table published before want was raised is then used in this
		 * pass. */
		uint32_t want = atomic_load_explicit(&gate->want, memory_order_acquire);
		struct gate_table *table = atomic_load_explicit(&gate->table, memory_order_acquire);
		bool is_trapped = gate_traps_are_armed(&gate->traps); /* before the pass */
		enum gate_pass found = gate_pass(gate, table);
		uint64_t quiet_us;

		confirm_pass(gate, want);
		if (found == GATE_PASS_NEWS)
			last_ring_ns = gate->now_ns;
		quiet_us = (gate->now_ns - last_ring_ns) / 1000;
		gate_traps_want(&gate->traps, found == GATE_PASS_SILENT, quiet_us, gate->rest.trap_us,
				gate->now_ns);
		is_trapped = is_trapped && gate_traps_are_armed(&gate->traps);
		note_trapped(gate, table, is_trapped);
		if (found == GATE_PASS_NEWS)
			continue;
		if (!table->bell_count) {
			rest(gate, want, 0);
			last_ring_ns = gate->now_ns = gate->looked_ns = bf_now_ns();
		} else if (found == GATE_PASS_UNSETTLED || quiet_us < gate->rest.spin_us ||
			   gate->round_left) {
			relax();
		} else if (is_trapped && is_all_returned(table)) {
			rest(gate, want, gate->rest.net_us);
			gate->passes = GATE_PASSES_PER_CLOCK - 1;
			gate->looked_ns = bf_now_ns() - TRAP_NS; /* a ring wakes the poller */
			gate->round_left = table->round_passes;
		} else {
			rest(gate, want, rest_us(&gate->rest, quiet_us));
			gate->passes = GATE_PASSES_PER_CLOCK - 1; /* read the clock in the next pass */
		}
	}
	return NULL;
}

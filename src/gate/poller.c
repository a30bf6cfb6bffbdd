/* The hot loop. */
#include "gate/poller.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
	SWEEP_STEP_NS = 8000,  /* after rings, look at one other channel this often */
	NEIGHBOUR_NS = 100000, /* a channel that rang this recently is looked at with every ring */
	SPINS_PER_CLOCK = 32,  /* passes between two looks at the clock while spinning */
};

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* The GPU must find the new GP_PUT when the bell wakes it: orders the store to USERD (memory, or a
 * write-combined mapping) before the store to the doorbell page. */
static inline void wmb_before_doorbell(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

static inline void count(_Atomic uint64_t *counter)
{
	/* Only the poller writes; others read. */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* Pass on what the channel has queued since last time. The program stored its ring entries and GP_PUT before
 * it rang (it fences in between), so reading GP_PUT after taking the bell sees at least that ring's work. */
static bool channel_forward(struct gate *gate, struct gate_channel *ch)
{
	uint32_t token = atomic_load_explicit(&ch->token, memory_order_relaxed);
	uint32_t put;

	if (token == GATE_NO_TOKEN)
		return false;
	put = ch->program_userd[GATE_GP_PUT_WORD];
	if (put == ch->sent_put)
		return false;
	ch->gpu_userd[GATE_GP_PUT_WORD] = put;
	wmb_before_doorbell();
	gate->bell[GATE_BELL_WORD] = token;
	ch->sent_put = put;
	count(&gate->forwards);
	return true;
}

/* Tell the program how far the GPU has read, or it would find its ring full one day. */
static bool channel_return_get(struct gate_channel *ch)
{
	uint32_t get;

	if (ch->seen_get == ch->sent_put)
		return false;
	get = ch->gpu_userd[GATE_GP_GET_WORD];
	if (get == ch->seen_get)
		return false;
	ch->program_userd[GATE_GP_GET_WORD] = get;
	ch->seen_get = get;
	return true;
}

/* Somebody rang with this token. Two threads that ring at once leave only one token in the word, so the
 * program's other recent channels are looked at too, and all of them soon (program_sweep). */
static void program_rang(struct gate *gate, struct gate_watch *watch, uint32_t token)
{
	uint64_t now_ns = bf_now_ns();
	bool is_known = false;

	count(&gate->rings);
	watch->program->sweep_left = watch->channel_count;
	watch->program->sweep_ns = now_ns;
	if (!atomic_load_explicit(&watch->vgpu->is_open, memory_order_relaxed))
		return; /* gate_open sweeps */
	for (size_t i = 0; i < watch->channel_count; i++) {
		struct gate_channel *ch = watch->channels[i];

		if (atomic_load_explicit(&ch->token, memory_order_relaxed) == token) {
			is_known = true;
			ch->rang_ns = now_ns;
			channel_forward(gate, ch);
			break;
		}
	}
	if (!is_known)
		count(&gate->strange);
	for (size_t i = 0; i < watch->channel_count; i++) {
		struct gate_channel *ch = watch->channels[i];

		if (ch->rang_ns != now_ns && now_ns - ch->rang_ns < NEIGHBOUR_NS && channel_forward(gate, ch))
			count(&gate->swept);
	}
}

/* Find submissions whose ring was overwritten. One channel at a time: a look may cost a bus read. */
static void program_sweep(struct gate *gate, struct gate_watch *watch, uint64_t now_ns)
{
	struct gate_program *program = watch->program;

	if (!program->sweep_left || now_ns - program->sweep_ns < SWEEP_STEP_NS)
		return;
	program->sweep_ns = now_ns;
	program->sweep_left--;
	if (!watch->channel_count || !atomic_load_explicit(&watch->vgpu->is_open, memory_order_relaxed))
		return;
	program->sweep_at = (program->sweep_at + 1) % watch->channel_count;
	if (channel_forward(gate, watch->channels[program->sweep_at]))
		count(&gate->swept);
}

/* Once over one program. Returns whether anybody rang. */
static bool program_pass(struct gate *gate, struct gate_watch *watch, uint64_t now_ns)
{
	bool rang = false, returned = false;

	for (size_t i = 0; i < watch->bell_count; i++) {
		_Atomic uint32_t *word = watch->bells[i]->word;

		/* A plain look first: an exchange would pull the line away from the program every time. */
		if (atomic_load_explicit(word, memory_order_relaxed) == GATE_NO_TOKEN)
			continue;
		program_rang(gate, watch,
			     atomic_exchange_explicit(word, GATE_NO_TOKEN, memory_order_acq_rel));
		rang = true;
	}
	if (atomic_load_explicit(&watch->program->must_sweep, memory_order_relaxed) &&
	    atomic_load_explicit(&watch->vgpu->is_open, memory_order_relaxed) &&
	    atomic_exchange_explicit(&watch->program->must_sweep, false, memory_order_acq_rel)) {
		for (size_t i = 0; i < watch->channel_count; i++)
			channel_forward(gate, watch->channels[i]);
		rang = true;
	}
	for (size_t i = 0; i < watch->channel_count; i++)
		returned |= channel_return_get(watch->channels[i]);
	if (returned)
		wmb_before_doorbell(); /* write-combined: push it out now, the program may be waiting for room */
	if (now_ns)
		program_sweep(gate, watch, now_ns);
	return rang;
}

/* Sleep until `us` have passed or the house wants something; forever if us is 0. */
static void rest(struct gate *gate, uint32_t want, uint64_t us)
{
	struct timespec limit = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

	syscall(SYS_futex, &gate->want, FUTEX_WAIT_PRIVATE, want, us ? &limit : NULL, NULL, 0);
}

static void answer_house(struct gate *gate, uint32_t want)
{
	if (atomic_load_explicit(&gate->seen, memory_order_relaxed) == want)
		return;
	/* Pairs with gate_sync's acquire: this pass used nothing older than `want`. */
	atomic_store_explicit(&gate->seen, want, memory_order_release);
	syscall(SYS_futex, &gate->seen, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void *gate_poller_main(void *arg)
{
	struct gate *gate = arg;
	uint64_t last_ring_ns = bf_now_ns(), now_ns = last_ring_ns;
	unsigned spins = 0;

	prctl(PR_SET_NAME, "belfry-gate");
	prctl(PR_SET_TIMERSLACK, 1); /* doze_us means doze_us, not 50 us more */
	while (!atomic_load_explicit(&gate->is_ending, memory_order_acquire)) {
		/* want before table: a table published before want was raised is the one used here. */
		uint32_t want = atomic_load_explicit(&gate->want, memory_order_acquire);
		struct gate_table *table = atomic_load_explicit(&gate->table, memory_order_acquire);
		bool rang = false, is_sweeping = false;
		bool look_at_clock = ++spins % SPINS_PER_CLOCK == 0;

		if (look_at_clock)
			now_ns = bf_now_ns();
		for (size_t i = 0; i < table->program_count; i++) {
			struct gate_watch *watch = &table->programs[i];

			if (atomic_load_explicit(&watch->is_gone, memory_order_acquire))
				continue;
			rang |= program_pass(gate, watch, look_at_clock ? now_ns : 0);
			is_sweeping |= watch->program->sweep_left != 0;
		}
		answer_house(gate, want);
		if (rang) {
			last_ring_ns = now_ns = bf_now_ns();
			continue;
		}
		if (!table->bell_count) {
			rest(gate, want, 0);
			last_ring_ns = bf_now_ns();
		} else if (is_sweeping || now_ns - last_ring_ns < gate->rest.spin_us * 1000) {
			relax();
		} else {
			rest(gate, want,
			     now_ns - last_ring_ns < gate->rest.awake_us * 1000 ? gate->rest.doze_us
										: gate->rest.sleep_us);
			spins = SPINS_PER_CLOCK - 1; /* time has passed: look at the clock next */
		}
	}
	return NULL;
}

/* The hot loop. */
#include "gate/poller.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
	ALL_STEP_NS = 8000,	  /* after rings, look at one of all channels this often */
	ALL_STEP_BUSY_NS = 50000, /* and this often while the program goes on ringing */
	BUSY_NS = 20000,	  /* it does if it rang this recently */
	RECENT_NS = 100000,	  /* a channel that rang this recently is looked at after every ring */
	SPINS_PER_CLOCK = 32,	  /* passes between two looks at the clock while spinning */
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

static void call_house(struct gate *gate)
{
	if (gate->call)
		gate->call(gate->call_context);
}

/* Something was passed on. The house has set is_quiet (gate_vgpu_quiet) and waits to be called. */
static void vgpu_forwarded(struct gate *gate, struct gate_vgpu *vgpu)
{
	count(&vgpu->forwards);
	atomic_store_explicit(&vgpu->last_forward_ns, gate->now_ns, memory_order_relaxed);
	atomic_store_explicit(&vgpu->forward_ns[vgpu->forwards % GATE_FORWARDS_KEPT], gate->now_ns,
			      memory_order_relaxed);
	if (!atomic_load_explicit(&vgpu->is_quiet, memory_order_relaxed))
		return;
	atomic_store_explicit(&vgpu->woke_ns, gate->now_ns, memory_order_relaxed);
	/* Pairs with the acquire in gate_vgpu_counts: whoever finds it cleared finds woke_ns. */
	atomic_store_explicit(&vgpu->is_quiet, false, memory_order_release);
	call_house(gate);
}

/* A bell rang behind the gate when it was closed for the `turns`th time. */
static void vgpu_waits(struct gate *gate, struct gate_vgpu *vgpu, uint64_t turns)
{
	if (atomic_load_explicit(&vgpu->waiting_turn, memory_order_relaxed) == turns)
		return;
	atomic_store_explicit(&vgpu->waiting_ns, gate->now_ns, memory_order_relaxed);
	/* Pairs with the acquire in gate_vgpu_counts: whoever finds this turn finds its time. */
	atomic_store_explicit(&vgpu->waiting_turn, turns, memory_order_release);
	call_house(gate);
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
	if (put == atomic_load_explicit(&ch->sent_put, memory_order_relaxed))
		return false;
	atomic_store_explicit(&ch->was_used, true, memory_order_relaxed);
	ch->gpu_userd[GATE_GP_PUT_WORD] = put;
	wmb_before_doorbell();
	gate_ring(gate, token);
	/* Only the poller writes it; others read. */
	atomic_store_explicit(&ch->sent_put, put, memory_order_relaxed);
	/* Pairs with gate_channel_forwards: who reads the new count finds the GP_PUT that it counts in gpu_userd. */
	atomic_store_explicit(&ch->forwards, atomic_load_explicit(&ch->forwards, memory_order_relaxed) + 1,
			      memory_order_release);
	count(&gate->forwards);
	return true;
}

/* The same, found without a ring of its own. */
static bool channel_look(struct gate *gate, struct gate_vgpu *vgpu, struct gate_channel *ch)
{
	if (!channel_forward(gate, ch))
		return false;
	vgpu_forwarded(gate, vgpu);
	return true;
}

/* Tell the program how far the GPU has read, or it would find its ring full one day. */
static bool channel_return_get(struct gate_channel *ch)
{
	uint32_t get;

	if (ch->seen_get == atomic_load_explicit(&ch->sent_put, memory_order_relaxed))
		return false;
	get = ch->gpu_userd[GATE_GP_GET_WORD];
	if (get == ch->seen_get)
		return false;
	ch->program_userd[GATE_GP_GET_WORD] = get;
	ch->seen_get = get;
	return true;
}

/* Somebody rang with this token. Two threads that ring at once leave only one token in the word; so after any
 * ring the program's other channels are looked at too: soon those that rang lately (look_at_recent), and all of
 * them in a while (look_at_all). */
static void program_rang(struct gate *gate, struct gate_watch *watch, uint32_t token)
{
	uint64_t turns = atomic_load_explicit(&watch->vgpu->turns, memory_order_relaxed);
	struct gate_program *program = watch->program;
	struct gate_channel *rung = NULL;
	bool is_sent = false;

	for (size_t i = 0; i < watch->channel_count && !rung; i++)
		if (atomic_load_explicit(&watch->channels[i]->token, memory_order_relaxed) == token)
			rung = watch->channels[i];
	if (rung &&
	    gate_turn_is_open(turns)) /* first of all; a closed gate looks at everything when it opens */
		is_sent = channel_forward(gate, rung);
	program->rang_ns = gate->now_ns = bf_now_ns();
	program->recent_left = program->all_left = watch->channel_count;
	count(rung ? &gate->rings : &gate->strange);
	if (!rung)
		return;
	rung->rang_ns = program->rang_ns;
	count(&watch->vgpu->rings);
	if (is_sent)
		vgpu_forwarded(gate, watch->vgpu);
	else if (!gate_turn_is_open(turns))
		vgpu_waits(gate, watch->vgpu, turns);
}

/* One channel a pass, since a look may cost a bus read and others may be ringing. */
static void look_at_recent(struct gate *gate, struct gate_watch *watch)
{
	struct gate_program *program = watch->program;

	while (program->recent_left) {
		struct gate_channel *ch = watch->channels[--program->recent_left % watch->channel_count];

		if (ch->rang_ns == program->rang_ns || program->rang_ns - ch->rang_ns > RECENT_NS)
			continue;
		if (channel_look(gate, watch->vgpu, ch))
			count(&gate->swept);
		return;
	}
}

static void look_at_all(struct gate *gate, struct gate_watch *watch, uint64_t now_ns)
{
	struct gate_program *program = watch->program;

	uint64_t step_ns = now_ns - program->rang_ns < BUSY_NS ? ALL_STEP_BUSY_NS : ALL_STEP_NS;

	if (!program->all_left || now_ns - program->all_ns < step_ns)
		return;
	program->all_ns = now_ns;
	program->all_left--;
	program->all_at = (program->all_at + 1) % watch->channel_count;
	if (channel_look(gate, watch->vgpu, watch->channels[program->all_at])) {
		watch->channels[program->all_at]->rang_ns = now_ns;
		count(&gate->swept);
	}
}

static void return_gets(struct gate_watch *watch)
{
	bool returned = false;

	for (size_t i = 0; i < watch->channel_count; i++)
		returned |= channel_return_get(watch->channels[i]);
	if (returned)
		wmb_before_doorbell(); /* write-combined: push it out, the program may be waiting for room */
}

/* Whether the house wants every channel looked at: the gate was opened, or a token has become known. */
static bool take_must_sweep(struct gate_program *program)
{
	return atomic_load_explicit(&program->must_sweep, memory_order_relaxed) &&
	       atomic_exchange_explicit(&program->must_sweep, false, memory_order_acq_rel);
}

/* Once over one program; now_ns is 0 on the many passes that do not look at the clock. True if anybody rang. */
static bool program_pass(struct gate *gate, struct gate_watch *watch, uint64_t now_ns)
{
	bool rang = false;

	for (size_t i = 0; i < watch->bell_count; i++) {
		_Atomic uint32_t *word = watch->bells[i]->word;

		/* A plain look first: an exchange would pull the line away from the program every time. */
		if (atomic_load_explicit(word, memory_order_relaxed) == GATE_NO_TOKEN)
			continue;
		program_rang(gate, watch,
			     atomic_exchange_explicit(word, GATE_NO_TOKEN, memory_order_acq_rel));
		rang = true;
	}
	if (now_ns)
		return_gets(watch);
	if (!watch->channel_count || !gate_is_open(watch->vgpu))
		return rang;
	if (take_must_sweep(watch->program)) {
		for (size_t i = 0; i < watch->channel_count; i++)
			channel_look(gate, watch->vgpu, watch->channels[i]);
		return true;
	}
	if (!rang)
		look_at_recent(gate, watch);
	if (now_ns)
		look_at_all(gate, watch, now_ns);
	return rang;
}

/* Sleep until `us` have passed or the house wants something; forever if us is 0. */
static void rest(struct gate *gate, uint32_t want, uint64_t us)
{
	struct timespec limit = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

	syscall(SYS_futex, &gate->want, FUTEX_WAIT_PRIVATE, want, us ? &limit : NULL, NULL, 0);
}

/* How long to sleep before the next look, when nobody has rung for so long. */
static uint64_t rest_us(const struct gate_rest *rest, uint64_t quiet_us)
{
	if (quiet_us < rest->awake_us)
		return rest->doze_us;
	return rest->tired_us && quiet_us >= rest->tired_us ? rest->deep_us : rest->sleep_us;
}

static void answer_house(struct gate *gate, uint32_t want)
{
	if (atomic_load_explicit(&gate->seen, memory_order_relaxed) == want)
		return;
	/* Pairs with gate_sync's acquire: this pass used nothing older than `want`. */
	atomic_store_explicit(&gate->seen, want, memory_order_release);
	syscall(SYS_futex, &gate->seen, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void *gate_poller_main(void *arg)
{
	struct gate *gate = arg;
	uint64_t last_ring_ns = gate->now_ns = bf_now_ns();
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
			gate->now_ns = bf_now_ns();
		for (size_t i = 0; i < table->program_count; i++) {
			struct gate_watch *watch = &table->programs[i];

			if (atomic_load_explicit(&watch->is_gone, memory_order_acquire))
				continue;
			rang |= program_pass(gate, watch, look_at_clock ? gate->now_ns : 0);
			is_sweeping |= watch->program->all_left != 0 && gate_is_open(watch->vgpu);
		}
		answer_house(gate, want);
		if (rang) {
			last_ring_ns = gate->now_ns = bf_now_ns();
			continue;
		}
		if (!table->bell_count) {
			rest(gate, want, 0);
			last_ring_ns = gate->now_ns = bf_now_ns();
		} else if (is_sweeping || gate->now_ns - last_ring_ns < gate->rest.spin_us * 1000) {
			relax();
		} else {
			rest(gate, want, rest_us(&gate->rest, (gate->now_ns - last_ring_ns) / 1000));
			spins = SPINS_PER_CLOCK - 1; /* time has passed: look at the clock next */
		}
	}
	return NULL;
}

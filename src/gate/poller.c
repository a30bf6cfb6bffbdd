/* The hot loop of the gate. */
#include "gate/poller.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
	ALL_STEP_NS = 8000,	  /* after a ring, look at the next of all channels this often */
	ALL_STEP_BUSY_NS = 50000, /* the same while the program keeps ringing */
	BUSY_NS = 20000,	  /* a program that rang this recently keeps ringing */
	RECENT_NS = 100000,	  /* a channel that rang this recently is looked at after every ring */
	TRAP_NS = 100000,	  /* a trap wakes the poller within about this time */
	SPINS_PER_CLOCK = 32,	  /* passes between two readings of the clock while spinning */
};

/* Limits of one vGPU in one pass, besides one ring: silent doorbells read, channels swept, GP_GETs returned.
 * Most programs have fewer doorbells and channels. The next pass continues where this one stops. */
enum { LOOKS_PER_PASS = GATE_LOOKS_PER_PASS, SWEEPS_PER_PASS = 4, GETS_PER_PASS = 64 };

/* A ring finds its work already forwarded if the poller looked at the channel between the program's store of
 * GP_PUT and its ring. After one forward, that can happen to two rings: one that is in the doorbell word, and
 * one whose GP_PUT is stored but whose token is not yet. */
enum { EMPTY_PER_FORWARD = 2 };

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* The GPU must read the new GP_PUT after the doorbell wakes it: orders the store to USERD (memory, or a
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
	/* Only the poller writes the counter; other threads read it. */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

static void call_house(struct gate *gate)
{
	if (gate->call)
		gate->call(gate->call_context);
}

/* A ring that is found in this pass. */
static struct gate_came came_now(const struct gate *gate)
{
	uint64_t late_ns = gate->now_ns > gate->looked_ns ? gate->now_ns - gate->looked_ns : 0;

	return (struct gate_came){ .found_ns = gate->now_ns, .likely_ns = gate->now_ns - late_ns / 2 };
}

/* Something was passed on. The house has set is_quiet (gate_vgpu_quiet) and waits to be called. */
static void vgpu_forwarded(struct gate *gate, struct gate_vgpu *vgpu, struct gate_came came)
{
	size_t at;

	count(&vgpu->forwards);
	at = vgpu->forwards % GATE_FORWARDS_KEPT;
	atomic_store_explicit(&vgpu->last_forward_ns, gate->now_ns, memory_order_relaxed);
	atomic_store_explicit(&vgpu->likely_ns[at], came.likely_ns, memory_order_relaxed);
	/* Pairs with the acquire in came_at: whoever finds it finds likely_ns, or that of a later one. */
	atomic_store_explicit(&vgpu->found_ns[at], came.found_ns, memory_order_release);
	if (!atomic_load_explicit(&vgpu->is_quiet, memory_order_relaxed))
		return;
	atomic_store_explicit(&vgpu->woke_ns, gate->now_ns, memory_order_relaxed);
	atomic_store_explicit(&vgpu->woke_found_ns, came.found_ns, memory_order_relaxed);
	atomic_store_explicit(&vgpu->woke_likely_ns, came.likely_ns, memory_order_relaxed);
	/* Pairs with the acquire in gate_vgpu_counts: a thread that sees is_quiet cleared sees the times. */
	atomic_store_explicit(&vgpu->is_quiet, false, memory_order_release);
	call_house(gate);
}

/* A doorbell rang behind the gate, which is closed; `turns` is the number of this closed period. Returns true
 * for the first ring of the period. */
static bool vgpu_waits(struct gate *gate, struct gate_vgpu *vgpu, uint64_t turns)
{
	if (atomic_load_explicit(&vgpu->waiting_turn, memory_order_relaxed) == turns)
		return false;
	atomic_store_explicit(&vgpu->waiting_ns, gate->now_ns, memory_order_relaxed);
	/* Pairs with the acquire in gate_vgpu_counts: a thread that sees this turn sees its time. */
	atomic_store_explicit(&vgpu->waiting_turn, turns, memory_order_release);
	call_house(gate);
	return true;
}

/* Rate limit for rings without new work. Each one advances look_ns by GATE_EMPTY_NS, starting at most
 * GATE_EMPTY_BURST such steps in the past. While look_ns is in the future, the vGPU's doorbells are not read.
 * That lasts at most GATE_EMPTY_NS. */
static void vgpu_charge(struct gate *gate, struct gate_vgpu *vgpu)
{
	uint64_t granted_ns = gate->now_ns - (uint64_t)GATE_EMPTY_BURST * GATE_EMPTY_NS;

	count(&gate->empty);
	vgpu->look_ns = (vgpu->look_ns > granted_ns ? vgpu->look_ns : granted_ns) + GATE_EMPTY_NS;
}

static bool vgpu_is_left_alone(const struct gate *gate, const struct gate_vgpu *vgpu)
{
	return vgpu->look_ns > gate->now_ns;
}

/* Forwards what the channel has queued since the last time. The program stores its ring entries and GP_PUT
 * before it rings, with a fence in between, so GP_PUT read after taking the ring includes at least that
 * ring's work. */
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
	/* Only the poller writes sent_put; other threads read it. */
	atomic_store_explicit(&ch->sent_put, put, memory_order_relaxed);
	/* Pairs with gate_channel_forwards: a thread that reads the new count finds the corresponding GP_PUT
	 * in gpu_userd. */
	atomic_store_explicit(&ch->forwards, atomic_load_explicit(&ch->forwards, memory_order_relaxed) + 1,
			      memory_order_release);
	ch->empty_left = EMPTY_PER_FORWARD;
	count(&gate->forwards);
	return true;
}

/* Forwards work of a channel that was found without a ring. */
static bool channel_look(struct gate *gate, struct gate_vgpu *vgpu, struct gate_channel *ch)
{
	if (!channel_forward(gate, ch))
		return false;
	vgpu_forwarded(gate, vgpu, came_now(gate));
	return true;
}

/* Copies the GPU's GP_GET to the program's page. Without it, the program's ring would stay full. */
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

/* Starts, or restarts, the slow round over all channels (look_at_all). */
static void program_unsettle(struct gate_watch *watch)
{
	watch->vgpu->unsettled += !watch->program->all_left && watch->channel_count;
	watch->program->all_left = watch->channel_count;
}

/* Whether a ring without new work must be charged: not if it may belong to the last forward. */
static bool is_empty_ring(struct gate_channel *rung)
{
	if (!rung->empty_left)
		return true;
	rung->empty_left--;
	return false;
}

/* A program rang with this token. If two threads ring at the same time, only one token stays in the word. So
 * after each ring the program's other channels are looked at too: first those that rang recently
 * (look_at_recent), later all of them (look_at_all). Returns whether the ring was useful: it brought work, or
 * it was the first ring behind a closed gate, whose work is found when the gate opens. */
static bool program_rang(struct gate *gate, struct gate_watch *watch, uint32_t token)
{
	uint64_t turns = atomic_load_explicit(&watch->vgpu->turns, memory_order_relaxed);
	struct gate_program *program = watch->program;
	struct gate_channel *rung = NULL;
	bool is_sent = false, is_news = false;

	for (size_t i = 0; i < watch->channel_count && !rung; i++)
		if (atomic_load_explicit(&watch->channels[i]->token, memory_order_relaxed) == token)
			rung = watch->channels[i];
	/* The clock is read before the work is passed on: the program that this wakes may take the processor. */
	program->rang_ns = gate->now_ns = bf_now_ns();
	if (rung && gate_turn_is_open(turns)) /* a closed gate looks at everything when it opens */
		is_sent = channel_forward(gate, rung);
	count(rung ? &gate->rings : &gate->strange);
	if (rung) {
		rung->rang_ns = program->rang_ns;
		count(&watch->vgpu->rings);
		if (is_sent)
			vgpu_forwarded(gate, watch->vgpu, came_now(gate));
		is_news = is_sent || (gate_turn_is_open(turns) ? !is_empty_ring(rung)
							       : vgpu_waits(gate, watch->vgpu, turns));
	}
	if (!is_news)
		vgpu_charge(gate, watch->vgpu);
	/* During a flood of rings, do not restart a round that is under way. */
	if (!vgpu_is_left_alone(gate, watch->vgpu))
		program->recent_left = watch->channel_count;
	if (!vgpu_is_left_alone(gate, watch->vgpu) || !program->all_left)
		program_unsettle(watch);
	return is_news;
}

/* One channel per pass, because a look may cost a bus read and other vGPUs may be ringing. */
static void look_at_recent(struct gate *gate, struct gate_watch *watch)
{
	struct gate_program *program = watch->program;

	while (program->recent_left) {
		struct gate_channel *ch = watch->channels[--program->recent_left];

		if (ch->rang_ns == program->rang_ns || program->rang_ns - ch->rang_ns > RECENT_NS)
			continue;
		if (channel_look(gate, watch->vgpu, ch))
			count(&gate->swept);
		return;
	}
}

static void look_at_all(struct gate *gate, struct gate_watch *watch)
{
	struct gate_program *program = watch->program;
	uint64_t now_ns = gate->now_ns;
	uint64_t step_ns = now_ns - program->rang_ns < BUSY_NS ? ALL_STEP_BUSY_NS : ALL_STEP_NS;

	if (!program->all_left || now_ns - program->all_ns < step_ns)
		return;
	program->all_ns = now_ns;
	watch->vgpu->unsettled -= --program->all_left == 0;
	program->all_at = (program->all_at + 1) % watch->channel_count;
	if (channel_look(gate, watch->vgpu, watch->channels[program->all_at])) {
		watch->channels[program->all_at]->rang_ns = now_ns;
		count(&gate->swept);
	}
}

static size_t next_of(size_t at, size_t count)
{
	return at + 1 < count ? at + 1 : 0;
}

static bool is_gone(const struct gate_watch *watch)
{
	return atomic_load_explicit(&watch->is_gone, memory_order_acquire);
}

/* Returns the GP_GETs of the next `channels` channels of a program. True: at least one changed. */
static bool program_return_gets(struct gate_watch *watch, size_t channels)
{
	size_t *at = &watch->program->get_at;
	bool returned = false;

	while (channels--) {
		*at = next_of(*at, watch->channel_count);
		returned |= channel_return_get(watch->channels[*at]);
	}
	return returned;
}

static void return_gets(const struct gate_watched_vgpu *watched)
{
	struct gate_vgpu *vgpu = watched->vgpu;
	size_t left = GETS_PER_PASS;
	bool returned = false;

	for (size_t n = watched->program_count; n && left; n--) {
		vgpu->get_at = next_of(vgpu->get_at, watched->program_count);
		struct gate_watch *watch = &watched->programs[vgpu->get_at];
		size_t part = watch->channel_count < left ? watch->channel_count : left;

		if (is_gone(watch))
			continue;
		returned |= program_return_gets(watch, part);
		left -= part;
	}
	if (returned)
		wmb_before_doorbell(); /* flush write combining: the program may wait for ring space */
}

/* Starts a sweep of a program's channels, which takes this pass and the next ones. */
static void program_begin_sweep(struct gate_watch *watch)
{
	watch->vgpu->sweeping += !watch->program->sweep_left && watch->channel_count;
	watch->program->sweep_left = watch->channel_count;
}

/* Work that is found in the sweep that begins now came when a bell first rang at the closed gate, if one did since the last
 * sweep. */
static void vgpu_begin_waited(struct gate_vgpu *vgpu)
{
	uint64_t turn = atomic_load_explicit(&vgpu->waiting_turn, memory_order_relaxed);

	vgpu->waited_ns =
		turn == vgpu->swept_turn ? 0 : atomic_load_explicit(&vgpu->waiting_ns, memory_order_relaxed);
	vgpu->swept_turn = turn;
}

/* The gate was opened, or a token became known: sweeps the channels of the marked programs. Charges for rings
 * behind the closed gate, or with the unknown token, are dropped. */
static void vgpu_begin_sweep(const struct gate_watched_vgpu *watched)
{
	struct gate_vgpu *vgpu = watched->vgpu;

	/* Pairs with gate_sweep's release: a poller that sees the new count sees the programs' marks. */
	vgpu->sweep_begun = atomic_load_explicit(&vgpu->sweep_want, memory_order_acquire);
	vgpu->look_ns = 0;
	vgpu_begin_waited(vgpu);
	for (size_t i = 0; i < watched->program_count; i++) {
		struct gate_watch *watch = &watched->programs[i];

		if (!is_gone(watch) &&
		    atomic_exchange_explicit(&watch->program->must_sweep, false, memory_order_relaxed))
			program_begin_sweep(watch);
	}
}

static void vgpu_end_sweep(struct gate_vgpu *vgpu)
{
	/* Pairs with the acquire in is_sweep_due: everything that was queued before the sweep has been
	 * forwarded. */
	if (!vgpu->sweeping &&
	    atomic_load_explicit(&vgpu->sweep_done, memory_order_relaxed) != vgpu->sweep_begun)
		atomic_store_explicit(&vgpu->sweep_done, vgpu->sweep_begun, memory_order_release);
}

static void program_sweep(struct gate *gate, struct gate_watch *watch)
{
	struct gate_program *program = watch->program;
	uint64_t waited_ns = watch->vgpu->waited_ns;
	struct gate_came came = waited_ns ? (struct gate_came){ waited_ns, waited_ns } : came_now(gate);

	for (int n = 0; n < SWEEPS_PER_PASS && program->sweep_left; n++)
		if (channel_forward(gate, watch->channels[--program->sweep_left]))
			vgpu_forwarded(gate, watch->vgpu, came);
	watch->vgpu->sweeping -= program->sweep_left == 0;
}

/* Looks at the channels of one program of a vGPU, and of the next one in the next pass, because each look may
 * cost a bus read. `rang` is the program that rang in this pass, or NULL. Returns whether a sweep of the vGPU
 * is under way. */
static bool programs_pass(struct gate *gate, const struct gate_watched_vgpu *watched,
			  const struct gate_watch *rang)
{
	struct gate_vgpu *vgpu = watched->vgpu;
	struct gate_watch *watch;
	bool is_sweeping;

	if (!gate_is_open(vgpu))
		return false;
	if (atomic_load_explicit(&vgpu->sweep_want, memory_order_relaxed) != vgpu->sweep_begun)
		vgpu_begin_sweep(watched);
	vgpu->program_at = next_of(vgpu->program_at, watched->program_count);
	watch = &watched->programs[vgpu->program_at];
	is_sweeping = vgpu->sweeping != 0;
	if (!is_gone(watch) && watch->program->sweep_left) {
		program_sweep(gate, watch);
	} else if (!is_gone(watch) && watch->channel_count) {
		if (watch != rang)
			look_at_recent(gate, watch);
		look_at_all(gate, watch);
	}
	vgpu_end_sweep(vgpu);
	return is_sweeping;
}

/* Returns the first doorbell of the range that has rung, or `to`. It uses a plain load: an exchange would
 * take the cache line away from the program each time. */
static size_t find_rung(const struct gate_watched_bell *bells, size_t from, size_t to)
{
	for (; from < to; from++)
		if (atomic_load_explicit(atomic_load_explicit(&bells[from].word, memory_order_relaxed),
					 memory_order_relaxed) != GATE_NO_TOKEN)
			break;
	return from;
}

/* Takes one ring, starting after the last one taken. Returns the program that rang, or NULL. */
static struct gate_watch *bells_pass(struct gate *gate, const struct gate_watched_vgpu *watched,
				     bool *is_news)
{
	struct gate_vgpu *vgpu = watched->vgpu;
	size_t count = watched->bell_count, from = vgpu->bell_at < count ? vgpu->bell_at : 0;
	size_t to = count - from > LOOKS_PER_PASS ? from + LOOKS_PER_PASS : count;
	size_t at = find_rung(watched->bells, from, to);

	if (at == to && to == count) { /* continue at the first doorbell */
		to = count > LOOKS_PER_PASS ? from + LOOKS_PER_PASS - count : from;
		at = find_rung(watched->bells, 0, to);
	}
	if (at == to) {
		vgpu->bell_at = to;
		return NULL;
	}
	vgpu->bell_at = at + 1;
	_Atomic uint32_t *word = atomic_load_explicit(&watched->bells[at].word, memory_order_relaxed);
	uint32_t token = atomic_exchange_explicit(word, GATE_NO_TOKEN, memory_order_acq_rel);

	*is_news = program_rang(gate, watched->bells[at].watch, token);
	return watched->bells[at].watch;
}

static enum gate_pass vgpu_pass(struct gate *gate, const struct gate_watched_vgpu *watched,
				bool is_clock_pass)
{
	struct gate_vgpu *vgpu = watched->vgpu;
	struct gate_watch *rang = NULL;
	bool is_news = false;

	if (!vgpu_is_left_alone(gate, vgpu))
		rang = bells_pass(gate, watched, &is_news);
	if (is_clock_pass)
		return_gets(watched);
	if (vgpu->unsettled || atomic_load_explicit(&vgpu->sweep_want, memory_order_relaxed) !=
				       atomic_load_explicit(&vgpu->sweep_done, memory_order_relaxed))
		is_news |= programs_pass(gate, watched, rang);
	if (is_news)
		return GATE_PASS_NEWS;
	return vgpu->unsettled && gate_is_open(vgpu) && !vgpu_is_left_alone(gate, vgpu) ? GATE_PASS_UNSETTLED
											: GATE_PASS_SILENT;
}

/* A new table: channels may have other indexes. Rounds that are under way start again. */
static void table_begin(const struct gate_table *table)
{
	for (size_t i = 0; i < table->vgpu_count; i++)
		table->vgpus[i].vgpu->sweeping = table->vgpus[i].vgpu->unsettled = 0;
	for (size_t i = 0; i < table->program_count; i++) {
		const struct gate_watch *watch = &table->programs[i];
		struct gate_program *program = watch->program;

		if (is_gone(watch))
			continue;
		program->recent_left = program->recent_left ? watch->channel_count : 0;
		program->all_left = program->all_left ? watch->channel_count : 0;
		program->sweep_left = program->sweep_left ? watch->channel_count : 0;
		watch->vgpu->unsettled += program->all_left != 0;
		watch->vgpu->sweeping += program->sweep_left != 0;
	}
}

enum gate_pass gate_pass(struct gate *gate, struct gate_table *table)
{
	bool is_clock_pass = ++gate->passes % SPINS_PER_CLOCK == 0;
	/* Pairs with gate_publish_less: a poller that sees the new generation sees which program is gone. */
	uint64_t generation = atomic_load_explicit(&table->generation, memory_order_acquire);
	enum gate_pass found = GATE_PASS_SILENT;

	if (generation != gate->generation_seen)
		table_begin(table);
	gate->generation_seen = generation;
	if (is_clock_pass)
		gate->now_ns = bf_now_ns();
	for (size_t i = 0; i < table->vgpu_count; i++) {
		enum gate_pass one = vgpu_pass(gate, &table->vgpus[i], is_clock_pass);

		found = one > found ? one : found;
	}
	gate->looked_ns = gate->now_ns;
	return found;
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
	if (quiet_us < rest->awake_us)
		return rest->doze_us;
	return rest->tired_us && quiet_us >= rest->tired_us ? rest->deep_us : rest->sleep_us;
}

/* Whether the programs know of all that the GPU has read from their rings. Until then the poller has GP_GETs to return. */
static bool is_all_returned(const struct gate_table *table)
{
	for (size_t i = 0; i < table->program_count; i++) {
		const struct gate_watch *watch = &table->programs[i];

		if (is_gone(watch))
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
static bool note_trapped(struct gate *gate, const struct gate_table *table, bool is_trapped)
{
	if (is_trapped && !gate->was_trapped)
		gate->round_left = table->round_passes;
	gate->was_trapped = is_trapped;
	if (gate->round_left)
		gate->round_left--;
	return is_trapped;
}

static void answer_house(struct gate *gate, uint32_t want)
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
	prctl(PR_SET_TIMERSLACK, 1); /* the default slack would add 50 us to doze_us */
	gate_traps_signal(&gate->traps, &gate->want);
	while (!atomic_load_explicit(&gate->is_ending, memory_order_acquire)) {
		/* Load want before table: a table published before want was raised is then used in this
		 * pass. */
		uint32_t want = atomic_load_explicit(&gate->want, memory_order_acquire);
		struct gate_table *table = atomic_load_explicit(&gate->table, memory_order_acquire);
		bool is_trapped = gate_traps_are_armed(&gate->traps); /* before the pass */
		enum gate_pass found = gate_pass(gate, table);
		uint64_t quiet_us;

		answer_house(gate, want);
		if (found == GATE_PASS_NEWS)
			last_ring_ns = gate->now_ns;
		quiet_us = (gate->now_ns - last_ring_ns) / 1000;
		gate_traps_want(&gate->traps, found == GATE_PASS_SILENT, quiet_us, gate->rest.trap_us,
				gate->now_ns);
		is_trapped = note_trapped(gate, table, is_trapped && gate_traps_are_armed(&gate->traps));
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
			gate->passes = SPINS_PER_CLOCK - 1;
			gate->looked_ns = bf_now_ns() - TRAP_NS; /* a ring wakes the poller */
			gate->round_left = table->round_passes;
		} else {
			rest(gate, want, rest_us(&gate->rest, quiet_us));
			gate->passes = SPINS_PER_CLOCK - 1; /* read the clock in the next pass */
		}
	}
	return NULL;
}

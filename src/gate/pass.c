/* One pass of the poller: rings are taken and work is passed on. This is the hot code of the gate. */
#include "base/clock.h"
#include "gate/poller.h"

enum {
	ALL_STEP_NS = 8000,	  /* after a ring, look at the next of all channels this often */
	ALL_STEP_BUSY_NS = 50000, /* the same while the program keeps ringing */
	BUSY_NS = 20000,	  /* a program that rang this recently keeps ringing */
	RECENT_NS = 100000,	  /* a channel that rang this recently is looked at after every ring */
};

/* Limits of one vGPU in one pass, besides one ring: silent doorbells read, channels swept, GP_GETs returned.
 * Most programs have fewer doorbells and channels. The next pass continues where this one stops. */
enum { LOOKS_PER_PASS = GATE_LOOKS_PER_PASS, SWEEPS_PER_PASS = 4, GETS_PER_PASS = 64 };

/* A ring finds its work already forwarded if the poller looked at the channel between the program's store of
 * GP_PUT and its ring. After one forward, that can happen to two rings: one that is in the doorbell word, and
 * one whose GP_PUT is stored but whose token is not yet. */
enum { EMPTY_PER_FORWARD = 2 };

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

static void call_back(struct gate *gate)
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

/* Something was passed on. If the vGPU was marked quiet (gate_vgpu_quiet), the callback runs. */
static void vgpu_forwarded(struct gate *gate, struct gate_vgpu *vgpu, struct gate_came came)
{
	size_t at;

	count(&vgpu->forwards);
	at = vgpu->forwards % GATE_FORWARDS_KEPT;
	atomic_store_explicit(&vgpu->last_forward_ns, gate->now_ns, memory_order_relaxed);
	atomic_store_explicit(&vgpu->likely_ns[at], came.likely_ns, memory_order_relaxed);
	/* Pairs with the acquire in came_at: whoever finds it finds likely_ns, or that of a later one. */
	atomic_store_explicit(&vgpu->found_ns[at], came.found_ns, memory_order_release);
	/* The new count must be visible before is_quiet is read: see gate_vgpu_quiet. */
	if (gate->has_membarrier)
		atomic_signal_fence(memory_order_seq_cst);
	else
		atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&vgpu->is_quiet, memory_order_relaxed))
		return;
	atomic_store_explicit(&vgpu->woke_ns, gate->now_ns, memory_order_relaxed);
	atomic_store_explicit(&vgpu->woke_found_ns, came.found_ns, memory_order_relaxed);
	atomic_store_explicit(&vgpu->woke_likely_ns, came.likely_ns, memory_order_relaxed);
	/* Pairs with the acquire in gate_vgpu_counts: a thread that sees is_quiet cleared sees the times. */
	atomic_store_explicit(&vgpu->is_quiet, false, memory_order_release);
	call_back(gate);
}

/* A doorbell rang behind the gate, which is closed; `state_number` is the number of this closed period. Returns
 * true for the first ring of the period. */
static bool vgpu_waits(struct gate *gate, struct gate_vgpu *vgpu, uint64_t state_number)
{
	if (atomic_load_explicit(&vgpu->waiting_state, memory_order_relaxed) == state_number)
		return false;
	atomic_store_explicit(&vgpu->waiting_ns, gate->now_ns, memory_order_relaxed);
	/* Pairs with the acquire in gate_vgpu_counts: a thread that sees this number sees its time. */
	atomic_store_explicit(&vgpu->waiting_state, state_number, memory_order_release);
	call_back(gate);
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

/* Forwards what the channel has queued since the last time. The program stores its GPFIFO entries and GP_PUT
 * before it rings the doorbell, with a fence in between, so GP_PUT read after taking the ring includes at least the
 * work of that ring. */
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

/* Whether the program has queued work that was not forwarded. */
static bool channel_has_work(const struct gate_channel *ch)
{
	return atomic_load_explicit(&ch->token, memory_order_relaxed) != GATE_NO_TOKEN &&
	       ch->program_userd[GATE_GP_PUT_WORD] !=
		       atomic_load_explicit(&ch->sent_put, memory_order_relaxed);
}

/* Forwards work of a channel that was found without a ring. The gate may have been closed since the ring that the look
 * belongs to: then the work waits. */
static bool channel_look(struct gate *gate, struct gate_vgpu *vgpu, struct gate_channel *ch)
{
	uint64_t state_number = atomic_load_explicit(&vgpu->state_number, memory_order_relaxed);

	if (!gate_state_is_open(state_number) && channel_has_work(ch))
		vgpu_waits(gate, vgpu, state_number);
	if (!gate_state_is_open(state_number) || !channel_forward(gate, ch))
		return false;
	vgpu_forwarded(gate, vgpu, came_now(gate));
	return true;
}

/* Copies the GPU's GP_GET to the program's page. Without it, the program's GPFIFO would stay full. */
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
static void program_unsettle(struct gate_watched_program *watch)
{
	watch->vgpu->unsettled += !watch->program->all_left && watch->channel_count;
	watch->program->all_left = watch->channel_count;
}

/* A ring without new work is not charged if it may belong to the last forward. */
static bool channel_take_empty_credit(struct gate_channel *rung)
{
	if (!rung->empty_left)
		return false;
	rung->empty_left--;
	return true;
}

/* A program rang with this token. If two threads ring at the same time, only one token stays in the word. So
 * after each ring the program's other channels are looked at too: first those that rang recently
 * (look_at_recent), later all of them (look_at_all). Returns whether the ring was useful: it brought work, or
 * it was the first ring behind a closed gate, whose work is found when the gate opens. */
static bool program_rang(struct gate *gate, struct gate_watched_program *watch, uint32_t token)
{
	uint64_t state_number = atomic_load_explicit(&watch->vgpu->state_number, memory_order_relaxed);
	struct gate_program *program = watch->program;
	struct gate_channel *rung = NULL;
	bool is_sent = false, is_news = false;

	for (size_t i = 0; i < watch->channel_count && !rung; i++)
		if (atomic_load_explicit(&watch->channels[i]->token, memory_order_relaxed) == token)
			rung = watch->channels[i];
	/* The clock is read before the work is passed on: the program that this wakes may take the processor. */
	program->rang_ns = gate->now_ns = bf_now_ns();
	if (rung && gate_state_is_open(state_number)) /* a closed gate looks at everything when it opens */
		is_sent = channel_forward(gate, rung);
	count(rung ? &gate->rings : &gate->strange);
	if (rung) {
		rung->rang_ns = program->rang_ns;
		count(&watch->vgpu->rings);
		if (is_sent)
			vgpu_forwarded(gate, watch->vgpu, came_now(gate));
		is_news = is_sent ||
			  (gate_state_is_open(state_number) ? channel_take_empty_credit(rung)
							    : vgpu_waits(gate, watch->vgpu, state_number));
	}
	if (!is_news)
		vgpu_charge(gate, watch->vgpu);
	/* During a flood of rings a round that is under way is not restarted, but repeated. */
	program->all_again = vgpu_is_left_alone(gate, watch->vgpu) && program->all_left;
	if (!vgpu_is_left_alone(gate, watch->vgpu))
		program->recent_left = watch->channel_count;
	if (!program->all_again)
		program_unsettle(watch);
	return is_news;
}

/* One channel per pass, because a look may cost a bus read and other vGPUs may be ringing. */
static void look_at_recent(struct gate *gate, struct gate_watched_program *watch)
{
	struct gate_program *program = watch->program;

	while (program->recent_left) {
		struct gate_channel *ch = watch->channels[--program->recent_left];

		if (ch->rang_ns == program->rang_ns || program->rang_ns - ch->rang_ns > RECENT_NS)
			continue;
		if (channel_look(gate, watch->vgpu, ch))
			count(&gate->found_unrung);
		return;
	}
}

static void look_at_all(struct gate *gate, struct gate_watched_program *watch)
{
	struct gate_program *program = watch->program;
	uint64_t now_ns = gate->now_ns;
	uint64_t step_ns = now_ns - program->rang_ns < BUSY_NS ? ALL_STEP_BUSY_NS : ALL_STEP_NS;

	if (!program->all_left || now_ns - program->all_ns < step_ns)
		return;
	program->all_ns = now_ns;
	if (program->all_left == 1 && program->all_again) {
		program->all_left += watch->channel_count;
		program->all_again = false;
	}
	watch->vgpu->unsettled -= --program->all_left == 0;
	program->all_at = (program->all_at + 1) % watch->channel_count;
	if (channel_look(gate, watch->vgpu, watch->channels[program->all_at])) {
		watch->channels[program->all_at]->rang_ns = now_ns;
		count(&gate->found_unrung);
	}
}

static size_t next_of(size_t at, size_t count)
{
	return at + 1 < count ? at + 1 : 0;
}

/* Returns the GP_GETs of the next `channels` channels of a program. True: at least one changed. */
static bool program_return_gets(struct gate_watched_program *watch, size_t channels)
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
		struct gate_watched_program *watch = &watched->programs[vgpu->get_at];
		size_t part = watch->channel_count < left ? watch->channel_count : left;

		if (gate_program_is_gone(watch))
			continue;
		returned |= program_return_gets(watch, part);
		left -= part;
	}
	if (returned)
		wmb_before_doorbell(); /* flush write combining: the program may wait for space in the GPFIFO */
}

/* Starts a sweep of a program's channels, which takes this pass and the next ones. */
static void program_begin_sweep(struct gate_watched_program *watch)
{
	watch->vgpu->sweeping += !watch->program->sweep_left && watch->channel_count;
	watch->program->sweep_left = watch->channel_count;
}

/* Work that is found in the sweep that begins now came when a bell first rang at the closed gate, if one did since the last
 * sweep. */
static void vgpu_begin_waited(struct gate_vgpu *vgpu)
{
	uint64_t state = atomic_load_explicit(&vgpu->waiting_state, memory_order_relaxed);

	vgpu->waited_ns = state == vgpu->swept_state
				  ? 0
				  : atomic_load_explicit(&vgpu->waiting_ns, memory_order_relaxed);
	vgpu->swept_state = state;
}

/* The gate was opened, or a token became known: sweeps the channels of the marked programs. Charges for rings
 * behind the closed gate, or with the unknown token, are dropped. */
static void vgpu_begin_sweep(const struct gate_watched_vgpu *watched)
{
	struct gate_vgpu *vgpu = watched->vgpu;

	/* Pairs with gate_sweep's release: a poller that sees the new count sees the programs' marks. The marks have an order of
	 * their own: a sweep may take one that was set for the next. */
	vgpu->sweep_begun = atomic_load_explicit(&vgpu->sweep_want, memory_order_acquire);
	vgpu->look_ns = 0;
	vgpu_begin_waited(vgpu);
	for (size_t i = 0; i < watched->program_count; i++) {
		struct gate_watched_program *watch = &watched->programs[i];

		if (!gate_program_is_gone(watch) &&
		    atomic_exchange_explicit(&watch->program->must_sweep, false, memory_order_acquire))
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

static void program_sweep(struct gate *gate, struct gate_watched_program *watch)
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
			  const struct gate_watched_program *rang)
{
	struct gate_vgpu *vgpu = watched->vgpu;
	struct gate_watched_program *watch;
	bool is_open = gate_is_open(vgpu), is_sweeping;

	if (is_open && atomic_load_explicit(&vgpu->sweep_want, memory_order_relaxed) != vgpu->sweep_begun)
		vgpu_begin_sweep(watched);
	vgpu->program_at = next_of(vgpu->program_at, watched->program_count);
	watch = &watched->programs[vgpu->program_at];
	is_sweeping = is_open && vgpu->sweeping;
	if (!gate_program_is_gone(watch) && watch->program->sweep_left && is_open) {
		program_sweep(gate, watch);
	} else if (!gate_program_is_gone(watch) && watch->channel_count) {
		if (watch != rang)
			look_at_recent(gate, watch);
		look_at_all(gate, watch);
	}
	if (is_open)
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
static struct gate_watched_program *bells_pass(struct gate *gate, const struct gate_watched_vgpu *watched,
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
	struct gate_watched_program *rang = NULL;
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
	return vgpu->unsettled && !vgpu_is_left_alone(gate, vgpu) ? GATE_PASS_UNSETTLED : GATE_PASS_SILENT;
}

static bool vgpu_is_gone(const struct gate_watched_vgpu *watched)
{
	return atomic_load_explicit(&watched->is_gone, memory_order_acquire);
}

/* A new table: channels may have other indexes. Rounds that are under way start again. */
static void table_begin(const struct gate_table *table)
{
	for (size_t i = 0; i < table->vgpu_count; i++)
		if (!vgpu_is_gone(&table->vgpus[i]))
			table->vgpus[i].vgpu->sweeping = table->vgpus[i].vgpu->unsettled = 0;
	for (size_t i = 0; i < table->program_count; i++) {
		const struct gate_watched_program *watch = &table->programs[i];
		struct gate_program *program = watch->program;

		if (gate_program_is_gone(watch))
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
	bool is_clock_pass = ++gate->passes % GATE_PASSES_PER_CLOCK == 0;
	/* Pairs with gate_publish_less: a poller that sees the new generation sees which program is gone. */
	uint64_t generation = atomic_load_explicit(&table->generation, memory_order_acquire);
	enum gate_pass found = GATE_PASS_SILENT;

	if (generation != gate->generation_seen)
		table_begin(table);
	gate->generation_seen = generation;
	if (is_clock_pass)
		gate->now_ns = bf_now_ns();
	for (size_t i = 0; i < table->vgpu_count; i++) {
		enum gate_pass one = vgpu_is_gone(&table->vgpus[i])
					     ? GATE_PASS_SILENT
					     : vgpu_pass(gate, &table->vgpus[i], is_clock_pass);

		found = one > found ? one : found;
	}
	gate->looked_ns = gate->now_ns;
	return found;
}

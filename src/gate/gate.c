/* The control side of the gate: the vGPUs, programs, bells and channels. Changes are rare, so every change
 * builds a new table for the poller and publishes it as a whole. The poller reads tables and never waits for
 * another thread. */
#include "gate/gate.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gate/poller.h"

const struct gate_rest gate_rest_default = {
	.spin_us = 5000,
	.doze_us = 50,
	.awake_us = 200000,
	.sleep_us = 1000,
	.tired_us = 2000000,
	.deep_us = 2500,
	.trap_us = 20000,
	.net_us = 20000,
};

/* Bells of removed programs point to this word, which is never rung. */
static _Atomic uint32_t silent_word = GATE_NO_TOKEN;

struct table_size {
	size_t vgpus, programs, bells, channels;
};

static struct table_size table_measure(const struct gate *gate)
{
	struct table_size size = { 0 };

	for (const struct gate_vgpu *v = gate->vgpus; v; v = v->next) {
		size.vgpus += v->programs != NULL;
		for (const struct gate_program *p = v->programs; p; p = p->next) {
			size.programs++;
			for (const struct gate_bell *b = p->bells; b; b = b->next)
				size.bells++;
			for (const struct gate_channel *c = p->channels; c; c = c->next)
				size.channels++;
		}
	}
	return size;
}

/* Append a program and its bells to the table, and its channels at `channel`; returns the end of the
 * channels. */
static struct gate_channel **table_add_program(struct gate_table *table, struct gate_program *program,
					       struct gate_channel **channel)
{
	struct gate_watch *watch = &table->programs[table->program_count++];

	watch->program = program;
	watch->vgpu = program->vgpu;
	watch->channels = channel;
	for (struct gate_bell *b = program->bells; b; b = b->next) {
		struct gate_watched_bell *bell = &table->bells[table->bell_count++];

		atomic_store_explicit(&bell->word, b->word, memory_order_relaxed);
		bell->watch = watch;
	}
	for (struct gate_channel *c = program->channels; c; c = c->next, watch->channel_count++)
		*channel++ = c;
	return channel;
}

/* The table is one allocation. Under the lock. */
static struct gate_table *table_build(struct gate *gate)
{
	struct table_size size = table_measure(gate);
	struct gate_table *table = calloc(1, sizeof(*table) + size.programs * sizeof(table->programs[0]) +
						     size.vgpus * sizeof(table->vgpus[0]) +
						     size.bells * sizeof(table->bells[0]) +
						     size.channels * sizeof(void *));
	struct gate_channel **channel;

	if (!table)
		return NULL;
	table->vgpus = (struct gate_watched_vgpu *)&table->programs[size.programs];
	table->bells = (struct gate_watched_bell *)&table->vgpus[size.vgpus];
	channel = (struct gate_channel **)&table->bells[size.bells];
	for (struct gate_vgpu *v = gate->vgpus; v; v = v->next) {
		struct gate_watched_vgpu *watched;
		size_t passes;

		if (!v->programs)
			continue;
		watched = &table->vgpus[table->vgpu_count++];
		*watched = (struct gate_watched_vgpu){ .vgpu = v,
						       .bells = &table->bells[table->bell_count],
						       .programs = &table->programs[table->program_count] };
		for (struct gate_program *p = v->programs; p; p = p->next, watched->program_count++)
			channel = table_add_program(table, p, channel);
		watched->bell_count = (size_t)(&table->bells[table->bell_count] - watched->bells);
		passes = (watched->bell_count + GATE_LOOKS_PER_PASS - 1) / GATE_LOOKS_PER_PASS;
		table->round_passes = passes > table->round_passes ? passes : table->round_passes;
	}
	atomic_store_explicit(&table->generation, ++gate->generation, memory_order_relaxed);
	return table;
}

/* Wait until the poller has completed a pass that began after everything written before this call. */
static void gate_sync(struct gate *gate)
{
	/* Pairs with the poller's acquire load of `want`: the pass that answers it sees what this thread
	 * wrote before. */
	uint32_t want = atomic_fetch_add_explicit(&gate->want, 1, memory_order_release) + 1;

	syscall(SYS_futex, &gate->want, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	for (;;) {
		uint32_t seen = atomic_load_explicit(&gate->seen, memory_order_acquire);

		if ((int32_t)(seen - want) >= 0)
			return;
		/* A pass takes microseconds; the timeout matters only if the poller is not scheduled. */
		struct timespec limit = { 0, 1000000 };
		syscall(SYS_futex, &gate->seen, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
	}
}

/* Whether the poller still has to complete this sweep. It sweeps no vGPU that has nothing in the table, and
 * none that another thread has closed again. */
static bool is_sweep_due(struct gate_vgpu *vgpu, uint32_t want)
{
	bool is_watched = false;

	/* Pairs with the poller's release in vgpu_end_sweep: what the sweep has passed on is seen here. */
	if ((int32_t)(atomic_load_explicit(&vgpu->sweep_done, memory_order_acquire) - want) >= 0 ||
	    !gate_is_open(vgpu))
		return false;
	pthread_mutex_lock(&vgpu->gate->lock);
	for (const struct gate_program *p = vgpu->programs; p && !is_watched; p = p->next)
		is_watched = p->bells || p->channels;
	pthread_mutex_unlock(&vgpu->gate->lock);
	return is_watched;
}

/* Wait until the poller has looked at every channel of the programs that must_sweep. */
static void gate_sweep(struct gate_vgpu *vgpu)
{
	/* Pairs with the poller's acquire in vgpu_begin_sweep: the poller sees the marks of the programs, and
	 * what was written before them: an open gate, or a token. */
	uint32_t want = atomic_fetch_add_explicit(&vgpu->sweep_want, 1, memory_order_release) + 1;

	do
		gate_sync(vgpu->gate); /* more than once if there are many channels: a pass looks at few */
	while (is_sweep_due(vgpu, want));
}

/* Publish a new table, built from the current lists. Under the lock; call gate_settle afterwards. */
static int gate_publish(struct gate *gate, struct gate_table **old)
{
	struct gate_table *table = table_build(gate);

	if (!table)
		return -ENOMEM;
	*old = atomic_exchange_explicit(&gate->table, table, memory_order_acq_rel);
	return 0;
}

/* Removing must not fail: if no new table can be built, the program is disabled in the current one. */
static void gate_publish_less(struct gate *gate, const struct gate_program *program, struct gate_table **old)
{
	if (gate_publish(gate, old) == 0)
		return;
	*old = NULL;
	/* The table is not freed meanwhile: a thread that replaces it needs the lock. */
	struct gate_table *table = atomic_load_explicit(&gate->table, memory_order_relaxed);
	for (size_t i = 0; i < table->bell_count; i++)
		if (table->bells[i].watch->program == program)
			atomic_store_explicit(&table->bells[i].word, &silent_word, memory_order_relaxed);
	for (size_t i = 0; i < table->program_count; i++)
		if (table->programs[i].program == program)
			atomic_store_explicit(&table->programs[i].is_gone, true, memory_order_release);
	/* Pairs with the poller's acquire in gate_pass: the poller then resets its counts (table_begin),
	 * without the program. */
	atomic_store_explicit(&table->generation, ++gate->generation, memory_order_release);
}

/* Without the lock: when this returns, the poller uses neither the old table nor what is missing in the new
 * one. Other threads may have published tables since; each of them frees the table that it has replaced. */
static void gate_settle(struct gate *gate, struct gate_table *old)
{
	gate_sync(gate);
	free(old);
}

void gate_set_call(struct gate *gate, void (*call)(void *context), void *context)
{
	gate->call = call;
	gate->call_context = context;
}

void gate_set_rang(struct gate *gate, void (*rang)(volatile uint32_t *bell))
{
	gate->rang = rang;
}

struct gate *gate_new(volatile uint32_t *bell, const struct gate_rest *rest, struct bf_error *err)
{
	struct gate *gate = calloc(1, sizeof(*gate));
	int rc;

	if (!gate)
		goto no_memory;
	gate->bell = bell;
	gate->rest = rest ? *rest : gate_rest_default;
	pthread_mutex_init(&gate->lock, NULL);
	atomic_store(&gate->table, table_build(gate));
	if (!atomic_load(&gate->table))
		goto no_memory;
	rc = gate_traps_start(&gate->traps);
	if (rc) {
		free(atomic_load(&gate->table));
		free(gate);
		bf_fail(err, rc, "gate: cannot start the trapper thread: %s", strerror(rc));
		return NULL;
	}
	rc = pthread_create(&gate->poller, NULL, gate_poller_main, gate);
	if (rc) {
		gate_traps_end(&gate->traps);
		free(atomic_load(&gate->table));
		free(gate);
		bf_fail(err, rc, "gate: cannot start the poller thread: %s", strerror(rc));
		return NULL;
	}
	return gate;
no_memory:
	free(gate);
	bf_fail(err, ENOMEM, "gate: out of memory");
	return NULL;
}

void gate_free(struct gate *gate)
{
	if (!gate)
		return;
	atomic_store_explicit(&gate->is_ending, true, memory_order_release);
	atomic_fetch_add_explicit(&gate->want, 1, memory_order_release);
	syscall(SYS_futex, &gate->want, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	pthread_join(gate->poller, NULL);
	gate_traps_end(&gate->traps);
	free(atomic_load(&gate->table));
	pthread_mutex_destroy(&gate->lock);
	free(gate);
}

struct gate_vgpu *gate_vgpu_add(struct gate *gate)
{
	struct gate_vgpu *vgpu = calloc(1, sizeof(*vgpu));

	if (!vgpu)
		return NULL;
	vgpu->gate = gate;
	pthread_mutex_init(&vgpu->state_lock, NULL);
	atomic_store(&vgpu->is_quiet, true);
	pthread_mutex_lock(&gate->lock);
	vgpu->next = gate->vgpus;
	gate->vgpus = vgpu;
	pthread_mutex_unlock(&gate->lock);
	return vgpu;
}

/* Programs are removed one at a time, since each removal waits for the poller. No program is added to a vGPU
 * that is being removed. */
static struct gate_program *first_program(struct gate_vgpu *vgpu)
{
	struct gate_program *program;

	pthread_mutex_lock(&vgpu->gate->lock);
	program = vgpu->programs;
	pthread_mutex_unlock(&vgpu->gate->lock);
	return program;
}

void gate_vgpu_remove(struct gate_vgpu *vgpu)
{
	struct gate_program *program;
	struct gate_vgpu **at;

	if (!vgpu)
		return;
	while ((program = first_program(vgpu)))
		gate_program_remove(program);
	/* A table refers to a vGPU only through its programs, so the poller no longer uses this one. */
	pthread_mutex_lock(&vgpu->gate->lock);
	for (at = &vgpu->gate->vgpus; *at != vgpu; at = &(*at)->next)
		;
	*at = vgpu->next;
	pthread_mutex_unlock(&vgpu->gate->lock);
	pthread_mutex_destroy(&vgpu->state_lock);
	free(vgpu);
}

struct gate_program *gate_program_add(struct gate_vgpu *vgpu)
{
	struct gate_program *program = calloc(1, sizeof(*program));

	if (!program)
		return NULL;
	program->vgpu = vgpu;
	pthread_mutex_lock(&vgpu->gate->lock);
	program->next = vgpu->programs;
	vgpu->programs = program;
	pthread_mutex_unlock(&vgpu->gate->lock);
	return program; /* there is nothing to watch yet, so no table is published */
}

/* Under the lock. */
static void bell_left(struct gate_bell *bell)
{
	bell->program->vgpu->bell_count--;
	if (!bell->traps)
		atomic_fetch_sub(&bell->program->vgpu->gate->traps.missing, 1);
}

static void bell_free(struct gate_bell *bell)
{
	gate_traps_remove(&bell->program->vgpu->gate->traps, bell->traps, bell->trap_count);
	free(bell->traps);
	free(bell);
}

void gate_program_remove(struct gate_program *program)
{
	struct gate *gate = program ? program->vgpu->gate : NULL;
	struct gate_program **at;
	struct gate_table *old;

	if (!program)
		return;
	pthread_mutex_lock(&gate->lock);
	for (at = &program->vgpu->programs; *at != program; at = &(*at)->next)
		;
	*at = program->next;
	for (struct gate_bell *b = program->bells; b; b = b->next)
		bell_left(b);
	gate_publish_less(gate, program, &old);
	pthread_mutex_unlock(&gate->lock);
	gate_settle(gate, old);
	for (struct gate_bell *b = program->bells, *next; b; b = next) {
		next = b->next;
		bell_free(b);
	}
	for (struct gate_channel *c = program->channels, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(program);
}

static int publish_bell(struct gate *gate, struct gate_bell *bell, struct gate_table **old)
{
	struct gate_program *program = bell->program;
	int rc;

	pthread_mutex_lock(&gate->lock);
	bell->next = program->bells;
	program->bells = bell;
	rc = program->vgpu->bell_count < GATE_BELLS_MAX ? gate_publish(gate, old) : -ENOSPC;
	if (rc) {
		program->bells = bell->next;
	} else {
		program->vgpu->bell_count++;
		atomic_fetch_add(&gate->traps.missing, 1);
	}
	pthread_mutex_unlock(&gate->lock);
	return rc;
}

struct gate_bell *gate_bell_add(struct gate_program *program, volatile uint32_t *page)
{
	struct gate *gate = program->vgpu->gate;
	struct gate_bell *bell = calloc(1, sizeof(*bell));
	struct gate_table *old;

	if (!bell)
		return NULL;
	bell->program = program;
	bell->word = (_Atomic uint32_t *)(uintptr_t)&page[GATE_BELL_WORD];
	atomic_store(bell->word, GATE_NO_TOKEN);
	if (publish_bell(gate, bell, &old)) {
		free(bell);
		return NULL;
	}
	gate_settle(gate, old);
	return bell;
}

void gate_bell_remove(struct gate_bell *bell)
{
	struct gate *gate = bell->program->vgpu->gate;
	struct gate_table *old;
	struct gate_bell **at;

	pthread_mutex_lock(&gate->lock);
	for (at = &bell->program->bells; *at != bell; at = &(*at)->next)
		;
	*at = bell->next;
	bell_left(bell);
	gate_publish_less(gate, bell->program, &old);
	pthread_mutex_unlock(&gate->lock);
	gate_settle(gate, old);
	bell_free(bell);
}

void gate_allow_traps(struct gate *gate, bool are_allowed)
{
	atomic_store_explicit(&gate->traps.are_forbidden, !are_allowed, memory_order_relaxed);
	gate_sync(gate); /* the poller may sleep, relying on them */
}

bool gate_takes_traps(const struct gate *gate)
{
	return gate->rest.trap_us && !atomic_load_explicit(&gate->traps.are_forbidden, memory_order_relaxed);
}

int gate_bell_set_traps(struct gate_bell *bell, const int *events, size_t count)
{
	struct gate *gate = bell->program->vgpu->gate;
	struct gate_trap **traps = calloc(count, sizeof(struct gate_trap *));

	if (!traps || !count || bell->traps) {
		for (size_t i = 0; i < count; i++)
			close(events[i]);
		free(traps);
		return !count || bell->traps ? -EINVAL : -ENOMEM;
	}
	if (!gate_traps_add(&gate->traps, events, count, traps)) {
		free(traps);
		return -EIO;
	}
	pthread_mutex_lock(&gate->lock);
	bell->traps = traps;
	bell->trap_count = count;
	atomic_fetch_sub(&gate->traps.missing, 1);
	pthread_mutex_unlock(&gate->lock);
	return 0;
}

static int publish_channel(struct gate *gate, struct gate_channel *channel, struct gate_table **old)
{
	struct gate_program *program = channel->program;
	int rc;

	pthread_mutex_lock(&gate->lock);
	channel->next = program->channels;
	program->channels = channel;
	rc = gate_publish(gate, old);
	if (rc)
		program->channels = channel->next;
	pthread_mutex_unlock(&gate->lock);
	return rc;
}

struct gate_channel *gate_channel_add(struct gate_program *program, volatile uint32_t *program_userd,
				      volatile uint32_t *gpu_userd)
{
	struct gate *gate = program->vgpu->gate;
	struct gate_channel *channel = calloc(1, sizeof(*channel));
	struct gate_table *old;

	if (!channel)
		return NULL;
	channel->program = program;
	channel->program_userd = program_userd;
	channel->gpu_userd = gpu_userd;
	atomic_store(&channel->token, GATE_NO_TOKEN);
	if (publish_channel(gate, channel, &old)) {
		free(channel);
		return NULL;
	}
	gate_settle(gate, old);
	return channel;
}

void gate_channel_set_token(struct gate_channel *channel, uint32_t token)
{
	if (atomic_exchange(&channel->token, token) == token)
		return;
	/* The program may have rung before the token was known. */
	atomic_store_explicit(&channel->program->must_sweep, true, memory_order_relaxed);
	gate_sweep(channel->program->vgpu);
}

void gate_channel_remove(struct gate_channel *channel)
{
	struct gate *gate = channel->program->vgpu->gate;
	struct gate_channel **at;
	struct gate_table *old;

	pthread_mutex_lock(&gate->lock);
	for (at = &channel->program->channels; *at != channel; at = &(*at)->next)
		;
	*at = channel->next;
	gate_publish_less(gate, channel->program, &old);
	pthread_mutex_unlock(&gate->lock);
	gate_settle(gate, old);
	free(channel);
}

bool gate_channel_was_used(const struct gate_channel *channel)
{
	return atomic_load_explicit(&channel->was_used, memory_order_relaxed);
}

uint32_t gate_channel_sent(const struct gate_channel *channel)
{
	return atomic_load_explicit(&channel->sent_put, memory_order_relaxed);
}

uint64_t gate_channel_forwards(const struct gate_channel *channel)
{
	return atomic_load_explicit(&channel->forwards, memory_order_acquire);
}

static void sweep_all(struct gate_vgpu *vgpu)
{
	pthread_mutex_lock(&vgpu->gate->lock);
	for (struct gate_program *p = vgpu->programs; p; p = p->next)
		atomic_store_explicit(&p->must_sweep, true, memory_order_relaxed);
	pthread_mutex_unlock(&vgpu->gate->lock);
	gate_sweep(vgpu);
}

/* Make `turns` agree with the state, and wait until the poller has seen it. Under state_lock. */
static void turn(struct gate_vgpu *vgpu)
{
	uint64_t turns = atomic_load_explicit(&vgpu->turns, memory_order_relaxed);
	bool is_open = !vgpu->is_closed && !gate_is_stopped(vgpu);
	bool is_change = gate_turn_is_open(turns) != is_open;

	if (is_change)
		atomic_store_explicit(&vgpu->turns, turns + 1, memory_order_relaxed);
	if (!is_open)
		gate_sync(vgpu->gate);
	else if (is_change)
		sweep_all(vgpu);
}

static void set_closed(struct gate_vgpu *vgpu, bool is_closed)
{
	pthread_mutex_lock(&vgpu->state_lock);
	vgpu->is_closed = is_closed;
	turn(vgpu);
	pthread_mutex_unlock(&vgpu->state_lock);
}

static void set_stopped(struct gate_vgpu *vgpu, bool is_stopped)
{
	pthread_mutex_lock(&vgpu->state_lock);
	atomic_store_explicit(&vgpu->is_stopped, is_stopped, memory_order_relaxed);
	turn(vgpu);
	pthread_mutex_unlock(&vgpu->state_lock);
}

void gate_open(struct gate_vgpu *vgpu)
{
	set_closed(vgpu, false);
}

void gate_close(struct gate_vgpu *vgpu)
{
	set_closed(vgpu, true);
}

void gate_stop(struct gate_vgpu *vgpu)
{
	set_stopped(vgpu, true);
}

void gate_resume(struct gate_vgpu *vgpu)
{
	set_stopped(vgpu, false);
}

enum gate_state gate_state(const struct gate_vgpu *vgpu)
{
	if (gate_is_stopped(vgpu))
		return GATE_STOPPED;
	return gate_is_open(vgpu) ? GATE_OPEN : GATE_CLOSED;
}

bool gate_is_stopped(const struct gate_vgpu *vgpu)
{
	return atomic_load_explicit(&vgpu->is_stopped, memory_order_relaxed);
}

bool gate_is_open(const struct gate_vgpu *vgpu)
{
	return gate_turn_is_open(atomic_load_explicit(&vgpu->turns, memory_order_relaxed));
}

void gate_ring_again(struct gate_vgpu *vgpu)
{
	pthread_mutex_lock(&vgpu->gate->lock);
	for (struct gate_program *p = vgpu->programs; p; p = p->next)
		for (struct gate_channel *c = p->channels; c; c = c->next) {
			uint32_t token = atomic_load(&c->token);

			/* A ring without new work is harmless, so this needs no synchronisation with the
			 * poller. */
			if (token != GATE_NO_TOKEN)
				gate_ring(vgpu->gate, token);
		}
	pthread_mutex_unlock(&vgpu->gate->lock);
}

void gate_vgpu_quiet(struct gate_vgpu *vgpu)
{
	/* Pairs with the poller's clearing in vgpu_forwarded. If the poller is about to clear an older mark,
	 * it clears this one too. But then it makes its call after that, and what it passed on is the first
	 * submission since. */
	atomic_store_explicit(&vgpu->is_quiet, true, memory_order_release);
}

struct gate_vgpu_counts gate_vgpu_counts(const struct gate_vgpu *vgpu)
{
	uint64_t turns = atomic_load_explicit(&vgpu->turns, memory_order_relaxed);
	struct gate_vgpu_counts counts = {
		.rings = atomic_load_explicit(&vgpu->rings, memory_order_relaxed),
		.forwards = atomic_load_explicit(&vgpu->forwards, memory_order_relaxed),
		.last_forward_ns = atomic_load_explicit(&vgpu->last_forward_ns, memory_order_relaxed),
	};

	/* Both pair with the poller's release store of the same word: the time was written before it. */
	if (!atomic_load_explicit(&vgpu->is_quiet, memory_order_acquire)) {
		counts.woke_ns = atomic_load_explicit(&vgpu->woke_ns, memory_order_relaxed);
		counts.woke.found_ns = atomic_load_explicit(&vgpu->woke_found_ns, memory_order_relaxed);
		counts.woke.likely_ns = atomic_load_explicit(&vgpu->woke_likely_ns, memory_order_relaxed);
	}
	if (!gate_turn_is_open(turns) &&
	    atomic_load_explicit(&vgpu->waiting_turn, memory_order_acquire) == turns)
		counts.waiting_since_ns = atomic_load_explicit(&vgpu->waiting_ns, memory_order_relaxed);
	return counts;
}

struct gate_counts gate_counts(const struct gate *gate)
{
	return (struct gate_counts){
		.rings = atomic_load_explicit(&gate->rings, memory_order_relaxed),
		.forwards = atomic_load_explicit(&gate->forwards, memory_order_relaxed),
		.strange = atomic_load_explicit(&gate->strange, memory_order_relaxed),
		.swept = atomic_load_explicit(&gate->swept, memory_order_relaxed),
		.is_armed = gate_traps_are_armed(&gate->traps),
		.trapped = atomic_load_explicit(&gate->traps.wakes, memory_order_relaxed),
		.empty = atomic_load_explicit(&gate->empty, memory_order_relaxed),
	};
}

/* The poller may be replacing it by a later one. */
static struct gate_came came_at(const struct gate_vgpu *vgpu, unsigned at)
{
	struct gate_came came = { .found_ns =
					  atomic_load_explicit(&vgpu->found_ns[at], memory_order_acquire) };

	came.likely_ns = atomic_load_explicit(&vgpu->likely_ns[at], memory_order_relaxed);
	if (came.likely_ns > came.found_ns)
		came.likely_ns = came.found_ns;
	return came;
}

struct gate_came gate_vgpu_came_after(const struct gate_vgpu *vgpu, uint64_t after_ns)
{
	struct gate_came first = { 0 };
	bool is_all = true;

	for (unsigned i = 0; i < GATE_FORWARDS_KEPT; i++) {
		struct gate_came came = came_at(vgpu, i);

		is_all &= came.found_ns > after_ns;
		if (came.found_ns > after_ns && (!first.found_ns || came.found_ns < first.found_ns))
			first = came;
	}
	if (is_all)
		first = (struct gate_came){ 0 };
	return first;
}

uint64_t gate_cpu_ns(const struct gate *gate)
{
	struct timespec used;
	clockid_t clock;

	if (pthread_getcpuclockid(gate->poller, &clock) || clock_gettime(clock, &used))
		return 0;
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* The control side of the gate: the vGPUs, programs, bells and channels. Every change publishes a new table
 * (table.c). */
#include "gate/gate.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gate/poller.h"

const struct gate_rest gate_rest_default = {
	.spin_us = 5000,
	.stages = { { 20, 20000 }, { 50, 200000 }, { 1000, 2000000 }, { 2500, 0 } },
	.trap_us = 200000,
	.net_us = 100000,
};

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
	gate->has_membarrier = !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	pthread_mutex_init(&gate->lock, NULL);
	atomic_store(&gate->table, gate_table_build(gate));
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
	gate_retire(gate, old);
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
	gate_retire(gate, old);
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
	gate_retire(gate, old);
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
	bool is_first;

	if (!traps || !count) {
		for (size_t i = 0; i < count; i++)
			close(events[i]);
		free(traps);
		return count ? -ENOMEM : -EINVAL;
	}
	if (!gate_traps_add(&gate->traps, events, count, traps)) {
		free(traps);
		return -EIO;
	}
	pthread_mutex_lock(&gate->lock);
	is_first = !bell->traps;
	if (is_first) {
		bell->traps = traps;
		bell->trap_count = count;
		atomic_fetch_sub(&gate->traps.missing, 1);
	}
	pthread_mutex_unlock(&gate->lock);
	if (is_first)
		return 0;
	gate_traps_remove(&gate->traps, traps, count);
	free(traps);
	return -EINVAL;
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
	gate_retire(gate, old);
	return channel;
}

void gate_channel_set_token(struct gate_channel *channel, uint32_t token)
{
	if (atomic_exchange(&channel->token, token) == token)
		return;
	/* The program may have rung before the token was known. */
	atomic_store_explicit(&channel->program->must_sweep, true, memory_order_release);
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
	gate_retire(gate, old);
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
		atomic_store_explicit(&p->must_sweep, true, memory_order_release);
	pthread_mutex_unlock(&vgpu->gate->lock);
	gate_sweep(vgpu);
}

/* Make state_number agree with the state, and wait until the poller has seen it. Under state_lock. */
static void state_changed(struct gate_vgpu *vgpu)
{
	uint64_t state_number = atomic_load_explicit(&vgpu->state_number, memory_order_relaxed);
	bool is_open = !vgpu->is_closed && !gate_is_stopped(vgpu);
	bool is_change = gate_state_is_open(state_number) != is_open;

	if (!is_change)
		return;
	atomic_store_explicit(&vgpu->state_number, state_number + 1, memory_order_relaxed);
	if (is_open)
		sweep_all(vgpu);
	else
		gate_sync(vgpu->gate);
}

static void set_closed(struct gate_vgpu *vgpu, bool is_closed)
{
	pthread_mutex_lock(&vgpu->state_lock);
	vgpu->is_closed = is_closed;
	state_changed(vgpu);
	pthread_mutex_unlock(&vgpu->state_lock);
}

static void set_stopped(struct gate_vgpu *vgpu, bool is_stopped)
{
	pthread_mutex_lock(&vgpu->state_lock);
	atomic_store_explicit(&vgpu->is_stopped, is_stopped, memory_order_relaxed);
	state_changed(vgpu);
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
	return gate_state_is_open(atomic_load_explicit(&vgpu->state_number, memory_order_relaxed));
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
	/* The poller counts a submission and then reads the mark. The caller reads the count next. At least one of the two must
	 * see the other's store. membarrier spares the poller a fence at each submission. */
	if (vgpu->gate->has_membarrier)
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	else
		atomic_thread_fence(memory_order_seq_cst);
}

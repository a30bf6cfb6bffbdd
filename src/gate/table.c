/* The tables of the poller. Changes are rare, so every change builds a new table from the lists and publishes it as a
 * whole. The poller reads tables and never waits for another thread. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gate/poller.h"

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
	struct gate_watched_program *watch = &table->programs[table->program_count++];

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

struct gate_table *gate_table_build(struct gate *gate)
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
		watched->vgpu = v;
		watched->bells = &table->bells[table->bell_count];
		watched->programs = &table->programs[table->program_count];
		for (struct gate_program *p = v->programs; p; p = p->next, watched->program_count++)
			channel = table_add_program(table, p, channel);
		watched->bell_count = (size_t)(&table->bells[table->bell_count] - watched->bells);
		passes = (watched->bell_count + GATE_LOOKS_PER_PASS - 1) / GATE_LOOKS_PER_PASS;
		table->round_passes = passes > table->round_passes ? passes : table->round_passes;
	}
	atomic_store_explicit(&table->generation, ++gate->generation, memory_order_relaxed);
	return table;
}

void gate_sync(struct gate *gate)
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

int gate_publish(struct gate *gate, struct gate_table **old)
{
	struct gate_table *table = gate_table_build(gate);

	if (!table)
		return -ENOMEM;
	*old = atomic_exchange_explicit(&gate->table, table, memory_order_acq_rel);
	return 0;
}

void gate_publish_less(struct gate *gate, const struct gate_program *program, struct gate_table **old)
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
	for (size_t i = 0; i < table->vgpu_count; i++)
		if (table->vgpus[i].vgpu == program->vgpu && !program->vgpu->programs)
			atomic_store_explicit(&table->vgpus[i].is_gone, true, memory_order_release);
	/* Pairs with the poller's acquire in gate_pass: the poller then resets its counts (table_begin),
	 * without the program. */
	atomic_store_explicit(&table->generation, ++gate->generation, memory_order_release);
}

void gate_retire(struct gate *gate, struct gate_table *old)
{
	gate_sync(gate);
	free(old);
}

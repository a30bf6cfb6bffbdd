/* What the gate and its poller share. Private to the room. */
#ifndef BELFRY_GATE_POLLER_H
#define BELFRY_GATE_POLLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "gate/gate.h"

struct gate_bell {
	struct gate_program *program;
	_Atomic uint32_t *word;
	struct gate_bell *next; /* gate_program::bells */
};

struct gate_channel {
	struct gate_program *program;
	volatile uint32_t *program_userd; /* often the GPU's memory across the bus: a read takes about 1 us */
	volatile uint32_t *gpu_userd;
	_Atomic uint32_t token;
	_Atomic bool was_used;	   /* by the poller, on the first submission */
	_Atomic uint32_t sent_put; /* by the poller, on each */
	_Atomic uint64_t forwards; /* by the poller, after each */
	struct gate_channel *next; /* gate_program::channels */

	/* The poller's own. */
	uint32_t seen_get;
	uint64_t rang_ns;
};

struct gate_program {
	struct gate_vgpu *vgpu;
	struct gate_bell *bells;
	struct gate_channel *channels;
	_Atomic bool must_sweep;   /* set by the house, taken by the poller: look at every channel now */
	struct gate_program *next; /* gate_vgpu::programs */

	/* The poller's own. */
	uint64_t rang_ns;	 /* when it last rang */
	size_t recent_left;	 /* channels still to consider after that ring */
	size_t all_left, all_at; /* likewise, of the slow round over all of them, and where it is */
	uint64_t all_ns;	 /* when that round last moved */
};

struct gate_vgpu {
	struct gate *gate;
	/* How often it was closed and opened: even when it is open, odd when it is closed. Only the house writes it. */
	_Atomic uint64_t turns;
	/* Set by the house, cleared by the poller; see vgpu_forwarded and gate_vgpu_quiet. */
	_Atomic bool is_quiet;
	struct gate_program *programs;
	struct gate_vgpu *next; /* gate::vgpus */

	/* Only the poller writes these; others read. */
	_Atomic uint64_t rings, forwards, last_forward_ns, woke_ns;
	_Atomic uint64_t forward_ns[GATE_FORWARDS_KEPT]; /* when the last ones were passed on */
	/* A bell rang when `turns` was waiting_turn, first at waiting_ns. It is one of now only if turns is still the
	 * same, so opening the gate clears it without another word, and cannot clear one that comes later. */
	_Atomic uint64_t waiting_turn, waiting_ns;
};

/* One program, as the poller sees it. */
struct gate_watch {
	struct gate_program *program;
	struct gate_vgpu *vgpu;
	struct gate_bell **bells;
	struct gate_channel **channels;
	size_t bell_count, channel_count;
	_Atomic bool is_gone;
};

struct gate_table {
	size_t program_count, bell_count;
	struct gate_watch programs[];
};

struct gate {
	volatile uint32_t *bell;
	void (*rang)(volatile uint32_t *bell); /* NULL: hardware hears the bell */
	void (*call)(void *context);	       /* or NULL */
	void *call_context;
	struct gate_rest rest;
	pthread_t poller;
	/* Of the lists, vgpus and all below, and of storing `table`. Never held while waiting for the poller, which
	 * never takes it. */
	pthread_mutex_t lock;
	struct gate_vgpu *vgpus;

	_Atomic(struct gate_table *) table;
	_Atomic uint32_t want; /* a futex the poller rests on */
	_Atomic uint32_t seen; /* a futex gate_sync waits on */
	_Atomic bool is_ending;

	_Atomic uint64_t rings, forwards, strange, swept;

	/* The poller's own. */
	uint64_t now_ns; /* when it last looked at the clock */
};

static inline bool gate_turn_is_open(uint64_t turns)
{
	return turns % 2 == 0;
}

/* By the poller, and by the house (gate_ring_again): each ring is one store. */
static inline void gate_ring(struct gate *gate, uint32_t token)
{
	atomic_store_explicit((_Atomic uint32_t *)(uintptr_t)&gate->bell[GATE_BELL_WORD], token,
			      memory_order_relaxed);
	if (gate->rang)
		gate->rang(gate->bell);
}

void *gate_poller_main(void *gate);

#endif

/* What the gate and its poller share. Private to the room. */
#ifndef BELFRY_GATE_POLLER_H
#define BELFRY_GATE_POLLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "gate/gate.h"
#include "gate/trap.h"

struct gate_bell {
	struct gate_program *program;
	_Atomic uint32_t *word;
	struct gate_trap **traps; /* NULL: it has none */
	size_t trap_count;
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
	uint32_t empty_left; /* rings that may come up empty: their work was found before them */
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
	size_t sweep_left;	 /* channels still to look at for must_sweep */
	size_t get_at;		 /* the channel whose GP_GET is returned next */
};

struct gate_vgpu {
	struct gate *gate;
	/* The state of the gate. It is open if it is neither closed nor stopped. */
	pthread_mutex_t
		state_lock; /* of the next two, and of changing `turns`; held while the poller goes around once */
	bool is_closed;
	_Atomic bool is_stopped;
	/* How often it was closed and opened: even when it is open, odd when it is not. */
	_Atomic uint64_t turns;
	/* Set by the house, cleared by the poller; see vgpu_forwarded and gate_vgpu_quiet. */
	_Atomic bool is_quiet;
	/* How often the house wanted programs swept that must_sweep, and the newest of those that is complete. */
	_Atomic uint32_t sweep_want, sweep_done;
	size_t bell_count; /* of all programs; under the lock */
	struct gate_program *programs;
	struct gate_vgpu *next; /* gate::vgpus */

	/* Only the poller writes these; others read. */
	_Atomic uint64_t rings, forwards, last_forward_ns, woke_ns;
	_Atomic uint64_t forward_ns[GATE_FORWARDS_KEPT]; /* when the last ones were passed on */
	/* A bell rang when `turns` was waiting_turn, first at waiting_ns. The time is valid only while `turns` is
	 * unchanged: opening the gate invalidates it without another store, and cannot invalidate a later one. */
	_Atomic uint64_t waiting_turn, waiting_ns;

	/* The poller's own. */
	uint64_t look_ns;	    /* its bells are not looked at before; see vgpu_charge */
	size_t bell_at;		    /* the bell that is looked at next */
	size_t program_at;	    /* the program that is looked after next */
	size_t get_at;		    /* the program whose GP_GETs are returned next */
	size_t sweeping, unsettled; /* programs with sweep_left, and with all_left */
	uint32_t sweep_begun;	    /* the sweep_want that was last begun */
};

/* One program, as the poller sees it. */
struct gate_watch {
	struct gate_program *program;
	struct gate_vgpu *vgpu;
	struct gate_channel **channels;
	size_t channel_count;
	_Atomic bool is_gone;
};

/* One bell. */
struct gate_watched_bell {
	_Atomic(_Atomic uint32_t *) word; /* of a program that is gone: one that never rings */
	struct gate_watch *watch;
};

/* One vGPU that has programs: its part of the arrays below. */
struct gate_watched_vgpu {
	struct gate_vgpu *vgpu;
	struct gate_watched_bell *bells;
	struct gate_watch *programs;
	size_t bell_count, program_count;
};

struct gate_table {
	_Atomic uint64_t generation; /* changes whenever what the poller counts in it may have moved */
	size_t vgpu_count, bell_count, program_count;
	struct gate_watched_vgpu *vgpus;
	struct gate_watched_bell *bells;
	struct gate_watch programs[];
};

struct gate {
	volatile uint32_t *bell;
	void (*rang)(volatile uint32_t *bell); /* NULL: hardware hears the bell */
	void (*call)(void *context);	       /* or NULL */
	void *call_context;
	struct gate_rest rest;
	struct gate_traps traps;
	pthread_t poller;
	/* Of the lists, vgpus and all below, and of storing `table`. Never held while waiting for the poller, which
	 * never takes it. */
	pthread_mutex_t lock;
	struct gate_vgpu *vgpus;
	uint64_t generation; /* of the newest table */

	_Atomic(struct gate_table *) table;
	_Atomic uint32_t want; /* a futex the poller rests on */
	_Atomic uint32_t seen; /* a futex gate_sync waits on */
	_Atomic bool is_ending;

	_Atomic uint64_t rings, forwards, strange, swept, empty;

	/* The poller's own. */
	uint64_t now_ns; /* when it last looked at the clock */
	uint64_t generation_seen;
	unsigned passes;
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

/* What one pass of the poller found. */
enum gate_pass {
	GATE_PASS_SILENT,    /* nothing */
	GATE_PASS_UNSETTLED, /* nothing yet, but channels are still looked at after a ring */
	GATE_PASS_NEWS,	     /* something was passed on, began to wait or is being swept */
};
/* Once over every vGPU, and a bounded amount of work for each. */
enum gate_pass gate_pass(struct gate *gate, struct gate_table *table);

void *gate_poller_main(void *gate);

#endif

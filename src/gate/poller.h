/* Shared by the gate (gate.c, table.c, counts.c) and its poller (poller.c). Private to the module. */
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
	volatile uint32_t *program_userd; /* often in GPU memory: a read over the bus takes about 1 us */
	volatile uint32_t *gpu_userd;
	_Atomic uint32_t token;
	_Atomic bool was_used;	   /* written by the poller, at the first submission */
	_Atomic uint32_t sent_put; /* written by the poller, at each submission */
	_Atomic uint64_t forwards; /* written by the poller, after each submission */
	struct gate_channel *next; /* gate_program::channels */

	/* Used by the poller only. */
	uint32_t seen_get;
	uint32_t empty_left; /* rings that are not charged: their work was found before them */
	uint64_t rang_ns;
};

struct gate_program {
	struct gate_vgpu *vgpu;
	struct gate_bell *bells;
	struct gate_channel *channels;
	_Atomic bool must_sweep;   /* set by gate.c, taken by the poller: look at every channel now */
	struct gate_program *next; /* gate_vgpu::programs */

	/* Used by the poller only. */
	uint64_t rang_ns;	 /* when it last rang */
	size_t recent_left;	 /* channels still to look at after that ring */
	size_t all_left, all_at; /* likewise, of the slow round over all channels, and its position */
	bool all_again;		 /* it rang during that round: another one follows */
	uint64_t all_ns;	 /* when that round last advanced */
	size_t sweep_left;	 /* channels still to look at for must_sweep */
	size_t get_at;		 /* the next channel whose GP_GET is copied back */
};

struct gate_vgpu {
	struct gate *gate;
	/* The state of the gate. It is open if it is neither closed nor stopped. state_lock is for the next
	 * two and for writing `state_number`. It is held while a change waits for the poller. */
	pthread_mutex_t state_lock;
	bool is_closed;
	_Atomic bool is_stopped;
	/* The number of times it was closed or opened: even while it is open, odd while it is not. */
	_Atomic uint64_t state_number;
	/* Set by gate_vgpu_quiet, cleared by the poller in vgpu_forwarded. */
	_Atomic bool is_quiet;
	/* The number of sweeps that gate.c has requested of the programs with must_sweep, and the newest that
	 * is complete. */
	_Atomic uint32_t sweep_want, sweep_done;
	size_t bell_count; /* of all programs; under gate::lock */
	struct gate_program *programs;
	struct gate_vgpu *next; /* gate::vgpus */

	/* Only the poller writes these; other threads read them. */
	_Atomic uint64_t rings, forwards, last_forward_ns, woke_ns, woke_found_ns, woke_likely_ns;
	/* When the last submissions that were passed on were found, and are likely to have come. */
	_Atomic uint64_t found_ns[GATE_FORWARDS_KEPT], likely_ns[GATE_FORWARDS_KEPT];
	/* A bell rang when `state_number` was waiting_state, first at waiting_ns. The time is valid only while
	 * `state_number` is unchanged: opening the gate invalidates it without another store, and cannot invalidate
	 * a later one. */
	_Atomic uint64_t waiting_state, waiting_ns;

	/* Used by the poller only. */
	uint64_t look_ns;  /* the poller does not look at its bells before this time; see vgpu_charge */
	size_t bell_at;	   /* the next bell to look at */
	size_t program_at; /* the next program whose channels are looked at */
	size_t get_at;	   /* the next program whose GP_GETs are copied back */
	size_t sweeping, unsettled; /* programs with sweep_left, and with all_left */
	uint32_t sweep_begun;	    /* the value of sweep_want at the start of the last sweep */
	uint64_t swept_state;	    /* the waiting_state of the last sweep */
	uint64_t waited_ns;	    /* since when the work that is being swept has waited; 0: it has not */
};

/* A program in the table. */
struct gate_watched_program {
	struct gate_program *program;
	struct gate_vgpu *vgpu;
	struct gate_channel **channels;
	size_t channel_count;
	_Atomic bool is_gone;
};

/* A bell in the table. */
struct gate_watched_bell {
	_Atomic(_Atomic uint32_t *) word; /* of a removed program: a word that never rings */
	struct gate_watched_program *watch;
};

/* A vGPU that has programs: its part of the arrays below. */
struct gate_watched_vgpu {
	struct gate_vgpu *vgpu;
	struct gate_watched_bell *bells;
	struct gate_watched_program *programs;
	size_t bell_count, program_count;
	_Atomic bool is_gone; /* its last program was removed */
};

enum {
	GATE_LOOKS_PER_PASS = 64,   /* doorbells of one vGPU that a pass reads at most */
	GATE_PASSES_PER_CLOCK = 32, /* passes between two readings of the clock while spinning */
};

struct gate_table {
	_Atomic uint64_t generation; /* changes when the poller must reset what it counts in the table */
	size_t vgpu_count, bell_count, program_count;
	size_t round_passes; /* after so many passes every doorbell was read */
	struct gate_watched_vgpu *vgpus;
	struct gate_watched_bell *bells;
	struct gate_watched_program programs[];
};

struct gate {
	volatile uint32_t *bell;
	void (*rang)(volatile uint32_t *bell); /* NULL: there is hardware behind the bell */
	void (*call)(void *context);	       /* or NULL */
	void *call_context;
	struct gate_rest rest;
	struct gate_traps traps;
	bool has_membarrier;
	pthread_t poller;
	/* Of the lists (vgpus, and all lists in them), and of storing `table`. Never held while waiting for
	 * the poller, which never takes it. */
	pthread_mutex_t lock;
	struct gate_vgpu *vgpus;
	uint64_t generation; /* of the newest table */

	_Atomic(struct gate_table *) table;
	_Atomic uint32_t want; /* a futex on which the poller sleeps */
	_Atomic uint32_t seen; /* a futex on which gate_sync waits */
	_Atomic bool is_ending;

	_Atomic uint64_t rings, forwards, strange, found_unrung, empty;

	/* Used by the poller only. */
	uint64_t now_ns; /* when it last read the clock */
	uint64_t
		looked_ns; /* not later than the end of its last pass: a ring that it finds now came after this */
	uint64_t generation_seen;
	bool was_trapped;  /* the traps were armed in the last pass */
	size_t round_left; /* passes until every doorbell was read: see note_trapped() */
	unsigned passes;
};

static inline bool gate_program_is_gone(const struct gate_watched_program *watch)
{
	return atomic_load_explicit(&watch->is_gone, memory_order_acquire);
}

static inline bool gate_state_is_open(uint64_t state_number)
{
	return state_number % 2 == 0;
}

/* Called by the poller and by gate_ring_again. No lock is needed: each ring is one store. */
static inline void gate_ring(struct gate *gate, uint32_t token)
{
	atomic_store_explicit((_Atomic uint32_t *)(uintptr_t)&gate->bell[GATE_BELL_WORD], token,
			      memory_order_relaxed);
	if (gate->rang)
		gate->rang(gate->bell);
}

/* table.c */
/* The table is one allocation. Under the lock. */
struct gate_table *gate_table_build(struct gate *gate);
/* Publish a new table, built from the current lists. Under the lock; call gate_retire afterwards. */
int gate_publish(struct gate *gate, struct gate_table **old);
/* Removing must not fail: if no new table can be built, the program is disabled in the current one. */
void gate_publish_less(struct gate *gate, const struct gate_program *program, struct gate_table **old);
/* Without the lock: when this returns, the poller uses neither the old table nor what is missing in the new
 * one. Other threads may have published tables since; each of them frees the table that it has replaced. */
void gate_retire(struct gate *gate, struct gate_table *old);
/* Wait until the poller has completed a pass that began after everything written before this call. */
void gate_sync(struct gate *gate);

/* The result of one pass of the poller. */
enum gate_pass {
	GATE_PASS_SILENT,    /* nothing */
	GATE_PASS_UNSETTLED, /* nothing new, but channels are still looked at after a ring */
	GATE_PASS_NEWS,	     /* something was passed on, started to wait or is being swept */
};
/* One pass over all vGPUs, with a bounded amount of work for each. */
enum gate_pass gate_pass(struct gate *gate, struct gate_table *table);

void *gate_poller_main(void *gate);

#endif

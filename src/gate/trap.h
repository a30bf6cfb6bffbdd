/* Traps: hardware breakpoints on the doorbells of programs, with which an idle program wakes the poller. Private to the
 * module.
 *
 * An armed breakpoint costs the program about 10 us for each ring, so the traps are armed only while no doorbell rings.
 * Arming takes a few microseconds for each thread of a program, so a separate thread does it, the trapper. The poller
 * requests it and continues to look until it is done. */
#ifndef BELFRY_GATE_TRAP_H
#define BELFRY_GATE_TRAP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"

struct gate;

/* One breakpoint: a thread of a program, and the threads that it makes from then on. */
struct gate_trap {
	int event;		    /* of perf_event_open */
	LIST_ENTRY(gate_trap) next; /* gate_traps::all */
};

/* The poller moves the state from OFF to WANTED and from WANTED or ARMED to UNWANTED, the trapper from WANTED to ARMED and
 * from UNWANTED to OFF. */
enum gate_trap_state { GATE_TRAPS_OFF, GATE_TRAPS_WANTED, GATE_TRAPS_ARMED, GATE_TRAPS_UNWANTED };

struct gate_traps {
	_Atomic uint32_t state; /* enum gate_trap_state; a futex that the trapper waits on */
	_Atomic bool is_ending, are_forbidden;
	/* How many doorbells have no trap. The poller sleeps on the traps only if it is 0. */
	_Atomic uint32_t missing;
	_Atomic uint64_t wakes;	 /* how often a trap woke the poller; written by its signal handler */
	_Atomic pid_t poller;	 /* its thread ID: traps signal this thread */
	_Atomic uint64_t arm_ns; /* how long it took to arm or disarm them last; written by the trapper */
	pthread_t trapper;
	pthread_mutex_t lock; /* of what follows */
	bool is_armed;	      /* new traps are armed at once */
	LIST_HEAD(, gate_trap) all;

	/* The poller's own. */
	uint64_t wakes_seen, wake_ns;
};

int gate_traps_start(struct gate_traps *traps); /* 0 or an errno */
void gate_traps_end(struct gate_traps *traps);

/* Take the descriptors over. False: one could not be set up, and all are closed. */
bool gate_traps_add(struct gate_traps *traps, const int *events, size_t count, struct gate_trap **to);
void gate_traps_remove(struct gate_traps *traps, struct gate_trap **which, size_t count);

/* By the poller, at its start: the signal of a trap adds 1 to the futex word on which the poller rests. */
void gate_traps_signal(struct gate_traps *traps, _Atomic uint32_t *rest_word);
/* By the poller: whether the traps are armed, so that every later ring wakes it. */
bool gate_traps_are_armed(const struct gate_traps *traps);
/* By the poller, after a pass: arm or disarm. */
void gate_traps_want(struct gate_traps *traps, bool is_silent, uint64_t quiet_us, uint64_t trap_us,
		     uint64_t now_ns);

#endif

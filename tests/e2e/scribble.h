/* The hostile program of test_scribblers: threads and child processes that make random driver calls on a few handles and
 * descriptors, while one thread writes over the arguments of calls in flight and another over the descriptors. Its answers
 * do not matter to it. What it does follows from a seed, but for the order in which its threads come to it. */
#ifndef BELFRY_TESTS_SCRIBBLE_H
#define BELFRY_TESTS_SCRIBBLE_H

#include <stdatomic.h>

#include "stage.h"

enum {
	SCRIBBLE_CALLERS = 2, /* threads */
	SCRIBBLE_KIDS = 2,    /* processes at a time */
	SCRIBBLE_WORKERS = SCRIBBLE_CALLERS + SCRIBBLE_KIDS,
	SCRIBBLE_ARG_BYTES = 16 << 10,
	SCRIBBLE_CLIENTS = 8,
	SCRIBBLE_TOKENS = 8,
};

/* What the arguments of one worker lie in. */
struct scribble_buffers {
	_Alignas(8) uint8_t arg[SCRIBBLE_ARG_BYTES], params[SCRIBBLE_ARG_BYTES], list[SCRIBBLE_ARG_BYTES];
};

/* Shared by the test, the program and its children: mapped before any of them is started. */
struct scribble_board {
	uint64_t seed;
	/* Only what the software GPU keeps too: no managed-memory calls, behind which there is nothing in these tests, and no
	 * exports of many objects, which stay charged when the driver refuses them. */
	bool is_exact;
	_Atomic bool is_over, wants_pause, is_paused;
	_Atomic unsigned parked;
	_Atomic uint64_t calls, done; /* done: the driver said that it has done as asked */
	_Atomic uint64_t maps, rings, kids, swaps, writes;
	/* What was seen in answers, to be named again. A client is used through the slot that it was made in. */
	_Atomic uint64_t clients[SCRIBBLE_CLIENTS]; /* slot << 32 | handle */
	_Atomic uint32_t tokens[SCRIBBLE_TOKENS];
	/* The neighbour's: */
	_Atomic uint64_t laps, longest_lap_ns;
	_Atomic bool is_neighbour_paused;
	/* Last: what is written past the end of one of these is written into the next, or nowhere. Hot ones are written over
	 * all the time. */
	struct scribble_buffers calm[SCRIBBLE_WORKERS], hot[SCRIBBLE_WORKERS];
};

struct scribble_board *scribble_board_new(uint64_t seed);
void scribble_board_free(struct scribble_board *board);

/* A stage_program; its argument is the board. While the board says wants_pause it makes no calls and has no children, and
 * says is_paused. */
void scribble_program(struct actor *actor);

#endif

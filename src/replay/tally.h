/* Times, counted by how long they are: percentiles in a room that does not grow, to within a hundredth. */
#ifndef BELFRY_REPLAY_TALLY_H
#define BELFRY_REPLAY_TALLY_H

#include <stddef.h>
#include <stdint.h>

enum { TALLY_STEPS = 128, TALLY_DOUBLINGS = 57 };

/* All 0: empty. */
struct tally {
	uint64_t count;
	uint32_t slots[TALLY_DOUBLINGS + 1]
		      [TALLY_STEPS]; /* [0]: below TALLY_STEPS; then each doubling in steps */
};

void tally_add(struct tally *tally, uint64_t ns);
/* 500000: the median. 0 if there are none. */
uint64_t tally_percentile(const struct tally *tally, uint32_t ppm);

#endif

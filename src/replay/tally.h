/* A histogram of times, for percentiles in constant memory, exact to within 1 %. */
#ifndef BELFRY_REPLAY_TALLY_H
#define BELFRY_REPLAY_TALLY_H

#include <stddef.h>
#include <stdint.h>

enum { TALLY_STEPS = 128, TALLY_DOUBLINGS = 57 };

/* All zero: empty. */
struct tally {
	uint64_t count;
	uint32_t slots[TALLY_DOUBLINGS + 1]
		      [TALLY_STEPS]; /* [0]: below TALLY_STEPS; then each power of two in steps */
};

void tally_add(struct tally *tally, uint64_t ns);
/* 500000 is the median. 0 if the tally is empty. */
uint64_t tally_percentile(const struct tally *tally, uint32_t ppm);

#endif

#include "replay/tally.h"

enum { STEPS_LOG2 = 7 };
_Static_assert(1 << STEPS_LOG2 == TALLY_STEPS, "steps are a power of two");

static unsigned doubling_of(uint64_t ns)
{
	return ns < TALLY_STEPS ? 0 : (unsigned)(63 - __builtin_clzll(ns)) - STEPS_LOG2 + 1;
}

void tally_add(struct tally *tally, uint64_t ns)
{
	unsigned doubling = doubling_of(ns);
	uint64_t step = doubling ? (ns >> (doubling - 1)) - TALLY_STEPS : ns;

	tally->slots[doubling][step]++;
	tally->count++;
}

/* The middle of a slot's range. */
static uint64_t time_of(unsigned doubling, uint64_t step)
{
	if (!doubling)
		return step;
	return ((TALLY_STEPS + step) << (doubling - 1)) + ((1ull << (doubling - 1)) >> 1);
}

uint64_t tally_percentile(const struct tally *tally, uint32_t ppm)
{
	uint64_t before = 0, at = (uint64_t)((double)tally->count * ppm / 1e6);

	if (!tally->count)
		return 0;
	at = at < tally->count ? at : tally->count - 1;
	for (unsigned doubling = 0; doubling <= TALLY_DOUBLINGS; doubling++)
		for (unsigned step = 0; step < TALLY_STEPS; step++) {
			before += tally->slots[doubling][step];
			if (before > at)
				return time_of(doubling, step);
		}
	return 0;
}

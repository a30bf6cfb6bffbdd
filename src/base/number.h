#ifndef BELFRY_BASE_NUMBER_H
#define BELFRY_BASE_NUMBER_H

#include <stdint.h>

static inline uint64_t bf_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t bf_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The next multiple of `to`, which need not be a power of two. The caller excludes overflow. */
static inline uint64_t bf_round_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

#endif

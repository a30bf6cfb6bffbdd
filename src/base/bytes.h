/* Words at any alignment, in the CPU's byte order. The driver's ABI and the CPUs that Belfry supports are
 * little-endian. */
#ifndef BELFRY_BASE_BYTES_H
#define BELFRY_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t bf_get16(const void *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static inline uint32_t bf_get32(const void *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static inline uint64_t bf_get64(const void *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static inline void bf_put32(void *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

static inline void bf_put64(void *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

#endif

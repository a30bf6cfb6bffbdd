/* FNV-1a, for file names and hash tables. It does not resist deliberate collisions. */
#ifndef BELFRY_BASE_HASH_H
#define BELFRY_BASE_HASH_H

#include <stdint.h>

static inline uint32_t bf_hash(const char *text)
{
	uint32_t hash = 2166136261u;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash;
}

#endif

/* FNV-1a, for file names and hash tables, and a hash of 64 bits, for content. They do not resist deliberate collisions. */
#ifndef BELFRY_BASE_HASH_H
#define BELFRY_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bf_hash(const char *text)
{
	uint32_t hash = 2166136261u;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash;
}

/* Continues `hash`, which is 0 at first. For one word, different values of `hash` give different results. */
static inline uint64_t bf_hash_word(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word ^ 0x2545f4914f6cdd1dull) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

static inline uint64_t bf_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
	const unsigned char *at = data;
	uint64_t word;

	for (size_t left = bytes; left; left -= left < 8 ? left : 8, at += 8) {
		word = 0;
		memcpy(&word, at, left < 8 ? left : 8);
		hash = bf_hash_word(hash, word);
	}
	return bf_hash_word(hash, bytes);
}

/* The bucket of a pointer, of 2^bits. */
static inline size_t bf_hash_pointer(const void *pointer, unsigned bits)
{
	return (size_t)(((uint64_t)(uintptr_t)pointer >> 4) * 0x9e3779b97f4a7c15ull >> (64 - bits));
}

#endif

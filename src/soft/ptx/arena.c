#include "soft/ptx/arena.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 10)

struct ptx_arena_chunk {
	struct ptx_arena_chunk *next;
	uint64_t padding;
};

void *ptx_arena_alloc(struct ptx_arena *arena, size_t bytes)
{
	struct ptx_arena_chunk *chunk;
	size_t room;
	void *got;

	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (bytes + 15) & ~(size_t)15;
	if (bytes > arena->left) {
		room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
		chunk = calloc(1, sizeof(*chunk) + room);
		if (!chunk)
			return NULL;
		chunk->next = arena->chunks;
		arena->chunks = chunk;
		arena->at = (uint8_t *)(chunk + 1);
		arena->left = room;
	}
	got = arena->at;
	arena->at += bytes;
	arena->left -= bytes;
	return got;
}

char *ptx_arena_text(struct ptx_arena *arena, const char *text, size_t length)
{
	char *copy = ptx_arena_alloc(arena, length + 1);

	if (copy)
		memcpy(copy, text, length);
	return copy;
}

void ptx_arena_free(struct ptx_arena *arena)
{
	struct ptx_arena_chunk *next;

	for (; arena->chunks; arena->chunks = next) {
		next = arena->chunks->next;
		free(arena->chunks);
	}
	arena->left = 0;
	arena->at = NULL;
}

void *ptx_list_add(void **items, uint32_t *count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? *room * 2 : 16;
	void *grown;

	if (*count == *room) {
		if (more < *room)
			return NULL;
		grown = realloc(*items, more * size);
		if (!grown)
			return NULL;
		*items = grown;
		*room = more;
	}
	grown = (uint8_t *)*items + (size_t)*count * size;
	memset(grown, 0, size);
	(*count)++;
	return grown;
}

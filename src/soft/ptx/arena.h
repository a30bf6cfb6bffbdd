/* Memory that is freed together: the parts of a module, or of one load. */
#ifndef BELFRY_SOFT_PTX_ARENA_H
#define BELFRY_SOFT_PTX_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct ptx_arena_chunk;

struct ptx_arena {
	struct ptx_arena_chunk *chunks;
	size_t left;
	uint8_t *at;
};

/* Zeroed and aligned to 16, or NULL. */
void *ptx_arena_alloc(struct ptx_arena *arena, size_t bytes);
char *ptx_arena_text(struct ptx_arena *arena, const char *text, size_t length);
void ptx_arena_free(struct ptx_arena *arena);

/* Append an element of `size` bytes to a growing array: returns the new element (zeroed), or NULL. */
void *ptx_list_add(void **items, uint32_t *count, uint32_t *room, size_t size);

#endif

/* Address spaces: a sorted table of maps. Running blocks read it without a lock. A change replaces the table,
 * and the old one is freed when nothing of the space runs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/hw/state.h"

int hw_space_new(struct hw_gpu *gpu, struct hw_space **space)
{
	struct hw_space *s = calloc(1, sizeof(*s));

	*space = NULL;
	if (!s)
		return -ENOMEM;
	s->maps = calloc(1, sizeof(*s->maps));
	if (!s->maps) {
		free(s);
		return -ENOMEM;
	}
	s->count = 1;
	s->gpu = gpu;
	pthread_mutex_init(&s->print_lock, NULL);
	*space = s;
	return 0;
}

struct hw_space *hw_space_get(struct hw_space *space)
{
	__atomic_fetch_add(&space->count, 1, __ATOMIC_RELAXED);
	return space;
}

static void free_old(struct hw_space *space)
{
	while (space->old) {
		struct hw_maps *maps = space->old;

		space->old = maps->next;
		free(maps);
	}
}

void hw_space_put(struct hw_space *space)
{
	if (!space || __atomic_sub_fetch(&space->count, 1, __ATOMIC_ACQ_REL))
		return;
	for (uint32_t i = 0; i < space->maps->count; i++)
		hw_memory_put(space->maps->map[i].memory);
	free(space->maps);
	free_old(space);
	hw_space_drop_codes(space);
	hw_memory_put(space->print_memory);
	pthread_mutex_destroy(&space->print_lock);
	free(space);
}

/* The index of the first map that ends after address; maps->count if there is none. */
static uint32_t find_map(const struct hw_maps *maps, uint64_t address)
{
	uint32_t low = 0, high = maps->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (maps->map[middle].address + maps->map[middle].bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool hw_space_translate(struct hw_space *space, uint64_t address, uint64_t bytes, bool is_write,
			struct ptx_span *span)
{
	const struct hw_maps *maps = __atomic_load_n(&space->maps, __ATOMIC_ACQUIRE);
	uint32_t at = find_map(maps, address);
	const struct hw_map *m = &maps->map[at];

	if (at == maps->count || address < m->address || m->bytes - (address - m->address) < bytes ||
	    (is_write && !m->is_writable))
		return false;
	*span = (struct ptx_span){ .base = m->address,
				   .bytes = m->bytes,
				   .host = m->memory->at + m->offset,
				   .is_writable = m->is_writable };
	return true;
}

uint8_t *hw_space_at(struct hw_space *space, uint64_t address, uint64_t bytes, bool is_write, uint64_t *run)
{
	struct ptx_span span;
	uint64_t left;

	if (!hw_space_translate(space, address, 1, is_write, &span))
		return NULL;
	left = span.bytes - (address - span.base);
	*run = left < bytes ? left : bytes;
	return span.host + (address - span.base);
}

/* The program may write command memory at the same time. */
static void load_bytes(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	for (; bytes && ((uintptr_t)from & 3); bytes--)
		*to++ = __atomic_load_n(from++, __ATOMIC_RELAXED);
	for (; bytes >= 4; bytes -= 4, to += 4, from += 4) {
		uint32_t word = __atomic_load_n((const uint32_t *)(const void *)from, __ATOMIC_RELAXED);

		memcpy(to, &word, 4);
	}
	for (; bytes; bytes--)
		*to++ = __atomic_load_n(from++, __ATOMIC_RELAXED);
}

bool hw_space_read(struct hw_space *space, uint64_t address, void *to, uint64_t bytes)
{
	uint8_t *at = to;

	while (bytes) {
		uint64_t run;
		const uint8_t *host = hw_space_at(space, address, bytes, false, &run);

		if (!host)
			return false;
		load_bytes(at, host, run);
		at += run;
		address += run;
		bytes -= run;
	}
	return true;
}

bool hw_space_write(struct hw_space *space, uint64_t address, const void *from, uint64_t bytes)
{
	const uint8_t *at = from;

	while (bytes) {
		uint64_t run;
		uint8_t *host = hw_space_at(space, address, bytes, true, &run);

		if (!host)
			return false;
		for (uint64_t i = 0; i < run; i++)
			__atomic_store_n(host + i, at[i], __ATOMIC_RELAXED);
		at += run;
		address += run;
		bytes -= run;
	}
	return true;
}

/* Publishes a new table. */
static void replace(struct hw_space *space, struct hw_maps *maps)
{
	struct hw_maps *before = space->maps;

	__atomic_store_n(&space->maps, maps, __ATOMIC_RELEASE);
	before->next = space->old;
	space->old = before;
	if (!space->running_count)
		free_old(space);
}

static struct hw_maps *alloc_maps(uint32_t count)
{
	struct hw_maps *maps = malloc(sizeof(*maps) + (size_t)count * sizeof(maps->map[0]));

	if (maps)
		*maps = (struct hw_maps){ .count = count };
	return maps;
}

static bool is_free(const struct hw_maps *maps, uint64_t address, uint64_t bytes)
{
	uint32_t at = find_map(maps, address);

	return at == maps->count || maps->map[at].address >= address + bytes;
}

static int insert(struct hw_space *space, const struct hw_map *map)
{
	const struct hw_maps *before = space->maps;
	uint32_t at = find_map(before, map->address);
	struct hw_maps *maps;

	if (!is_free(before, map->address, map->bytes))
		return -EEXIST;
	if (before->count == UINT32_MAX)
		return -ENOSPC;
	maps = alloc_maps(before->count + 1);
	if (!maps)
		return -ENOMEM;
	memcpy(maps->map, before->map, at * sizeof(*map));
	maps->map[at] = *map;
	memcpy(&maps->map[at + 1], &before->map[at], (before->count - at) * sizeof(*map));
	hw_memory_get(map->memory);
	replace(space, maps);
	return 0;
}

static bool is_whole(uint64_t value)
{
	return value % SOFT_PAGE_BYTES == 0;
}

int hw_space_map(struct hw_space *space, uint64_t address, struct hw_memory *memory, uint64_t offset,
		 uint64_t bytes, bool is_writable)
{
	struct hw_map map = { .address = address,
			      .bytes = bytes,
			      .offset = offset,
			      .memory = memory,
			      .is_writable = is_writable };
	int rc;

	if (!bytes || !is_whole(address) || !is_whole(offset) || !is_whole(bytes) || offset > memory->bytes ||
	    bytes > memory->bytes - offset || address >= 1ull << SOFT_ADDRESS_BITS ||
	    bytes > (1ull << SOFT_ADDRESS_BITS) - address)
		return -EINVAL;
	hw_lock(space->gpu->cores);
	rc = insert(space, &map);
	hw_unlock(space->gpu->cores);
	return rc;
}

/* Finds the maps [first, end) that exactly cover the range, or returns -EINVAL. */
static int find_whole(const struct hw_maps *maps, uint64_t address, uint64_t bytes, uint32_t *first,
		      uint32_t *end)
{
	*first = find_map(maps, address);
	for (*end = *first; *end < maps->count && maps->map[*end].address < address + bytes; (*end)++) {
		const struct hw_map *m = &maps->map[*end];

		if (m->address < address || m->bytes > bytes - (m->address - address))
			return -EINVAL;
	}
	return *end > *first ? 0 : -ENOENT;
}

static struct hw_maps *without(const struct hw_maps *before, uint32_t first, uint32_t end)
{
	struct hw_maps *maps = alloc_maps(before->count - (end - first));

	if (!maps)
		return NULL;
	memcpy(maps->map, before->map, first * sizeof(maps->map[0]));
	memcpy(&maps->map[first], &before->map[end], (before->count - end) * sizeof(maps->map[0]));
	return maps;
}

/* Running blocks were stopped and have returned; they start again with the new table. */
static int remove_maps(struct hw_space *space, uint64_t address, uint64_t bytes)
{
	struct hw_map *gone;
	struct hw_maps *maps;
	uint32_t first, end;
	int rc = find_whole(space->maps, address, bytes, &first, &end);

	if (rc)
		return rc;
	maps = without(space->maps, first, end);
	gone = calloc(end - first, sizeof(*gone));
	if (!maps || !gone) {
		free(maps);
		free(gone);
		return -ENOMEM;
	}
	memcpy(gone, &space->maps->map[first], (end - first) * sizeof(*gone));
	replace(space, maps);
	for (uint32_t i = 0; i < end - first; i++)
		hw_memory_put(gone[i].memory);
	free(gone);
	return 0;
}

int hw_space_unmap(struct hw_space *space, uint64_t address, uint64_t bytes)
{
	struct hw_cores *cores = space->gpu->cores;
	int rc;

	if (!bytes || address + bytes < address)
		return -EINVAL;
	hw_lock(cores);
	space->hold_count++;
	hw_wait_quiet(space->gpu, HW_WHOSE_SPACE, space);
	rc = remove_maps(space, address, bytes);
	space->hold_count--;
	hw_kick(cores);
	hw_unlock(cores);
	return rc;
}

uint64_t hw_space_find(struct hw_space *space, uint64_t from, uint64_t bytes, uint64_t align)
{
	const uint64_t limit = 1ull << SOFT_ADDRESS_BITS;
	uint64_t at = from ? from : SOFT_PAGE_BYTES;

	if (align < SOFT_PAGE_BYTES)
		align = SOFT_PAGE_BYTES;
	if (!bytes || bytes > limit || (align & (align - 1)) || align > limit)
		return 0;
	hw_lock(space->gpu->cores);
	for (;;) {
		uint32_t i;

		at = at > limit ? limit : (at + align - 1) & ~(align - 1);
		if (at > limit - bytes) {
			at = 0;
			break;
		}
		if (is_free(space->maps, at, bytes))
			break;
		i = find_map(space->maps, at);
		at = space->maps->map[i].address + space->maps->map[i].bytes;
	}
	hw_unlock(space->gpu->cores);
	return at;
}

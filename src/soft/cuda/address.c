/* The address map. Device memory gets addresses that the process reserves without access, so that they are
 * unique. Ranges are in two sorted tables: reservations can contain other ranges, all other ranges do not
 * overlap. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "soft/cuda/core.h"

struct table {
	struct range **list;
	size_t count, room;
};
static struct table ranges, reservations;
static uint64_t next_id = 1;

CUresult address_reserve(uint64_t bytes, uint64_t align, uint64_t *address)
{
	uint64_t room, at, start;
	void *mapped;

	if (align < SOFT_PAGE_BYTES)
		align = SOFT_PAGE_BYTES;
	bytes = (bytes + SOFT_PAGE_BYTES - 1) & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
	room = bytes + align - SOFT_PAGE_BYTES;
	if (!bytes || room < bytes || room > 1ull << SOFT_ADDRESS_BITS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mapped = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	at = (uintptr_t)mapped;
	start = (at + align - 1) & ~(align - 1);
	if (start > at)
		munmap(mapped, start - at);
	if (start + bytes < at + room)
		munmap((void *)(uintptr_t)(start + bytes), at + room - start - bytes);
	*address = start;
	return CUDA_SUCCESS;
}

void address_release(uint64_t address, uint64_t bytes)
{
	bytes = (bytes + SOFT_PAGE_BYTES - 1) & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
	munmap((void *)(uintptr_t)address, bytes);
}

/* The number of ranges that begin at or below the address. */
static size_t table_place(const struct table *table, uint64_t address)
{
	size_t low = 0, high = table->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table->list[middle]->base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool table_grow(struct table *table)
{
	size_t room = table->room ? table->room * 2 : 64;
	struct range **list;

	if (table->count < table->room)
		return true;
	list = realloc(table->list, room * sizeof(struct range *));
	if (!list)
		return false;
	table->list = list;
	table->room = room;
	return true;
}

static struct table *table_of(const struct range *range)
{
	return range->kind == RANGE_RESERVED ? &reservations : &ranges;
}

struct range *range_add(const struct range *range)
{
	struct table *table = table_of(range);
	struct range *copy = malloc(sizeof(*copy));
	size_t place = table_place(table, range->base);

	if (!copy || !table_grow(table)) {
		free(copy);
		return NULL;
	}
	*copy = *range;
	if (!copy->id)
		copy->id = next_id++;
	memmove(table->list + place + 1, table->list + place,
		(table->count - place) * sizeof(struct range *));
	table->list[place] = copy;
	table->count++;
	return copy;
}

void range_remove(struct range *range)
{
	struct table *table = table_of(range);
	size_t place = table_place(table, range->base);

	while (place && table->list[place - 1] != range)
		place--;
	if (!place)
		return;
	table->count--;
	memmove(table->list + place - 1, table->list + place,
		(table->count - place + 1) * sizeof(struct range *));
	free(range);
}

static struct range *table_find(const struct table *table, uint64_t address)
{
	size_t place = table_place(table, address);
	struct range *range = place ? table->list[place - 1] : NULL;

	return range && address - range->base < range->bytes ? range : NULL;
}

struct range *range_find(uint64_t address)
{
	struct range *range = table_find(&ranges, address);

	return range ? range : table_find(&reservations, address);
}

static bool is_everywhere(const struct range *range)
{
	return range->kind == RANGE_HOST || range->kind == RANGE_MANAGED || range->kind == RANGE_REGISTERED;
}

static CUresult map_in(const struct range *range, struct context *context)
{
	/* Mappings consist of whole pages; a registered range can begin and end anywhere. */
	uint64_t skip = range->base % SOFT_PAGE_BYTES;
	uint64_t bytes = (range->bytes + skip + SOFT_PAGE_BYTES - 1) & ~(uint64_t)(SOFT_PAGE_BYTES - 1);

	return port_map_gpu(context->gpu, context->space, range->memory, range->memory_offset - skip, bytes,
			    range->base - skip, true);
}

static void unmap_in(const struct range *range, struct context *context)
{
	port_unmap_gpu(context->gpu, context->space, range->memory,
		       range->base - range->base % SOFT_PAGE_BYTES);
}

CUresult range_map_everywhere(struct range *range)
{
	for (struct context *c = all_contexts; c; c = c->next) {
		CUresult result = c->parent ? CUDA_SUCCESS : map_in(range, c);

		if (!result)
			continue;
		for (struct context *made = all_contexts; made != c; made = made->next)
			if (!made->parent)
				unmap_in(range, made);
		return result;
	}
	return CUDA_SUCCESS;
}

void range_unmap_everywhere(struct range *range)
{
	for (struct context *c = all_contexts; c; c = c->next)
		if (!c->parent)
			unmap_in(range, c);
}

CUresult ranges_map_in(struct context *context)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < ranges.count && !result; i++)
		if (is_everywhere(ranges.list[i]))
			result = map_in(ranges.list[i], context);
	return result;
}

/* cuMemAddressReserve, cuMemMap, cuMemSetAccess: reserved addresses, and memory mapped there. A mapping is a
 * range inside the reserved range. All contexts of the GPU can use it once access was granted. */
#include "soft/cuda/vmm.h"

#include <stdlib.h>

#include "soft/cuda/heap.h"
#include "soft/cuda/memory.h"

static struct vmm_map *all_maps;

/* ---- reserved addresses */

static CUresult vmm_reserve(CUdeviceptr *address, size_t bytes, size_t align)
{
	struct range range = { .bytes = bytes, .kind = RANGE_RESERVED };
	CUresult result;

	if (!address || !bytes || !vmm_is_aligned(bytes) || align & (align - 1))
		return CUDA_ERROR_INVALID_VALUE;
	result = address_reserve(bytes, align > HEAP_BLOCK_BYTES ? align : HEAP_BLOCK_BYTES, &range.base);
	if (result)
		return result;
	if (!range_add(&range)) {
		address_release(range.base, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*address = range.base;
	return CUDA_SUCCESS;
}

/* The requested address is a hint, and is ignored. */
EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t align, CUdeviceptr wanted,
				    unsigned long long flags)
{
	(void)wanted;
	ENTER();
	LEAVE(flags ? CUDA_ERROR_INVALID_VALUE : vmm_reserve(address, bytes, align));
}

static bool is_mapped(uint64_t address, uint64_t bytes)
{
	for (struct vmm_map *map = all_maps; map; map = map->next)
		if (map->range->base < address + bytes && address < map->range->base + map->range->bytes)
			return true;
	return false;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	struct range *range;

	ENTER();
	if (!bytes || is_mapped(address, bytes))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	range = range_find(address);
	if (!range || range->kind != RANGE_RESERVED || range->base != address || range->bytes != bytes)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	range_remove(range);
	address_release(address, bytes);
	LEAVE(CUDA_SUCCESS);
}

/* ---- mappings */

/* Whether the addresses are inside one reservation, and nothing is mapped there. */
static bool is_free(uint64_t address, uint64_t bytes)
{
	const struct range *range = range_find(address);

	return range && range->kind == RANGE_RESERVED && bytes <= range->base + range->bytes - address &&
	       !is_mapped(address, bytes);
}

static void map_link(struct vmm_map *map)
{
	struct vmm_map **at = &all_maps;

	while (*at && (*at)->range->base < map->range->base)
		at = &(*at)->next;
	map->next = *at;
	*at = map;
}

static CUresult vmm_map(uint64_t address, uint64_t bytes, uint64_t offset, struct vmm_memory *memory)
{
	struct vmm_map *map = malloc(sizeof(*map));
	struct range range = { .base = address,
			       .bytes = bytes,
			       .kind = RANGE_DEVICE,
			       .flags = MEMORY_MAPPED,
			       .gpu = memory->gpu,
			       .memory = memory->memory,
			       .memory_offset = offset,
			       .owner = map };

	if (!map)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*map = (struct vmm_map){ .memory = memory, .offset = offset };
	map->range = range_add(&range);
	if (!map->range) {
		free(map);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory->maps++;
	map_link(map);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
			 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct vmm_memory *memory;
	CUresult result;

	ENTER();
	result = vmm_find(handle, &memory);
	if (result)
		LEAVE(result);
	if (flags || !bytes || !vmm_is_aligned(address) || !vmm_is_aligned(bytes) ||
	    !vmm_is_aligned(offset) || offset > memory->bytes || bytes > memory->bytes - offset ||
	    !is_free(address, bytes))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	LEAVE(vmm_map(address, bytes, offset, memory));
}

/* The first of the mappings that together cover exactly these addresses, or NULL. */
static struct vmm_map *maps_of(uint64_t address, uint64_t bytes)
{
	struct vmm_map *first = all_maps;
	uint64_t at = address, end = address + bytes;

	while (first && first->range->base != address)
		first = first->next;
	for (const struct vmm_map *map = first; map && at < end; map = map->next) {
		if (map->range->base != at)
			return NULL;
		at += map->range->bytes;
	}
	return bytes && at == end ? first : NULL;
}

static CUresult map_show(const struct vmm_map *map, const struct context *context)
{
	return port_map_gpu(map->memory->gpu, context->space, map->memory->memory, map->offset,
			    map->range->bytes, map->range->base,
			    map->access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* Map in all contexts, with the access rights of the mapping. */
static CUresult map_show_all(const struct vmm_map *map)
{
	CUresult result = CUDA_SUCCESS;

	if (map->access == CU_MEM_ACCESS_FLAGS_PROT_NONE)
		return CUDA_SUCCESS;
	for (struct context *context = all_contexts; context && !result; context = context->next)
		if (context->gpu == map->memory->gpu && !context->parent)
			result = map_show(map, context);
	return result;
}

static void map_hide_all(struct vmm_map *map)
{
	if (map->access != CU_MEM_ACCESS_FLAGS_PROT_NONE)
		gpu_unmap_all(map->memory->gpu, NULL, map->memory->memory, map->range->base);
	map->access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static void map_free(struct vmm_map *map)
{
	struct vmm_map **at = &all_maps;

	map_hide_all(map);
	while (*at != map)
		at = &(*at)->next;
	*at = map->next;
	range_remove(map->range);
	map->memory->maps--;
	vmm_put(map->memory);
	free(map);
}

/* Running work may use the memory: wait for it first. */
static CUresult vmm_unmap(uint64_t address, uint64_t bytes)
{
	struct vmm_map *first = maps_of(address, bytes);
	uint64_t end = address + bytes;

	if (!first)
		return CUDA_ERROR_INVALID_VALUE;
	memory_wait(first->range);
	first = maps_of(address, bytes); /* the lock was released during the wait */
	if (!first)
		return CUDA_ERROR_INVALID_VALUE;
	for (struct vmm_map *map = first, *next; map && map->range->base < end; map = next) {
		next = map->next;
		map_free(map);
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	ENTER();
	LEAVE(vmm_unmap(address, bytes));
}

/* ---- access */

static CUresult access_check(const struct vmm_map *map, const CUmemAccessDesc *wish)
{
	struct gpu *gpu = gpu_find(wish->location.id);

	if (wish->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!gpu)
		return CUDA_ERROR_INVALID_DEVICE;
	if (wish->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && wish->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
	    wish->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	/* GPUs cannot access each other's memory. */
	if (gpu != map->memory->gpu && wish->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult map_set_access(struct vmm_map *map, const CUmemAccessDesc *wish)
{
	CUresult result = access_check(map, wish);

	if (result || gpu_find(wish->location.id) != map->memory->gpu || map->access == wish->flags)
		return result;
	map_hide_all(map);
	map->access = wish->flags;
	result = map_show_all(map);
	if (result)
		map_hide_all(map);
	return result;
}

/* Running work may use access that is removed: wait for it first. */
static CUresult vmm_set_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *list, size_t count)
{
	struct vmm_map *map = maps_of(address, bytes);
	CUresult result = CUDA_SUCCESS;

	if (!map || !list || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (; map && map->range->base < address + bytes; map = map->next)
		if (map->access) {
			memory_wait(map->range);
			break;
		}
	map = maps_of(address, bytes); /* the lock was released during the wait */
	if (!map)
		return CUDA_ERROR_INVALID_VALUE;
	for (; map && map->range->base < address + bytes; map = map->next)
		for (size_t i = 0; i < count && !result; i++)
			result = map_set_access(map, &list[i]);
	return result;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *list, size_t count)
{
	ENTER();
	LEAVE(vmm_set_access(address, bytes, list, count));
}

CUmemAccess_flags vmm_access(const struct range *range)
{
	return ((const struct vmm_map *)range->owner)->access;
}

EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
	const struct range *range;

	ENTER();
	range = range_find(address);
	if (!flags || !location || !range || range->kind != RANGE_DEVICE || range->flags != MEMORY_MAPPED)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !gpu_find(location->id))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	*flags = gpu_find(location->id) == range->gpu ? vmm_access(range) : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	LEAVE(CUDA_SUCCESS);
}

CUresult vmm_attach(struct context *context)
{
	CUresult result = CUDA_SUCCESS;

	for (struct vmm_map *map = all_maps; map && !result; map = map->next)
		if (map->memory->gpu == context->gpu && map->access != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			result = map_show(map, context);
	return result;
}

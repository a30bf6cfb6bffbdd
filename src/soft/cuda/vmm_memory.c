/* cuMemCreate: memory without an address, and its properties. */
#include <stdlib.h>

#include "soft/cuda/heap.h"
#include "soft/cuda/memory.h"
#include "soft/cuda/vmm.h"

static struct vmm_memory *all_vmm_memory;

bool vmm_is_aligned(uint64_t value)
{
	return value % HEAP_BLOCK_BYTES == 0;
}

CUresult vmm_find(CUmemGenericAllocationHandle handle, struct vmm_memory **memory)
{
	for (struct vmm_memory *found = all_vmm_memory; found; found = found->next)
		if ((uintptr_t)found == handle && found->handles) {
			*memory = found;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

void vmm_put(struct vmm_memory *memory)
{
	struct vmm_memory **at = &all_vmm_memory;

	if (memory->handles || memory->maps)
		return;
	port_free(memory->gpu->device, memory->memory);
	while (*at != memory)
		at = &(*at)->next;
	*at = memory->next;
	free(memory);
}

static CUresult props_check(const CUmemAllocationProp *props)
{
	if (!props || props->type == CU_MEM_ALLOCATION_TYPE_INVALID)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->type != CU_MEM_ALLOCATION_TYPE_PINNED || props->requestedHandleTypes ||
	    props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	return gpu_find(props->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult vmm_create(CUmemGenericAllocationHandle *handle, size_t bytes,
			   const CUmemAllocationProp *props)
{
	struct vmm_memory *memory;
	CUresult result;

	if (!handle || !bytes || !vmm_is_aligned(bytes))
		return CUDA_ERROR_INVALID_VALUE;
	result = props_check(props);
	if (result)
		return result;
	memory = malloc(sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*memory = (struct vmm_memory){ .gpu = gpu_find(props->location.id),
				       .bytes = bytes,
				       .props = *props,
				       .handles = 1,
				       .next = all_vmm_memory };
	result = port_memory(memory->gpu, bytes, true, &memory->memory);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		pool_trim_all(memory->gpu);
		result = port_memory(memory->gpu, bytes, true, &memory->memory);
	}
	if (result) {
		free(memory);
		return result;
	}
	all_vmm_memory = memory;
	*handle = (uintptr_t)memory;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
			    const CUmemAllocationProp *props, unsigned long long flags)
{
	ENTER();
	LEAVE(flags ? CUDA_ERROR_INVALID_VALUE : vmm_create(handle, bytes, props));
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct vmm_memory *memory;
	CUresult result;

	ENTER();
	result = vmm_find(handle, &memory);
	if (!result) {
		memory->handles--;
		vmm_put(memory);
	}
	LEAVE(result);
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	struct range *range;
	struct vmm_map *map;

	ENTER();
	range = range_find((uintptr_t)address);
	if (!handle || !range || range->kind != RANGE_DEVICE || range->flags != MEMORY_MAPPED)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	map = range->owner;
	map->memory->handles++;
	*handle = (uintptr_t)map->memory;
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *props,
					      CUmemAllocationGranularity_flags option)
{
	CUresult result;

	ENTER();
	result = props_check(props);
	if (result)
		LEAVE(result);
	if (!bytes || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	*bytes = HEAP_BLOCK_BYTES;
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *props,
						       CUmemGenericAllocationHandle handle)
{
	struct vmm_memory *memory;

	LEAVE_WITH(props, vmm_find(handle, &memory), memory->props);
}

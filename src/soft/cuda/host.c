/* Host memory that the GPU accesses at the same address. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "soft/cuda/memory.h"

static struct host_memory *all_host_memory;

static uint64_t page_round(uint64_t bytes)
{
	return (bytes + SOFT_PAGE_BYTES - 1) & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
}

void host_memory_forget(struct range *range)
{
	struct host_memory *memory = range->owner, **at = &all_host_memory;

	while (*at && *at != memory)
		at = &(*at)->next;
	if (*at)
		*at = memory->next;
	range_unmap_everywhere(range);
	free(memory);
	range_remove(range);
}

CUresult host_memory_add(const struct range *like, struct range **range)
{
	struct host_memory *memory = calloc(1, sizeof(*memory));
	struct range made = *like;
	CUresult result;

	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made.owner = memory;
	*range = range_add(&made);
	if (!*range) {
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*memory = (struct host_memory){ .range = *range, .next = all_host_memory };
	all_host_memory = memory;
	result = range_map_everywhere(*range);
	if (result)
		host_memory_forget(*range);
	return result;
}

CUresult memory_new_host(struct context *context, uint64_t bytes, enum range_kind kind, unsigned flags,
			 struct range **range)
{
	struct range made = { .bytes = bytes,
			      .kind = kind,
			      .gpu = context->gpu,
			      .context = context_home(context),
			      .flags = flags };
	void *at = NULL;
	CUresult result;

	if (bytes >> SOFT_ADDRESS_BITS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = port_memory(context->gpu, page_round(bytes), false, &made.memory);
	if (result)
		return result;
	result = port_map(context->gpu, made.memory, page_round(bytes), &at);
	if (result) {
		port_free(context->gpu->device, made.memory);
		return result;
	}
	made.base = (uintptr_t)at;
	result = host_memory_add(&made, range);
	if (result) {
		port_unmap(context->gpu, made.memory, page_round(bytes), at);
		port_free(context->gpu->device, made.memory);
	}
	return result;
}

CUresult memory_free_host(struct range *range)
{
	const struct range was = *range;

	host_memory_forget(range);
	port_unmap(was.gpu, was.memory, page_round(was.bytes), (void *)(uintptr_t)was.base);
	return port_free(was.gpu->device, was.memory);
}

/* Registered pages stay and belong to the program; only the GPU's mapping is removed. */
void host_detach(struct context *context)
{
	for (struct host_memory *memory = all_host_memory, *next; memory; memory = next) {
		next = memory->next;
		if (memory->range->context != context)
			continue;
		if (memory->range->kind == RANGE_REGISTERED)
			register_undo(memory->range);
		else
			memory_free_host(memory->range);
	}
}

static CUresult host_alloc(void **at, size_t bytes, unsigned flags)
{
	const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
			       CU_MEMHOSTALLOC_WRITECOMBINED;
	struct context *context;
	struct range *range;
	CUresult result;

	if (!at || flags & ~known)
		return CUDA_ERROR_INVALID_VALUE;
	result = context_current(&context);
	if (!result)
		result = capture_forbids();
	if (result)
		return result;
	if (!bytes) {
		*at = NULL;
		return CUDA_SUCCESS;
	}
	/* All contexts can access all host memory, and the flags say so. */
	result = memory_new_host(context, bytes, RANGE_HOST, flags | CU_MEMHOSTALLOC_DEVICEMAP, &range);
	if (!result)
		*at = (void *)(uintptr_t)range->base;
	return result;
}

EXPORT CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned int flags)
{
	ENTER();
	LEAVE(host_alloc(at, bytes, flags));
}

EXPORT CUresult cuMemAllocHost_v2(void **at, size_t bytes)
{
	ENTER();
	LEAVE(host_alloc(at, bytes, 0));
}

static CUresult host_find(const void *at, struct range **range)
{
	*range = at ? range_find((uintptr_t)at) : NULL;
	if (!*range || range_is_device(*range))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult host_free(void *at)
{
	struct range *range;
	CUresult result;

	result = at ? capture_forbids() : CUDA_SUCCESS;
	if (result || !at)
		return result;
	result = host_find(at, &range);
	if (result || range->kind != RANGE_HOST || range->base != (uintptr_t)at)
		return CUDA_ERROR_INVALID_VALUE;
	memory_wait(range);
	result = host_find(at, &range); /* the lock was released during the wait */
	if (result || range->kind != RANGE_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return memory_free_host(range);
}

EXPORT CUresult cuMemFreeHost(void *at)
{
	ENTER();
	LEAVE(host_free(at));
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *at, unsigned int flags)
{
	struct context *context;
	struct range *range;
	CUresult result;

	ENTER();
	if (!address || flags)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = context_current(&context);
	if (!result)
		result = host_find(at, &range);
	if (!result)
		*address = (uintptr_t)at;
	LEAVE(result);
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *at)
{
	struct range *range;
	CUresult result;

	ENTER();
	result = host_find(at, &range);
	if (!flags || result || range->kind == RANGE_MANAGED)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	*flags = range->flags;
	LEAVE(CUDA_SUCCESS);
}

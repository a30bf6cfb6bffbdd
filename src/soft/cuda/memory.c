/* Device memory of contexts. Small allocations are parts of 2 MiB blocks. Larger ones have their own block,
 * so that most uses after free fault. */
#include <stdlib.h>

#include "soft/cuda/array.h"
#include "soft/cuda/heap.h"
#include "soft/cuda/memory.h"

enum { MEMORY_SMALL_BYTES = 1 << 20 };

static CUresult memory_heap(struct context *context, struct heap **heap)
{
	if (!context->heap) {
		context->heap = calloc(1, sizeof(*context->heap));
		if (!context->heap)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*context->heap = (struct heap){ .gpu = context->gpu, .context = context };
	}
	*heap = context->heap;
	return CUDA_SUCCESS;
}

static CUresult memory_take(struct heap *heap, uint64_t bytes, struct heap_span **span)
{
	if (bytes > MEMORY_SMALL_BYTES)
		return heap_take_whole(heap, bytes, span);
	return heap_take(heap, bytes, NULL, span);
}

/* Release the unused memory of the heap and of pools before reporting out of memory. */
static CUresult memory_take_hard(struct heap *heap, uint64_t bytes, struct heap_span **span)
{
	CUresult result = memory_take(heap, bytes, span);

	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	heap_trim(heap, 0);
	pool_trim_all(heap->gpu);
	return memory_take(heap, bytes, span);
}

CUresult memory_new_device(struct context *context, uint64_t bytes, struct range **range)
{
	struct heap *heap;
	struct heap_span *span;
	struct range made = {
		.kind = RANGE_DEVICE, .bytes = bytes, .gpu = context->gpu, .context = context_home(context)
	};
	CUresult result = memory_heap(context_home(context), &heap);

	if (!result && bytes > context->gpu->shape.mem_bytes)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		result = memory_take_hard(heap, bytes, &span);
	if (result)
		return result;
	made.base = heap_span_address(span);
	made.memory = span->block->memory;
	made.memory_offset = span->offset;
	made.owner = span;
	*range = range_add(&made);
	if (*range)
		return CUDA_SUCCESS;
	heap_give(span, (struct fence){ 0 });
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult memory_free_device(struct range *range)
{
	struct heap_span *span = range->owner;
	struct heap *heap = span->block->heap;
	uint64_t whole = 0;

	range_remove(range);
	heap_give(span, (struct fence){ 0 });
	/* At most one empty block is kept, for the next small allocation. */
	for (struct heap_block *block = heap->blocks; block; block = block->next)
		if (block->is_whole || block->spans->is_used || block->spans->next)
			whole += block->bytes;
	heap_trim(heap, whole + HEAP_BLOCK_BYTES);
	return CUDA_SUCCESS;
}

CUresult memory_attach(struct context *context)
{
	CUresult result = pool_attach(context);

	if (!result)
		result = graph_memory_attach(context);
	return result ? result : vmm_attach(context);
}

static void memory_forget_ranges(struct heap *heap)
{
	for (struct heap_block *block = heap->blocks; block; block = block->next)
		for (struct heap_span *span = block->spans; span; span = span->next) {
			struct range *range = span->is_used ? range_find(heap_span_address(span)) : NULL;

			if (range)
				range_remove(range);
		}
}

void memory_detach(struct context *context)
{
	textures_detach(context);
	arrays_detach(context);
	staging_free(context);
	host_detach(context);
	pool_detach(context);
	graph_memory_detach(context);
	if (!context->heap)
		return;
	memory_forget_ranges(context->heap);
	heap_clear(context->heap);
	free(context->heap);
	context->heap = NULL;
}

void memory_settle(struct context *context)
{
	pool_settle(context->gpu);
	graph_memory_settle(context->gpu);
}

static CUresult memory_alloc(CUdeviceptr *address, size_t bytes)
{
	struct context *context;
	struct range *range = NULL;
	CUresult result;

	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	result = context_current(&context);
	if (!result)
		result = capture_forbids();
	if (!result)
		result = memory_new_device(context, bytes, &range);
	if (!result)
		*address = range->base;
	return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	ENTER();
	LEAVE(memory_alloc(address, bytes));
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
				   unsigned int element_bytes)
{
	size_t bytes, line;
	CUresult result;

	ENTER();
	if (!pitch || !width || !height || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	line = (width + HEAP_ALIGN - 1) & ~(size_t)(HEAP_ALIGN - 1);
	if (line < width || __builtin_mul_overflow(line, height, &bytes))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = memory_alloc(address, bytes);
	if (!result)
		*pitch = line;
	LEAVE(result);
}

/* cuMemFree accepts only the start of an allocation. */
static CUresult memory_find(CUdeviceptr address, struct range **range)
{
	*range = range_find(address);
	if (!*range || (*range)->base != address)
		return CUDA_ERROR_INVALID_VALUE;
	if ((*range)->kind == RANGE_DEVICE && (*range)->flags != MEMORY_MAPPED &&
	    (*range)->flags != MEMORY_OF_ARRAY)
		return CUDA_SUCCESS;
	return (*range)->kind == RANGE_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool memory_is_used_by(const struct range *range, struct context *context)
{
	if (!range_is_device(range))
		return true;
	return range->context ? range->context == context_home(context) : range->gpu == context->gpu;
}

CUresult memory_wait(const struct range *range)
{
	const struct range copy = *range;
	struct context *context = all_contexts, *next;

	for (; context; context = next) {
		if (memory_is_used_by(&copy, context))
			context_synchronize(context);
		if (!context_is(context)) /* freed meanwhile: the wait releases the lock */
			break;
		next = context->next;
	}
	return context_current(&context);
}

static CUresult memory_free(CUdeviceptr address)
{
	struct range *range;
	struct context *context;
	CUresult result = context_current(&context);

	if (result || !address)
		return result;
	result = memory_find(address, &range);
	if (!result)
		result = capture_forbids();
	if (!result)
		result = memory_wait(range);
	/* The lock was released during the wait. */
	if (!result)
		result = memory_find(address, &range);
	if (result)
		return result;
	if (range->kind == RANGE_MANAGED)
		return memory_free_host(range);
	if (range->flags == MEMORY_OF_POOL)
		return pool_free_now(range);
	if (range->flags == MEMORY_OF_CONTEXT)
		return memory_free_device(range);
	return graph_memory_free_now(range);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
	ENTER();
	LEAVE(memory_free(address));
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	struct range *range;

	ENTER();
	range = range_find(address);
	if (!range)
		LEAVE(CUDA_ERROR_NOT_FOUND);
	if (base)
		*base = range->base;
	if (bytes)
		*bytes = range->bytes;
	LEAVE(CUDA_SUCCESS);
}

/* Ask the driver each time: other processes use the GPU too, and a vGPU has its own limit. */
EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	struct context *context;
	uint64_t left, total;
	CUresult result;

	ENTER();
	result = context_current(&context);
	if (result)
		LEAVE(result);
	total = port_memory_total(context->gpu, &left);
	if (total_bytes)
		*total_bytes = total;
	if (free_bytes)
		*free_bytes = left;
	LEAVE(CUDA_SUCCESS);
}

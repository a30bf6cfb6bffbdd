/* Pools: stream-ordered allocation. The stream that freed memory can reuse it at once, other streams once the
 * free has been reached. At a synchronisation, memory above the release threshold returns to the driver. The
 * memory of a pool belongs to the GPU, not to a context. */
#include "soft/cuda/pool.h"

#include <stdlib.h>

#include "soft/cuda/memory.h"

static struct pool *all_pools;
static struct pool *default_pools[SOFT_GPUS_MAX], *current_pools[SOFT_GPUS_MAX];

/* ---- lookup */

CUresult pool_find(CUmemoryPool handle, struct pool **pool)
{
	for (struct pool *found = all_pools; found; found = found->next)
		if (found == (struct pool *)handle && !found->is_destroyed) {
			*pool = found;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult pool_new(struct gpu *gpu, const CUmemPoolProps *props, struct pool **pool)
{
	*pool = malloc(sizeof(**pool));
	if (!*pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	**pool = (struct pool){
		.heap = { .gpu = gpu }, .props = *props, .reuse = { 1, 1, 1 }, .next = all_pools
	};
	all_pools = *pool;
	return CUDA_SUCCESS;
}

CUresult pool_default(struct gpu *gpu, struct pool **pool)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, (int)gpu->index } };
	CUresult result = CUDA_SUCCESS;

	*pool = default_pools[gpu->index];
	if (*pool)
		return CUDA_SUCCESS;
	result = pool_new(gpu, &props, pool);
	if (!result) {
		(*pool)->is_default = true;
		default_pools[gpu->index] = *pool;
	}
	return result;
}

CUresult pool_current(struct gpu *gpu, struct pool **pool)
{
	*pool = current_pools[gpu->index];
	return *pool ? CUDA_SUCCESS : pool_default(gpu, pool);
}

void pool_set_current(struct gpu *gpu, struct pool *pool)
{
	current_pools[gpu->index] = pool;
}

/* ---- release */

/* A destroyed pool is freed when all its memory is free and no work uses it. */
static void pool_reap(struct pool *pool)
{
	struct pool **at = &all_pools;

	heap_trim(&pool->heap, 0);
	if (pool->heap.blocks)
		return;
	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	free(pool);
}

void pool_destroy(struct pool *pool)
{
	struct gpu *gpu = pool->heap.gpu;

	if (current_pools[gpu->index] == pool)
		current_pools[gpu->index] = NULL;
	pool->is_destroyed = true;
	pool_reap(pool);
}

void pool_settle(struct gpu *gpu)
{
	for (struct pool *pool = all_pools, *next; pool; pool = next) {
		next = pool->next;
		if (pool->heap.gpu != gpu)
			continue;
		if (pool->is_destroyed)
			pool_reap(pool);
		else
			heap_trim(&pool->heap, pool->release_threshold);
	}
}

void pool_trim_all(struct gpu *gpu)
{
	for (struct pool *pool = all_pools; pool; pool = pool->next)
		if (pool->heap.gpu == gpu)
			heap_trim(&pool->heap, 0);
}

CUresult pool_attach(struct context *context)
{
	CUresult result = CUDA_SUCCESS;

	for (struct pool *pool = all_pools; pool && !result; pool = pool->next)
		if (pool->heap.gpu == context->gpu)
			result = heap_attach(&pool->heap, context);
	return result;
}

void pool_detach(struct context *context)
{
	for (struct pool *pool = all_pools; pool; pool = pool->next)
		heap_forget(&pool->heap, context);
	pool_settle(context->gpu);
}

/* ---- allocation */

static CUresult pool_take(struct pool *pool, uint64_t bytes, struct channel *channel, struct heap_span **span)
{
	struct gpu *gpu = pool->heap.gpu;
	CUresult result;

	if (bytes > gpu->shape.mem_bytes ||
	    (pool->props.maxSize && bytes > pool->props.maxSize - pool->heap.used_bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = heap_take(&pool->heap, bytes, channel, span);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	/* Wait for memory that other streams have freed. */
	heap_wait(&pool->heap);
	pool_trim_all(gpu);
	return heap_take(&pool->heap, bytes, channel, span);
}

static void raise_mark(uint64_t *high, uint64_t value)
{
	if (*high < value)
		*high = value;
}

CUresult pool_alloc(struct pool *pool, uint64_t bytes, struct stream *stream, struct range **range)
{
	struct range made = {
		.bytes = bytes, .kind = RANGE_DEVICE, .flags = MEMORY_OF_POOL, .gpu = pool->heap.gpu
	};
	struct heap_span *span;
	CUresult result = pool_take(pool, bytes, stream->channel, &span);

	if (result)
		return result;
	made.base = heap_span_address(span);
	made.memory = span->block->memory;
	made.memory_offset = span->offset;
	made.pool = (CUmemoryPool)pool;
	made.owner = span;
	*range = range_add(&made);
	if (!*range) {
		heap_give(span, (struct fence){ 0 });
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	raise_mark(&pool->used_high, pool->heap.used_bytes);
	raise_mark(&pool->reserved_high, pool->heap.reserved_bytes);
	return CUDA_SUCCESS;
}

static CUresult pool_give(struct range *range, struct fence fence)
{
	struct heap_span *span = range->owner;
	struct pool *pool = (struct pool *)range->pool;

	range_remove(range);
	heap_give(span, fence);
	if (pool->is_destroyed)
		pool_reap(pool);
	return CUDA_SUCCESS;
}

CUresult pool_free_now(struct range *range)
{
	return pool_give(range, (struct fence){ 0 });
}

CUresult op_submit_free(struct stream *stream, const struct op_alloc *alloc)
{
	struct range *range = range_find(alloc->address);
	CUresult result;

	if (!range || range->base != alloc->address || range->kind != RANGE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	switch (range->flags) {
	case MEMORY_OF_POOL:
		return pool_give(range, stream_fence(stream));
	case MEMORY_OF_GRAPH:
		return graph_memory_free_after(range, stream_fence(stream));
	case MEMORY_OF_CONTEXT: /* allowed for cuMemAlloc memory; done synchronously */
		result = stream_synchronize(stream);
		range = range_find(alloc->address);
		if (!result && (!range || range->base != alloc->address || range->kind != RANGE_DEVICE ||
				range->flags != MEMORY_OF_CONTEXT))
			result = CUDA_ERROR_INVALID_VALUE;
		return result ? result : memory_free_device(range);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Public functions: memory pools. */
#include "soft/cuda/memory.h"
#include "soft/cuda/pool.h"

/* ---- pools */

static CUresult pool_create(CUmemoryPool *handle, const CUmemPoolProps *props)
{
	struct pool *pool;
	struct gpu *gpu;
	CUresult result;

	if (!handle || !props || props->allocType == CU_MEM_ALLOCATION_TYPE_INVALID)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->handleTypes ||
	    props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	gpu = gpu_find(props->location.id);
	if (!gpu)
		return CUDA_ERROR_INVALID_DEVICE;
	result = pool_new(gpu, props, &pool);
	if (!result)
		*handle = (CUmemoryPool)pool;
	return result;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *props)
{
	ENTER();
	LEAVE(pool_create(handle, props));
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
	struct pool *pool;
	CUresult result;

	ENTER();
	result = pool_find(handle, &pool);
	if (!result && pool->is_default)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		pool_destroy(pool);
	LEAVE(result);
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes)
{
	struct pool *pool;
	CUresult result;

	ENTER();
	result = pool_find(handle, &pool);
	if (!result)
		heap_trim(&pool->heap, keep_bytes);
	LEAVE(result);
}

static uint64_t *pool_number(struct pool *pool, CUmemPool_attribute attribute)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &pool->release_threshold;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &pool->heap.reserved_bytes;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &pool->reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &pool->heap.used_bytes;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &pool->used_high;
	default:
		return NULL;
	}
}

/* NULL: another attribute. */
static int *pool_switch(struct pool *pool, CUmemPool_attribute attribute)
{
	if (attribute < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
	    attribute > CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
		return NULL;
	return &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	struct pool *pool;
	CUresult result;

	ENTER();
	result = pool_find(handle, &pool);
	if (result || !value)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	if (pool_switch(pool, attribute))
		*(int *)value = *pool_switch(pool, attribute);
	else if (pool_number(pool, attribute))
		*(uint64_t *)value = *pool_number(pool, attribute);
	else
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	LEAVE(CUDA_SUCCESS);
}

static CUresult pool_set(struct pool *pool, CUmemPool_attribute attribute, const void *value)
{
	if (pool_switch(pool, attribute)) {
		*pool_switch(pool, attribute) = *(const int *)value != 0;
		return CUDA_SUCCESS;
	}
	if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
		pool->release_threshold = *(const uint64_t *)value;
		return CUDA_SUCCESS;
	}
	/* The high-water marks can only be reset, by setting them to 0. */
	if (!pool_number(pool, attribute) || *(const uint64_t *)value)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		pool->reserved_high = pool->heap.reserved_bytes;
	else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		pool->used_high = pool->heap.used_bytes;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	struct pool *pool;
	CUresult result;

	ENTER();
	result = value ? pool_find(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
	LEAVE(result ? result : pool_set(pool, attribute, value));
}

/* GPUs cannot access each other's memory: only the pool's GPU has access. */
EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *list, size_t count)
{
	struct pool *pool;
	CUresult result;

	ENTER();
	result = list || !count ? pool_find(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && !result; i++) {
		struct gpu *gpu = gpu_find(list[i].location.id);

		if (list[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !gpu)
			result = CUDA_ERROR_INVALID_DEVICE;
		else if (gpu == pool->heap.gpu && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			result = CUDA_ERROR_INVALID_VALUE; /* its own GPU always has access */
		else if (gpu != pool->heap.gpu && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	}
	LEAVE(result);
}

EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
	struct pool *pool;
	CUresult result;

	ENTER();
	result = flags && location ? pool_find(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !gpu_find(location->id))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	*flags = gpu_find(location->id) == pool->heap.gpu ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
							  : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	LEAVE(CUDA_SUCCESS);
}

/* ---- pools of a device */

static CUresult pool_of(CUdevice device, CUmemoryPool *handle,
			CUresult (*which)(struct gpu *gpu, struct pool **pool))
{
	struct gpu *gpu = gpu_find(device);
	struct pool *pool;
	CUresult result;

	if (!gpu)
		return CUDA_ERROR_INVALID_DEVICE;
	result = handle ? which(gpu, &pool) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*handle = (CUmemoryPool)pool;
	return result;
}

static CUresult pool_set_of(CUdevice device, CUmemoryPool handle)
{
	struct gpu *gpu = gpu_find(device);
	struct pool *pool;
	CUresult result = gpu ? pool_find(handle, &pool) : CUDA_ERROR_INVALID_DEVICE;

	if (!result && pool->heap.gpu != gpu)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		pool_set_current(gpu, pool);
	return result;
}

static CUresult place_check(const CUmemLocation *location, CUmemAllocationType type)
{
	if (!location)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	ENTER();
	LEAVE(pool_of(device, pool, pool_default));
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	ENTER();
	LEAVE(pool_of(device, pool, pool_current));
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	ENTER();
	LEAVE(pool_set_of(device, pool));
}

EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	CUresult result = place_check(location, type);

	if (result)
		return result;
	ENTER();
	LEAVE(pool_of(location->id, pool, pool_default));
}

EXPORT CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	CUresult result = place_check(location, type);

	if (result)
		return result;
	ENTER();
	LEAVE(pool_of(location->id, pool, pool_current));
}

EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUresult result = place_check(location, type);

	if (result)
		return result;
	ENTER();
	LEAVE(pool_set_of(location->id, pool));
}

/* ---- memory */

/* During capture: the graph owns the memory. */
static CUresult alloc_captured(struct stream *stream, uint64_t bytes, struct pool *pool, CUdeviceptr *address)
{
	struct op op = { .kind = OP_ALLOC, .alloc = { .bytes = bytes, .pool = (CUmemoryPool)pool } };
	CUresult result = graph_memory_new(stream->context, bytes, &op.alloc.address);

	if (result)
		return result;
	result = stream_do(stream, &op);
	if (!result)
		*address = op.alloc.address;
	op_free(&op);
	return result;
}

/* `handle` NULL: the current pool of the device. */
static CUresult alloc_async(CUdeviceptr *address, size_t bytes, CUmemoryPool handle, CUstream stream_handle)
{
	struct stream *stream;
	struct range *range;
	struct pool *pool;
	CUresult result = address ? stream_find(stream_handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		result = handle ? pool_find(handle, &pool) : pool_current(stream->context->gpu, &pool);
	if (result)
		return result;
	if (!bytes) { /* allowed, unlike in cuMemAlloc */
		*address = 0;
		return CUDA_SUCCESS;
	}
	if (stream->capture)
		return alloc_captured(stream, bytes, pool, address);
	result = pool_alloc(pool, bytes, stream, &range);
	if (!result)
		*address = range->base;
	return result;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
	ENTER();
	LEAVE(alloc_async(address, bytes, NULL, stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
					CUstream stream)
{
	ENTER();
	LEAVE(pool ? alloc_async(address, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
	const struct op op = { .kind = OP_FREE, .alloc = { .address = address } };
	struct stream *stream;
	struct range *range;
	CUresult result;

	ENTER();
	result = stream_find(handle, &stream);
	if (result || !address)
		LEAVE(result);
	range = range_find(address);
	if (!range || range->base != address || range->kind != RANGE_DEVICE ||
	    (stream->capture && range->flags != MEMORY_OF_GRAPH))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	LEAVE(stream_do(stream, &op));
}

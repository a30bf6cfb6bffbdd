/* Public functions: the current context. */
#include "soft/cuda/current.h"

/* NULL means the current one. */
static CUresult find_context(CUcontext handle, struct context **context)
{
	if (!handle)
		return context_current(context);
	*context = (struct context *)handle;
	return context_is(*context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* Of a primary context without its green contexts: NVIDIA's driver waits for some of their work only (docs/driver.md). */
static CUresult context_wait(CUcontext handle)
{
	struct context *context;
	CUresult result = find_context(handle, &context);

	if (!result)
		result = capture_forbids_context(context);
	if (!result)
		result = capture_forbids();
	return result ? result : context_synchronize(context);
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
	ENTER();
	LEAVE(context_wait(context));
}

EXPORT CUresult cuCtxSynchronize(void)
{
	return cuCtxSynchronize_v2(NULL);
}

/* ---- properties */

EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
	struct context *context;
	CUresult result;

	ENTER();
	if (!device)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = handle ? find_context(handle, &context) : current_find(&context);
	if (!result)
		*device = (CUdevice)context->gpu->index;
	LEAVE(result);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	return cuCtxGetDevice_v2(device, NULL);
}

EXPORT CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	struct context *context;

	LEAVE_WITH(id, find_context(handle, &context), context->id);
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	struct context *context;

	LEAVE_WITH(version, find_context(handle, &context), context->api_version);
}

EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
	struct context *context;
	CUresult result;

	ENTER();
	result = flags ? context_current(&context) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*flags = context->flags;
	LEAVE(result);
}

EXPORT CUresult cuCtxSetFlags(unsigned int flags)
{
	struct context *context;
	CUresult result;

	if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	result = context_current(&context);
	if (!result)
		context->flags = flags | CU_CTX_MAP_HOST;
	LEAVE(result);
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct context *context;
	CUresult result;

	ENTER();
	result = context_current(&context);
	if (!result && least)
		*least = 0;
	if (!result && greatest)
		*greatest = STREAM_PRIORITY_GREATEST;
	LEAVE(result);
}

EXPORT CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
	(void)affinity;
	return type == CU_EXEC_AFFINITY_TYPE_SM_COUNT ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
						      : CUDA_ERROR_INVALID_VALUE;
}

/* ---- limits: stored and returned only; the software GPU's limits are larger */

static size_t *limit_of(struct context *context, CUlimit limit)
{
	switch (limit) {
	case CU_LIMIT_STACK_SIZE:
		return &context->limits.stack;
	case CU_LIMIT_PRINTF_FIFO_SIZE:
		return &context->limits.print;
	case CU_LIMIT_MALLOC_HEAP_SIZE:
		return &context->limits.heap;
	case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
		return &context->limits.pending_launches;
	case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
		return &context->limits.l2_fetch;
	case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
		return &context->limits.l2_persisting;
	default:
		return NULL;
	}
}

static CUresult find_limit(CUlimit limit, size_t **value)
{
	struct context *context;
	CUresult result;

	if ((unsigned)limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	result = context_current(&context);
	if (result)
		return result;
	*value = limit_of(context, limit);
	return *value ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	size_t *at;
	CUresult result;

	ENTER();
	result = find_limit(limit, &at);
	if (!result && limit == CU_LIMIT_STACK_SIZE && value > PTX_LOCAL_MAX_BYTES)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*at = value;
	LEAVE(result);
}

EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	size_t *at;
	CUresult result;

	ENTER();
	result = value ? find_limit(limit, &at) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*value = *at;
	LEAVE(result);
}

/* ---- cache hints, without effect */

EXPORT CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
	struct context *context;
	CUresult result;

	ENTER();
	result = config ? context_current(&context) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*config = context->cache_config;
	LEAVE(result);
}

EXPORT CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	struct context *context;
	CUresult result;

	ENTER();
	result = (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? context_current(&context)
								: CUDA_ERROR_INVALID_VALUE;
	if (!result)
		context->cache_config = config;
	LEAVE(result);
}

EXPORT CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	struct context *context;
	CUresult result;

	ENTER();
	result = config ? context_current(&context) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	LEAVE(result);
}

EXPORT CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	struct context *context;
	CUresult result;

	ENTER();
	result = (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? context_current(&context)
									       : CUDA_ERROR_INVALID_VALUE;
	LEAVE(result);
}

EXPORT CUresult cuCtxResetPersistingL2Cache(void)
{
	struct context *context;

	ENTER();
	LEAVE(context_current(&context));
}

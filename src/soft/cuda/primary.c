/* Contexts made by programs, and the primary context of each GPU. */
#include "soft/cuda/current.h"
#include "soft/cuda/device.h"

static bool flags_are_known(unsigned flags)
{
	unsigned how = flags & CU_CTX_SCHED_MASK;

	return !(flags & ~(unsigned)CU_CTX_FLAGS_MASK) &&
	       (how <= CU_CTX_SCHED_YIELD || how == CU_CTX_SCHED_BLOCKING_SYNC);
}

/* ---- contexts of programs */

static CUresult context_create(CUcontext *handle, unsigned flags, CUdevice device)
{
	struct context *context;
	struct gpu *gpu;
	CUresult result;

	if (!handle || !flags_are_known(flags))
		return CUDA_ERROR_INVALID_VALUE;
	result = device_find(device, &gpu);
	if (!result)
		result = context_new(gpu, flags | CU_CTX_MAP_HOST, &context);
	if (result)
		return result;
	result = current_push(context);
	if (result)
		context_free(context);
	else
		*handle = (CUcontext)context;
	return result;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER();
	LEAVE(context_create(context, flags, device));
}

EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	return cuCtxCreate_v2(context, flags, device);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count,
			       unsigned int flags, CUdevice device)
{
	if (count < 0 || (count && !affinity))
		return CUDA_ERROR_INVALID_VALUE;
	return count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : cuCtxCreate_v2(context, flags, device);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
			       CUdevice device)
{
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuCtxCreate_v3(context, params ? params->execAffinityParams : NULL,
			      params ? params->numExecAffinityParams : 0, flags, device);
}

static CUresult context_destroy(struct context *context)
{
	struct context *current;

	if (!context_is(context) || context->is_primary || context->green)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!current_find(&current) && current == context)
		current_pop(&current);
	context_free(context);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	ENTER();
	LEAVE(context_destroy((struct context *)context));
}

EXPORT CUresult cuCtxDestroy(CUcontext context)
{
	return cuCtxDestroy_v2(context);
}

/* ---- primary contexts */

static CUresult primary_retain(CUcontext *handle, CUdevice device)
{
	struct gpu *gpu;
	CUresult result;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	result = device_find(device, &gpu);
	if (!result && !gpu->primary)
		result = context_new_primary(gpu, gpu->primary_flags | CU_CTX_MAP_HOST);
	if (result)
		return result;
	gpu->primary_uses++;
	*handle = (CUcontext)gpu->primary;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	ENTER();
	LEAVE(primary_retain(context, device));
}

/* Clear gpu->primary first: a retain during the wait makes a new context. */
static void primary_free(struct gpu *gpu)
{
	struct context *context = gpu->primary;

	gpu->primary = NULL;
	if (context)
		context_free(context);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = device_find(device, &gpu);
	if (!result && !gpu->primary_uses)
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (!result && !--gpu->primary_uses)
		primary_free(gpu);
	LEAVE(result);
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	return cuDevicePrimaryCtxRelease_v2(device);
}

/* References stay: the next retain makes a new context. */
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = device_find(device, &gpu);
	if (!result)
		primary_free(gpu);
	LEAVE(result);
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	return cuDevicePrimaryCtxReset_v2(device);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = flags_are_known(flags) ? device_find(device, &gpu) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		gpu->primary_flags = flags;
	if (!result && gpu->primary)
		gpu->primary->flags = flags | CU_CTX_MAP_HOST;
	LEAVE(result);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *is_active)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = flags && is_active ? device_find(device, &gpu) : CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		*flags = gpu->primary ? gpu->primary->flags : gpu->primary_flags;
		*is_active = gpu->primary != NULL;
	}
	LEAVE(result);
}

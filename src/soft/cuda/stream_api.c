/* Public functions: streams. */
#include "soft/cuda/core.h"

static CUresult stream_create(CUstream *handle, unsigned flags, int priority)
{
	struct context *context;
	struct stream *stream;
	CUresult result;

	if (!handle || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	result = context_current(&context);
	if (!result)
		result = stream_new(context, flags, priority, NULL, &stream);
	if (!result)
		*handle = (CUstream)stream;
	return result;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	ENTER();
	LEAVE(stream_create(stream, flags, priority));
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return cuStreamCreateWithPriority(stream, flags, 0);
}

static bool is_default(CUstream handle)
{
	return !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

/* Also valid in a context with an error: programs clean up then. */
static CUresult find_any(CUstream handle, struct stream **stream)
{
	CUresult result = stream_find(handle, stream);

	if (result && !is_default(handle) && result != CUDA_ERROR_INVALID_HANDLE)
		return CUDA_SUCCESS;
	return result;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
	struct stream *stream;
	CUresult result;

	ENTER();
	result = is_default(handle) ? CUDA_ERROR_INVALID_HANDLE : find_any(handle, &stream);
	if (!result)
		stream_destroy(stream);
	LEAVE(result);
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
	return cuStreamDestroy_v2(stream);
}

static CUresult find_to_ask(CUstream handle, struct stream **stream)
{
	CUresult result = stream_find(handle, stream);

	if (!result)
		result = capture_forbids_stream(*stream);
	return result ? result : capture_forbids();
}

/* Includes work that the stream must wait for, and places nothing on it. */
EXPORT CUresult cuStreamQuery(CUstream handle)
{
	struct stream *stream;
	CUresult result;

	ENTER();
	result = find_to_ask(handle, &stream);
	if (!result && !stream_is_idle(stream))
		result = CUDA_ERROR_NOT_READY;
	if (!result)
		result = context_check(stream->context);
	LEAVE(result);
}

EXPORT CUresult cuStreamSynchronize(CUstream handle)
{
	struct stream *stream;
	CUresult result;

	ENTER();
	result = find_to_ask(handle, &stream);
	if (!result)
		result = stream_synchronize(stream);
	LEAVE(result);
}

EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
	struct stream *stream;

	LEAVE_WITH(flags, stream_find(handle, &stream), stream->flags);
}

EXPORT CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
	struct stream *stream;

	LEAVE_WITH(priority, stream_find(handle, &stream), stream->priority);
}

EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
	struct stream *stream;

	LEAVE_WITH(id, stream_find(handle, &stream), stream->id);
}

EXPORT CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
	struct stream *stream;

	LEAVE_WITH(device, stream_find(handle, &stream), (CUdevice)stream->context->gpu->index);
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
	struct stream *stream;

	LEAVE_WITH(context, stream_find(handle, &stream), (CUcontext)stream->context);
}

/* Sets one of the two, never both. */
EXPORT CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *green)
{
	struct stream *stream;
	CUresult result;

	ENTER();
	result = context ? stream_find(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
	if (!result && stream->green && !green)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		*context = stream->green ? NULL : (CUcontext)stream->context;
		if (green)
			*green = (CUgreenCtx)stream->green;
	}
	LEAVE(result);
}

/* ---- host functions */

static CUresult add_callback(CUstream handle, CUstreamCallback callback, void *argument)
{
	struct stream *stream;
	CUresult result = stream_find(handle, &stream);

	if (!result)
		result = capture_forbids_stream(stream);
	if (!result)
		result = capture_forbids_implicit(stream);
	return result ? result : stream_call_back(stream, callback, argument);
}

EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *argument,
				    unsigned int flags)
{
	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	LEAVE(add_callback(stream, callback, argument));
}

EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *argument)
{
	struct op op = { .kind = OP_HOST, .host = { function, argument } };
	struct stream *stream;
	CUresult result;

	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	result = stream_find(handle, &stream);
	if (!result)
		result = stream_do(stream, &op);
	LEAVE(result);
}

/* ---- attributes */

static CUresult set_attribute(struct stream *stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	switch ((int)id) {
	case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		return CUDA_SUCCESS; /* cache hints, without effect */
	case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		stream->sync_policy = (int)value->syncPolicy;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_PRIORITY:
		stream->priority = value->priority > 0				? 0
				   : value->priority < STREAM_PRIORITY_GREATEST ? STREAM_PRIORITY_GREATEST
										: value->priority;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
		stream->sync_domain = (int)value->memSyncDomain;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult get_attribute(const struct stream *stream, CUstreamAttrID id, CUstreamAttrValue *value)
{
	*value = (CUstreamAttrValue){ .pad = { 0 } };
	switch ((int)id) {
	case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		value->memSyncDomainMap.remote = 1;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		value->syncPolicy = (CUsynchronizationPolicy)stream->sync_policy;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_PRIORITY:
		value->priority = stream->priority;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
		value->memSyncDomain = (CUlaunchMemSyncDomain)stream->sync_domain;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

EXPORT CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	struct stream *stream;
	CUresult result;

	ENTER();
	result = value ? stream_find(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = set_attribute(stream, id, value);
	LEAVE(result);
}

EXPORT CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue *value)
{
	struct stream *stream;
	CUresult result;

	ENTER();
	result = value ? stream_find(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = get_attribute(stream, id, value);
	LEAVE(result);
}

EXPORT CUresult cuStreamCopyAttributes(CUstream dst_handle, CUstream src_handle)
{
	struct stream *dst, *src = NULL;
	CUresult result;

	ENTER();
	result = stream_find(dst_handle, &dst);
	if (!result)
		result = stream_find(src_handle, &src);
	if (!result) {
		dst->priority = src->priority;
		dst->sync_policy = src->sync_policy;
		dst->sync_domain = src->sync_domain;
	}
	LEAVE(result);
}

/* Managed memory is always accessible to the GPU and the host: nothing to attach. */
EXPORT CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t length,
				       unsigned int flags)
{
	struct stream *stream;
	struct range *range;
	CUresult result;

	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	result = stream_find(handle, &stream);
	range = result ? NULL : range_find(address);
	if (!result &&
	    (!range || range->kind != RANGE_MANAGED || length > range->base + range->bytes - address))
		result = CUDA_ERROR_INVALID_VALUE;
	LEAVE(result);
}

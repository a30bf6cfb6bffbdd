/* Green contexts: contexts that share the address space of the primary context, and whose streams use some of
 * its SMs. */
#include "soft/cuda/green.h"

#include <stdlib.h>

#include "soft/cuda/handle.h"

struct green { /* CUgreenCtx */
	struct sm_part part;
	struct context *context;
	uint64_t context_id; /* the context is freed with the primary context */
};

static CUresult green_find(CUgreenCtx handle, struct green **green)
{
	if (handle_kind(handle) != HANDLE_GREEN)
		return CUDA_ERROR_INVALID_CONTEXT;
	*green = (struct green *)handle;
	if (!context_has_id((*green)->context, (*green)->context_id))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return CUDA_SUCCESS;
}

static CUresult green_new(struct context *primary, const struct sm_part *part, struct green **green)
{
	struct green *new = calloc(1, sizeof(*new));
	CUresult result;

	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	new->part = *part;
	result = context_new_beside(primary, primary->flags, new->part.mask, &new->context);
	if (result) {
		free(new);
		return result;
	}
	new->context_id = new->context->id;
	new->context->green = new;
	new->context->null_stream->green = new;
	if (!handle_add(new, HANDLE_GREEN)) {
		context_free(new->context);
		free(new);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*green = new;
	return CUDA_SUCCESS;
}

/* Retains the primary context. */
EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *handle, CUdevResourceDesc desc, CUdevice device,
				 unsigned int flags)
{
	struct sm_part part;
	struct green *green;
	CUcontext primary;
	CUresult result;

	ENTER();
	result = handle && flags == CU_GREEN_CTX_DEFAULT_STREAM ? desc_find(desc, &part)
								: CUDA_ERROR_INVALID_VALUE;
	if (!result && (int)part.gpu != device)
		result = CUDA_ERROR_INVALID_DEVICE;
	if (!result)
		result = cuDevicePrimaryCtxRetain(&primary, device);
	if (result)
		LEAVE(result);
	result = green_new((struct context *)primary, &part, &green);
	if (result)
		cuDevicePrimaryCtxRelease_v2(device);
	else
		*handle = (CUgreenCtx)green;
	LEAVE(result);
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx handle)
{
	struct green *green = (struct green *)handle;
	CUdevice device;

	ENTER();
	if (handle_kind(handle) != HANDLE_GREEN)
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	handle_remove(green);
	device = (CUdevice)green->part.gpu;
	if (context_has_id(green->context, green->context_id))
		context_free(green->context);
	free(green);
	LEAVE(cuDevicePrimaryCtxRelease_v2(device));
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx handle)
{
	struct green *green;

	LEAVE_WITH(context, green_find(handle, &green), (CUcontext)green->context);
}

static CUresult get_resource(const struct context *context, CUdevResource *resource, CUdevResourceType type)
{
	struct sm_part part;

	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	if (context->green)
		part = context->green->part;
	else
		sm_part_whole(context->gpu, &part);
	resource_put(&part, resource);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type)
{
	struct green *green;
	CUresult result;

	ENTER();
	result = green_find(handle, &green);
	LEAVE(result ? result : get_resource(green->context, resource, type));
}

EXPORT CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, CUdevResourceType type)
{
	struct context *context = (struct context *)handle;

	ENTER();
	if (!context_is(context))
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	LEAVE(get_resource(context, resource, type));
}

/* Record all work of its streams: the null stream waits for them, and records. */
static CUresult record(struct context *context, struct event *event)
{
	struct stream *null_stream = context->null_stream;
	CUresult result = capture_forbids_context(context);

	for (struct stream *s = context->streams; s && !result; s = s->next) {
		struct fence fence = { s->channel, s->channel->submitted };

		result = stream_begin(null_stream, CHANNEL_WAIT_WORDS, 0);
		if (result)
			return result;
		channel_wait_for(null_stream->channel, fence);
		stream_end(null_stream);
	}
	if (result)
		return result;
	capture_forget_event(event);
	return op_submit_record(null_stream, event);
}

EXPORT CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event_handle)
{
	struct green *green;
	struct event *event;
	CUresult result;

	ENTER();
	result = green_find(handle, &green);
	if (!result)
		result = event_find(event_handle, &event);
	LEAVE(result ? result : record(green->context, event));
}

EXPORT CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event_handle)
{
	struct green *green;
	CUresult result;

	ENTER();
	result = green_find(handle, &green);
	LEAVE(result ? result : cuCtxWaitEvent((CUcontext)green->context, event_handle));
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *handle, CUgreenCtx green_handle, unsigned int flags,
				       int priority)
{
	struct stream *stream;
	struct green *green;
	CUresult result;

	ENTER();
	result = handle && flags == CU_STREAM_NON_BLOCKING ? green_find(green_handle, &green)
							   : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = stream_new(green->context, flags, priority, NULL, &stream);
	if (!result)
		*handle = (CUstream)stream;
	LEAVE(result);
}

EXPORT CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green)
{
	struct stream *stream;

	LEAVE_WITH(green, stream_find(handle, &stream), (CUgreenCtx)stream->green);
}

EXPORT CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *id)
{
	struct green *green;

	LEAVE_WITH(id, green_find(handle, &green), green->context_id);
}

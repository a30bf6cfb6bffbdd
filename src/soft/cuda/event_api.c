/* Public functions: events. */
#include "soft/cuda/event.h"

static CUresult event_create(CUevent *handle, unsigned flags)
{
	const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
	struct context *context;
	struct event *event;
	CUresult result;

	if (!handle || flags & ~known)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_EVENT_INTERPROCESS)
		return flags & CU_EVENT_DISABLE_TIMING ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	result = context_current(&context);
	if (!result)
		result = event_new(context, flags, &event);
	if (!result)
		*handle = (CUevent)event;
	return result;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	ENTER();
	LEAVE(event_create(event, flags));
}

CUresult event_record(CUevent handle, CUstream stream_handle, unsigned flags)
{
	struct stream *stream;
	struct event *event;
	bool is_mine = false;
	CUresult result;

	if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	result = stream_find(stream_handle, &stream);
	if (!result)
		result = event_find(handle, &event);
	if (result)
		return result;
	if (stream->capture && flags & CU_EVENT_RECORD_EXTERNAL)
		return stream_do(stream, &(struct op){ .kind = OP_RECORD, .event = { event, flags } });
	result = capture_record(stream, event, &is_mine);
	if (result || is_mine)
		return result;
	return stream_do(stream, &(struct op){ .kind = OP_RECORD, .event = { event, flags } });
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	ENTER();
	LEAVE(event_record(event, stream, 0));
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	ENTER();
	LEAVE(event_record(event, stream, flags));
}

static CUresult stream_wait_event(CUstream stream_handle, CUevent handle, unsigned flags)
{
	struct stream *stream;
	struct event *event;
	bool is_mine = false;
	CUresult result;

	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	result = stream_find(stream_handle, &stream);
	if (!result)
		result = event_find(handle, &event);
	if (result)
		return result;
	if (!(stream->capture && flags & CU_EVENT_WAIT_EXTERNAL)) {
		result = capture_wait(stream, event, &is_mine);
		if (result || is_mine)
			return result;
	}
	return stream_do(stream, &(struct op){ .kind = OP_WAIT, .event = { event, flags } });
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	ENTER();
	LEAVE(stream_wait_event(stream, event, flags));
}

/* For queries: an event recorded in a capture cannot be queried. */
static CUresult event_ask(CUevent handle, struct event **event)
{
	CUresult result = event_find(handle, event);

	if (!result)
		result = capture_forbids_event(*event);
	return result ? result : context_check((*event)->context);
}

static CUresult event_query(CUevent handle)
{
	struct event *event;
	CUresult result = event_ask(handle, &event);

	if (!result)
		result = capture_forbids();
	if (result)
		return result;
	return fence_is_done(event->fence) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventQuery(CUevent event)
{
	ENTER();
	LEAVE(event_query(event));
}

static CUresult event_synchronize(CUevent handle)
{
	struct context *context;
	struct event *event;
	uint64_t id;
	CUresult result = event_ask(handle, &event);

	if (!result)
		result = capture_forbids();
	if (result)
		return result;
	context = event->context;
	id = context->id;
	result = fence_wait(event->fence);
	if (!context_has_id(context, id))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	context_print(context);
	return result;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
	ENTER();
	LEAVE(event_synchronize(event));
}

static CUresult event_elapsed(float *ms, CUevent start_handle, CUevent end_handle)
{
	struct event *start, *end;
	CUresult result;

	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	result = event_ask(start_handle, &start);
	if (!result)
		result = event_ask(end_handle, &end);
	if (result)
		return result;
	if (!start->time || !end->time || !start->fence.channel || !end->fence.channel ||
	    start->context->gpu != end->context->gpu)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!fence_is_done(start->fence) || !fence_is_done(end->fence))
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(end->time[1] - start->time[1]) / 1e6);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	ENTER();
	LEAVE(event_elapsed(ms, start, end));
}

EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return cuEventElapsedTime_v2(ms, start, end);
}

EXPORT CUresult cuEventDestroy_v2(CUevent handle)
{
	struct event *event;
	CUresult result;

	ENTER();
	result = event_find(handle, &event);
	if (!result)
		event_destroy(event);
	LEAVE(result);
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
	return cuEventDestroy_v2(event);
}

/* Record all work of the context: its null stream waits for every channel, and records. Channels live as long
 * as the context. */
static CUresult record_all(struct context *context, struct event *event)
{
	struct stream *stream = context->null_stream;
	CUresult result;

	for (struct stream *s = context->streams; s; s = s->next)
		if (s->capture)
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	for (struct channel *channel = context->channels; channel; channel = channel->next) {
		if (channel == stream->channel)
			continue;
		result = stream_begin(stream, CHANNEL_WAIT_WORDS, 0);
		if (result)
			return result;
		channel_wait_for(stream->channel, (struct fence){ channel, channel->submitted });
		stream_end(stream);
	}
	return op_submit_record(stream, event);
}

static struct stream *next_stream(struct context *context, uint64_t after)
{
	struct stream *found = NULL;

	for (struct stream *s = context->streams; s; s = s->next)
		if (s->id > after && !s->is_destroyed && (!found || s->id < found->id))
			found = s;
	return found;
}

/* Iterates by id: streams can be freed while one waits for space in its ring. */
static CUresult wait_all(struct context *context, struct event *event)
{
	struct stream *stream = next_stream(context, 0);
	CUresult result = CUDA_SUCCESS;
	uint64_t id;

	while (stream && !result) {
		id = stream->id;
		result = op_submit_wait(stream, event);
		stream = result ? NULL : next_stream(context, id);
	}
	return result;
}

static CUresult context_event(CUcontext context_handle, CUevent handle, bool is_wait)
{
	struct context *context = (struct context *)context_handle;
	struct event *event;
	CUresult result = event_find(handle, &event);

	if (!result && !context)
		result = context_current(&context);
	if (!result && !context_is(context))
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (!result)
		result = context_check(context);
	if (!result)
		result = capture_forbids_event(event);
	if (result)
		return result;
	return is_wait ? wait_all(context, event) : record_all(context, event);
}

EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
	ENTER();
	LEAVE(context_event(context, event, false));
}

EXPORT CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
	ENTER();
	LEAVE(context_event(context, event, true));
}

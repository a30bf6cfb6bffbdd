/* Streams: each has a channel. The legacy default stream waits for all blocking streams of its context, and
 * they wait for it. */
#include <stdlib.h>
#include <unistd.h>

#include "soft/cuda/core.h"
#include "soft/cuda/handle.h"

static uint64_t last_id;

/* ---- creation and destruction */

CUresult stream_new(struct context *context, unsigned flags, int priority, const uint64_t *sms,
		    struct stream **made)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	CUresult result;

	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (priority > 0)
		priority = 0;
	if (priority < STREAM_PRIORITY_GREATEST)
		priority = STREAM_PRIORITY_GREATEST;
	*stream = (struct stream){ .context = context,
				   .flags = flags,
				   .priority = priority,
				   .id = ++last_id,
				   .sms = sms ? sms : context->sms,
				   .green = context->green,
				   .sync_policy = CU_SYNC_POLICY_AUTO };
	result = channel_take(context, stream->sms, &stream->channel);
	if (!result && !handle_add(stream, HANDLE_STREAM)) {
		channel_give_back(stream->channel);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result) {
		free(stream);
		return result;
	}
	stream->next = context->streams;
	context->streams = stream;
	*made = stream;
	return CUDA_SUCCESS;
}

void stream_free(struct stream *stream)
{
	struct stream **at = &stream->context->streams;

	capture_forget_stream(stream);
	while (*at && *at != stream)
		at = &(*at)->next;
	if (*at)
		*at = stream->next;
	handle_remove(stream);
	channel_give_back(stream->channel);
	free(stream);
}

static bool is_idle(const struct stream *stream)
{
	return fence_is_done((struct fence){ stream->channel, stream->channel->submitted });
}

static void free_destroyed(struct context *context)
{
	for (struct stream *stream = context->streams, *next; stream; stream = next) {
		next = stream->next;
		if (stream->is_destroyed && is_idle(stream))
			stream_free(stream);
	}
}

void stream_destroy(struct stream *stream)
{
	struct context *context = stream->context;

	capture_forget_stream(stream);
	handle_remove(stream);
	stream->is_destroyed = true;
	free_destroyed(context);
}

/* ---- order */

static bool is_blocking(const struct stream *stream)
{
	return !stream->is_null && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* Whether `other` has work that was not yet waited for; updates *waited. */
static bool is_behind(const struct channel *other, uint64_t *waited)
{
	if (other->submitted == *waited)
		return false;
	if (fence_is_done((struct fence){ (struct channel *)(uintptr_t)other, other->submitted })) {
		*waited = other->submitted;
		return false;
	}
	return true;
}

static uint32_t count_waits(struct stream *stream)
{
	struct stream *null_stream = stream->context->null_stream;
	uint32_t count = 0;

	if (is_blocking(stream))
		return null_stream && is_behind(null_stream->channel, &stream->waited_null);
	if (stream->is_null)
		for (struct stream *s = stream->context->streams; s; s = s->next)
			count += is_blocking(s) && is_behind(s->channel, &s->null_waited);
	return count;
}

bool stream_is_idle(struct stream *stream)
{
	return !count_waits(stream) && is_idle(stream);
}

static void put_wait(struct stream *stream, struct channel *other, uint64_t *waited)
{
	if (!is_behind(other, waited))
		return;
	channel_wait_for(stream->channel, (struct fence){ other, other->submitted });
	*waited = other->submitted;
}

static void put_waits(struct stream *stream)
{
	struct stream *null_stream = stream->context->null_stream;

	if (is_blocking(stream) && null_stream)
		put_wait(stream, null_stream->channel, &stream->waited_null);
	if (stream->is_null)
		for (struct stream *s = stream->context->streams; s; s = s->next)
			if (is_blocking(s))
				put_wait(stream, s->channel, &s->null_waited);
}

CUresult stream_begin(struct stream *stream, uint32_t words, uint32_t bytes)
{
	uint32_t waits;
	CUresult result;

	do { /* other threads can submit while it waits for space */
		waits = count_waits(stream);
		result = channel_begin(stream->channel, words + waits * CHANNEL_WAIT_WORDS, bytes);
		if (result)
			return result;
	} while (count_waits(stream) > waits);
	put_waits(stream);
	return CUDA_SUCCESS;
}

struct fence stream_end(struct stream *stream)
{
	return channel_end(stream->channel);
}

struct fence stream_fence(struct stream *stream)
{
	if (count_waits(stream) && !stream_begin(stream, 0, 0))
		return stream_end(stream);
	return (struct fence){ stream->channel, stream->channel->submitted };
}

CUresult stream_synchronize(struct stream *stream)
{
	struct context *context = stream->context;
	uint64_t id = context->id;
	CUresult result = fence_wait(stream_fence(stream));

	if (!context_has_id(context, id))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	context_print(context);
	if (!result)
		memory_settle(context);
	return result;
}

/* The end of work: of what runs on units that were given back, of a stream, and of all streams. */
#include <stdlib.h>

#include "coro/coro.h"

/* ---- what still runs */

static bool event_is_over(CUevent event)
{
	return !event || real.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}

/* A stream that is captured cannot be asked: its event is from before the capture. The legacy stream has none, and cannot be
 * asked while a blocking stream is captured. */
static bool base_is_idle(const struct vstream *vstream, const struct place *place)
{
	bool is_idle;

	captures_lock();
	if (vstream_is_capturing(vstream))
		is_idle = !vstream->is_legacy && event_is_over(place->last);
	else
		is_idle = real.cuStreamQuery(vstream->base) != CUDA_ERROR_NOT_READY;
	captures_unlock();
	return is_idle;
}

bool place_is_idle(struct vstream *vstream, int at)
{
	const struct place *place = vstream_place(vstream, at);

	if (!place->stream)
		return true;
	if (at != vstream->tail_at || (at < 0 && vstream->is_per_thread))
		return event_is_over(place->last);
	return at < 0 ? base_is_idle(vstream, place)
		      : real.cuStreamQuery(place->stream) != CUDA_ERROR_NOT_READY;
}

/* A place that the stream has left and that has no work is forgotten until it is used again. */
static bool place_is_over(struct vstream *vstream, int at)
{
	struct place *place = vstream_place(vstream, at);

	if (place->calls || !place_is_idle(vstream, at))
		return false;
	if (at != vstream->tail_at)
		place->is_used = false;
	return true;
}

static bool vstream_is_over(struct vstream *vstream, uint64_t units)
{
	if (vstream_is_waiting(vstream))
		return true;
	for (int at = -1; at < (int)vstream->context->partition_count; at++) {
		uint64_t here = at < 0 ? CORO_UNITS_ALL : vstream->context->partitions[at].units;

		if (vstream_place(vstream, at)->is_used && (here & ~units) && !place_is_over(vstream, at))
			return false;
	}
	return true;
}

bool fence_is_over(struct context *context, uint64_t units)
{
	const struct orphan *orphan;
	struct inside inside;
	struct vstream *v;
	bool is_over;

	if (!context->handle)
		return !context->endings;
	inside = go_inside(context);
	pthread_mutex_lock(&context->lock);
	is_over = !context->endings;
	LIST_FOREACH(v, &context->streams, in_context)
		is_over = is_over && vstream_is_over(v, units);
	LIST_FOREACH(orphan, &context->orphans, next)
		is_over = is_over && (!(orphan->units & ~units) || event_is_over(orphan->mark->event));
	pthread_mutex_unlock(&context->lock);
	come_out(&inside);
	return is_over;
}

/* ---- marks to wait for, without a lock */

struct waits {
	struct mark **marks;
	size_t count;
};

static void add_mark(struct waits *waits, struct mark *mark)
{
	struct mark **more = mark ? realloc(waits->marks, (waits->count + 1) * sizeof(void *)) : NULL;

	if (more) {
		waits->marks = more;
		waits->marks[waits->count++] = mark;
	} else if (mark) {
		real.cuEventSynchronize(mark->event); /* no memory: late is better than never */
		mark_put(mark);
	}
}

static void add_orphan(struct waits *waits, struct orphan *orphan)
{
	orphan->mark->uses++;
	add_mark(waits, orphan->mark);
}

static void add_shadow(struct waits *waits, struct vstream *vstream, int at)
{
	if (at >= 0 && vstream_place(vstream, at)->is_used && !place_is_idle(vstream, at))
		add_mark(waits, mark_record(vstream_place(vstream, at)->stream));
}

/* Asks for all of them, or waits for all, until one fails. */
static CUresult finish(struct waits *waits, CUresult (*ask)(CUevent event))
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < waits->count; i++) {
		if (!result)
			result = ask(waits->marks[i]->event);
		mark_put(waits->marks[i]);
	}
	free(waits->marks);
	return result;
}

/* All work on shadows, and what remains of destroyed streams. */
static struct waits waits_of(struct context *context)
{
	struct waits waits = { 0 };
	struct orphan *orphan;
	struct vstream *v;

	pthread_mutex_lock(&context->lock);
	LIST_FOREACH(v, &context->streams, in_context)
		for (int at = 0; at < (int)context->partition_count; at++)
			add_shadow(&waits, v, at);
	LIST_FOREACH(orphan, &context->orphans, next)
		add_orphan(&waits, orphan);
	pthread_mutex_unlock(&context->lock);
	return waits;
}

static void finish_context(struct context *context)
{
	struct inside inside = go_inside(context);
	struct waits waits = waits_of(context);

	finish(&waits, real.cuEventSynchronize);
	come_out(&inside);
}

/* What frees memory waits for all work that might use it. The driver waits for its own streams only. */
void streams_finish(void)
{
	if (!lease_is_there())
		return;
	for (struct context *context = context_after(NULL); context; context = context_after(context))
		if (context->handle)
			finish_context(context);
}

/* ---- one context */

static struct context *find_context(CUcontext handle)
{
	if (!lease_is_there())
		return NULL;
	return handle ? context_find(handle) : context_current();
}

/* The driver waits for the context's own streams, and not for graphs on streams of green contexts (docs/driver.md). */
static CUresult synchronize(CUcontext handle, CUresult result)
{
	struct context *context = result ? NULL : find_context(handle);
	struct inside inside;
	struct waits waits;

	if (!context || !context->handle)
		return result;
	inside = go_inside(context);
	waits = waits_of(context);
	result = finish(&waits, real.cuEventSynchronize);
	come_out(&inside);
	if (!result)
		request_end();
	return result;
}

EXPORT CUresult cuCtxSynchronize(void)
{
	CUresult result;

	sync_begin();
	result = real.cuCtxSynchronize();
	sync_end();
	return synchronize(NULL, result);
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext handle)
{
	CUresult result;

	sync_begin();
	result = real.cuCtxSynchronize_v2(handle);
	sync_end();
	return synchronize(handle, result);
}

/* The event is behind the context's own work. It is recorded again behind the work on shadows as well. */
static CUresult record_again(struct context *context, CUevent event)
{
	struct inside inside = go_inside(context);
	struct waits waits = waits_of(context);
	CUstream stream = NULL;
	CUresult result = waits.count ? real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) : CUDA_SUCCESS;

	if (!result && stream)
		result = real.cuStreamWaitEvent(stream, event, 0);
	for (size_t i = 0; i < waits.count && !result; i++)
		result = real.cuStreamWaitEvent(stream, waits.marks[i]->event, 0);
	if (!result && stream)
		result = real.cuEventRecord(event, stream);
	if (stream)
		real.cuStreamDestroy_v2(stream);
	finish(&waits, real.cuEventQuery);
	come_out(&inside);
	return result;
}

EXPORT CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
	struct context *context = find_context(handle);
	CUresult result;

	sync_begin();
	result = real.cuCtxRecordEvent(handle, event);
	sync_end();
	return result || !context ? result : record_again(context, event);
}

/* A stream that goes to another place from now on takes the wait of its base along. */
static void await_everywhere(struct context *context, CUevent event)
{
	struct inside inside = go_inside(context);
	struct vstream *v;

	pthread_mutex_lock(&context->lock);
	for (unsigned i = 0; i < context->partition_count; i++)
		real.cuGreenCtxWaitEvent(context->partitions[i].green, event);
	LIST_FOREACH(v, &context->streams, in_context)
		vstream_place(v, v->tail_at)->is_used = true;
	context->is_awaiting = true;
	pthread_mutex_unlock(&context->lock);
	come_out(&inside);
}

EXPORT CUresult cuCtxWaitEvent(CUcontext handle, CUevent event)
{
	struct context *context = find_context(handle);
	CUresult result;

	sync_begin();
	result = real.cuCtxWaitEvent(handle, event);
	if (!result && context)
		await_everywhere(context, event);
	sync_end();
	return result;
}

/* ---- one stream */

/* What the stream's next work will wait for, where the driver does not know it: nothing is placed on the stream now. */
static void add_awaited(struct waits *waits, struct vstream *vstream)
{
	struct context *context = vstream->context;
	struct vstream *legacy = atomic_load_explicit(&context->legacy, memory_order_acquire), *v;
	struct orphan *orphan;

	if (!vstream->is_legacy) {
		if (legacy && legacy->work != vstream->seen_legacy)
			add_shadow(waits, legacy, legacy->tail_at);
		return;
	}
	LIST_FOREACH(v, &context->streams, in_context)
		if (v->is_blocking && v != vstream && v->work != v->seen_by_legacy)
			add_shadow(waits, v, v->tail_at);
	LIST_FOREACH(orphan, &context->orphans, next)
		if (orphan->is_for_legacy && !orphan->is_base)
			add_orphan(waits, orphan);
}

struct asked {
	CUresult (*of_stream)(CUstream stream);
	CUresult (*of_event)(CUevent event);
};

static CUresult ask(CUstream stream, const struct asked *asked)
{
	struct vstream *vstream = stream_find(stream, false);
	struct waits waits = { 0 };
	struct inside inside;
	CUstream tail;
	CUresult result;

	if (!vstream || vstream_is_capturing(vstream))
		return asked->of_stream(stream_handle(stream));
	pthread_mutex_lock(&vstream->context->lock);
	tail = vstream_place(vstream, vstream->tail_at)->stream;
	if (vstream->is_blocking) {
		inside = go_inside(vstream->context);
		add_awaited(&waits, vstream);
		come_out(&inside);
	}
	pthread_mutex_unlock(&vstream->context->lock);
	result = asked->of_stream(tail);
	if (!result && vstream->is_blocking && tail != vstream->base)
		result = asked->of_stream(vstream->base);
	if (!result)
		return finish(&waits, asked->of_event);
	finish(&waits, real.cuEventQuery);
	return result;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	struct asked asked = { real.cuStreamSynchronize, real.cuEventSynchronize };
	CUresult result = ask(stream, &asked);

	if (!result)
		request_end();
	return result;
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
	struct asked asked = { real.cuStreamQuery, real.cuEventQuery };

	return ask(stream, &asked);
}

/* The order of work on different places. A place waits for another one by an event. */
#include "coro/coro.h"

struct inside go_inside(const struct context *context)
{
	struct inside inside = { .mode = CU_STREAM_CAPTURE_MODE_RELAXED };

	real.cuThreadExchangeStreamCaptureMode(&inside.mode);
	inside.is_pushed = !real.cuCtxPushCurrent_v2(context->handle);
	return inside;
}

void come_out(struct inside *inside)
{
	CUcontext context;

	if (inside->is_pushed)
		real.cuCtxPopCurrent_v2(&context);
	real.cuThreadExchangeStreamCaptureMode(&inside->mode);
}

/* A record on a base that is captured would become part of the graph. The event that was recorded when the capture began
 * stays. */
static bool record_base(const struct vstream *vstream, CUevent event)
{
	bool is_done;

	captures_lock();
	is_done = vstream_is_capturing(vstream) || !real.cuEventRecord(event, vstream->base);
	captures_unlock();
	return is_done;
}

/* A base that is a thread's default stream is recorded by that thread only: elsewhere its handle means another stream. */
bool place_record(struct vstream *vstream, int at)
{
	struct place *place = vstream_place(vstream, at);

	if (!place->last && real.cuEventCreate(&place->last, CU_EVENT_DISABLE_TIMING)) {
		place->last = NULL;
		return false;
	}
	return at < 0 ? record_base(vstream, place->last) : !real.cuEventRecord(place->last, place->stream);
}

static bool wait_for(CUstream to, const struct place *place)
{
	return !place->last || !real.cuStreamWaitEvent(to, place->last, 0);
}

static CUstream shadow(struct vstream *vstream, int at)
{
	struct context *context = vstream->context;
	struct place *place = vstream_place(vstream, at);
	CUstream made = NULL;

	if (place->stream || real.cuGreenCtxStreamCreate(&made, context->partitions[at].green,
							 CU_STREAM_NON_BLOCKING, vstream->priority))
		return place->stream;
	pthread_mutex_lock(&context->lock);
	place->stream = made;
	pthread_mutex_unlock(&context->lock);
	if (vstream->has_attributes)
		vstream_copy_attributes(vstream, at);
	return made;
}

bool vstream_hop(struct vstream *vstream, int at)
{
	struct context *context = vstream->context;
	struct place *from = vstream_place(vstream, vstream->tail_at);
	struct inside inside = go_inside(context);
	CUstream to = shadow(vstream, at);
	bool is_done = to &&
		       (!from->is_used || (place_record(vstream, vstream->tail_at) && wait_for(to, from)));

	come_out(&inside);
	if (!is_done)
		return false;
	if (from->is_used && lease_page())
		atomic_fetch_add_explicit(&lease_page()->moves, 1, memory_order_relaxed);
	pthread_mutex_lock(&context->lock);
	vstream->tail_at = at;
	pthread_mutex_unlock(&context->lock);
	return true;
}

void vstream_join(struct vstream *vstream, int at)
{
	struct inside inside = go_inside(vstream->context);

	if (place_record(vstream, at))
		wait_for(vstream_place(vstream, vstream->tail_at)->stream, vstream_place(vstream, at));
	come_out(&inside);
}

/* ---- the legacy default stream and blocking streams */

/* The driver keeps the order between bases. */
static bool driver_orders(const struct vstream *one, const struct vstream *other)
{
	return one->tail_at < 0 && other->tail_at < 0;
}

/* The legacy stream's tail waits for a blocking stream. */
static bool wait_for_blocking(struct vstream *legacy, struct vstream *blocking)
{
	CUstream to = vstream_place(legacy, legacy->tail_at)->stream;

	if (driver_orders(legacy, blocking))
		return true;
	if ((blocking->tail_at >= 0 || !blocking->is_per_thread) &&
	    !place_record(blocking, blocking->tail_at))
		return false;
	return wait_for(to, vstream_place(blocking, blocking->tail_at));
}

static void wait_for_orphans(struct vstream *legacy)
{
	CUstream to = vstream_place(legacy, legacy->tail_at)->stream;
	struct orphan *orphan;

	LIST_FOREACH(orphan, &legacy->context->orphans, next)
		if (orphan->is_for_legacy && ((orphan->is_base && legacy->tail_at < 0) ||
					      !real.cuStreamWaitEvent(to, orphan->mark->event, 0)))
			orphan->is_for_legacy = false;
}

/* The work of a legacy default stream waits for the work of all blocking streams so far. */
static void order_legacy(struct vstream *legacy)
{
	struct context *context = legacy->context;
	struct vstream *v;

	LIST_FOREACH(v, &context->streams, in_context)
		if (v != legacy && v->is_blocking && v->work != v->seen_by_legacy &&
		    wait_for_blocking(legacy, v))
			v->seen_by_legacy = v->work;
	wait_for_orphans(legacy);
}

/* And the work of a blocking stream for that of the legacy default stream. An event that is recorded on the legacy stream now
 * would wait for the work of all blocking streams, and would fail if one is captured. So if the legacy stream's work is on its
 * base, the event is recorded on this stream's base: the driver puts it behind the legacy stream's work, and nothing else. */
static bool wait_for_legacy(struct vstream *vstream, struct vstream *legacy)
{
	CUstream to = vstream_place(vstream, vstream->tail_at)->stream;

	if (driver_orders(vstream, legacy))
		return true;
	if (legacy->tail_at < 0)
		return place_record(vstream, -1) && wait_for(to, vstream_place(vstream, -1));
	return place_record(legacy, legacy->tail_at) && wait_for(to, vstream_place(legacy, legacy->tail_at));
}

static bool is_behind(const struct vstream *legacy)
{
	const struct context *context = legacy->context;
	const struct orphan *orphan;
	const struct vstream *v;

	LIST_FOREACH(orphan, &context->orphans, next)
		if (orphan->is_for_legacy)
			return true;
	if (context->blocking_count)
		LIST_FOREACH(v, &context->streams, in_context)
			if (v->is_blocking && v != legacy && v->work != v->seen_by_legacy)
				return true;
	return false;
}

static bool needs_order(const struct vstream *vstream, const struct vstream *legacy)
{
	return vstream->is_legacy ? is_behind(vstream) : legacy && legacy->work != vstream->seen_legacy;
}

void vstream_order(struct vstream *vstream)
{
	struct context *context = vstream->context;
	struct vstream *legacy;
	struct inside inside;

	if (!vstream->is_blocking)
		return;
	pthread_mutex_lock(&context->lock);
	legacy = atomic_load_explicit(&context->legacy, memory_order_acquire);
	if (needs_order(vstream, legacy)) {
		inside = go_inside(context);
		if (vstream->is_legacy)
			order_legacy(vstream);
		else if (wait_for_legacy(vstream, legacy))
			vstream->seen_legacy = legacy->work;
		come_out(&inside);
	}
	pthread_mutex_unlock(&context->lock);
}

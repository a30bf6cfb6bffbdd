/* Virtual streams: found by the program's handle; and what remains of destroyed ones. */
#include <stdlib.h>

#include "coro/coro.h"

enum { BUCKETS = 1024 };

_Thread_local bool default_is_per_thread;

/* Streams that the program has made. A stream that was not made here (in a context of its own, in a green context of the
 * program's) is not virtual. */
static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, vstream) buckets[BUCKETS];
	_Atomic uint64_t removals;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The default streams of a thread, one for each context. */
struct own_default {
	struct own_default *next;
	struct vstream *vstream;
};
static _Thread_local struct own_default *own_defaults;
static pthread_key_t thread_end;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;

static size_t bucket_of(CUstream handle)
{
	return ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 54;
}

/* ---- marks and orphans */

struct mark *mark_record(CUstream stream)
{
	struct mark *mark = calloc(1, sizeof(*mark));

	if (!mark)
		return NULL;
	mark->uses = 1;
	if (real.cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING)) {
		free(mark);
		return NULL;
	}
	if (real.cuEventRecord(mark->event, stream)) {
		mark_put(mark);
		return NULL;
	}
	return mark;
}

void mark_put(struct mark *mark)
{
	if (--mark->uses)
		return;
	real.cuEventDestroy_v2(mark->event);
	free(mark);
}

/* Others cannot record an event on a thread's default stream, nor on a stream that is captured: the event that was recorded
 * behind its work is used. */
static struct mark *mark_place(struct vstream *vstream, int at)
{
	struct place *place = vstream_place(vstream, at);
	struct mark *mark;

	if (at >= 0 || !(vstream->is_per_thread || vstream_is_capturing(vstream)))
		return mark_record(place->stream);
	mark = place->last ? calloc(1, sizeof(*mark)) : NULL;
	if (mark) {
		*mark = (struct mark){ .uses = 1, .event = place->last };
		place->last = NULL;
	}
	return mark;
}

static void orphan_free(struct orphan *orphan)
{
	LIST_REMOVE(orphan, next);
	mark_put(orphan->mark);
	free(orphan);
}

static void free_idle_orphans(struct context *context)
{
	struct orphan *orphan, *next;

	LIST_FOREACH_SAFE(orphan, &context->orphans, next, next)
		if (real.cuEventQuery(orphan->mark->event) != CUDA_ERROR_NOT_READY)
			orphan_free(orphan);
}

static void add_orphan(struct vstream *vstream, int at)
{
	struct context *context = vstream->context;
	struct orphan *orphan = calloc(1, sizeof(*orphan));

	if (!orphan)
		return;
	orphan->mark = mark_place(vstream, at);
	if (!orphan->mark) {
		free(orphan);
		return;
	}
	orphan->is_base = at < 0;
	orphan->units = at < 0 ? CORO_UNITS_ALL : context->partitions[at].units;
	orphan->is_for_legacy = vstream->is_blocking && vstream->work != vstream->seen_by_legacy;
	LIST_INSERT_HEAD(&context->orphans, orphan, next);
}

/* ---- virtual streams */

static struct vstream *vstream_new(struct context *context, CUstream base, bool is_blocking, int priority)
{
	struct vstream *vstream = calloc(1, sizeof(*vstream));

	if (!vstream)
		return NULL;
	vstream->context = context;
	vstream->base = base;
	vstream->tail_at = vstream->at = -1;
	vstream_place(vstream, -1)->stream = base;
	vstream->generation = UINT64_MAX;
	vstream->is_blocking = is_blocking;
	vstream->is_legacy = base == CU_STREAM_LEGACY;
	vstream->is_per_thread = base == CU_STREAM_PER_THREAD;
	vstream->priority = priority;
	TAILQ_INIT(&vstream->waits);
	pthread_mutex_init(&vstream->lock, NULL);
	pthread_mutex_lock(&context->lock);
	LIST_INSERT_HEAD(&context->streams, vstream, in_context);
	vstream_place(vstream, -1)->is_used = context->is_awaiting;
	context->blocking_count += is_blocking && !vstream->is_legacy;
	pthread_mutex_unlock(&context->lock);
	return vstream;
}

/* The driver lets work end that is on a stream that is destroyed. */
static void drop_places(struct vstream *vstream)
{
	vstream_forget_waits(vstream);
	for (int at = -1; at < PARTITIONS_MOST; at++) {
		struct place *place = vstream_place(vstream, at);

		if (at >= 0 && place->stream)
			real.cuStreamDestroy_v2(place->stream);
		if (place->last)
			real.cuEventDestroy_v2(place->last);
		*place = (struct place){ .stream = at < 0 ? vstream->base : NULL };
	}
	vstream->tail_at = vstream->at = -1;
	vstream->generation = UINT64_MAX;
}

/* With the context's lock. */
static void vstream_free(struct vstream *vstream)
{
	struct context *context = vstream->context;

	LIST_REMOVE(vstream, in_context);
	context->blocking_count -= vstream->is_blocking && !vstream->is_legacy;
	drop_places(vstream);
	pthread_mutex_destroy(&vstream->lock);
	free(vstream);
}

/* If the driver does not destroy the stream, its next work is placed on the base, behind the work so far. This comes after the
 * orphans were made, so that the wait does not count as work of the base. */
static void join_base(struct vstream *vstream)
{
	int tail_at = vstream->tail_at;

	if (tail_at < 0 || vstream->is_per_thread || vstream_is_capturing(vstream))
		return;
	vstream->tail_at = -1;
	vstream_join(vstream, tail_at);
}

/* Its work goes on: the fence waits for it, and the legacy default stream does. */
static void vstream_end(struct vstream *vstream)
{
	struct context *context = vstream->context;
	struct inside inside = go_inside(context);

	pthread_mutex_lock(&context->lock);
	free_idle_orphans(context);
	for (int at = -1; at < PARTITIONS_MOST; at++)
		if (vstream_place(vstream, at)->is_used && !place_is_idle(vstream, at))
			add_orphan(vstream, at);
	join_base(vstream);
	vstream_free(vstream);
	pthread_mutex_unlock(&context->lock);
	come_out(&inside);
}

/* ---- default streams */

static void free_own_defaults(void *first)
{
	for (struct own_default *at = first, *next; at; at = next) {
		next = at->next;
		if (lease_is_there())
			vstream_end(at->vstream);
		free(at);
	}
	own_defaults = NULL;
}

static void make_thread_end(void)
{
	pthread_key_create(&thread_end, free_own_defaults);
}

static struct vstream *own_default(struct context *context)
{
	struct own_default *at;

	for (at = own_defaults; at; at = at->next)
		if (at->vstream->context == context)
			return at->vstream;
	at = calloc(1, sizeof(*at));
	if (!at)
		return NULL;
	at->vstream = vstream_new(context, CU_STREAM_PER_THREAD, true, 0);
	if (!at->vstream) {
		free(at);
		return NULL;
	}
	at->next = own_defaults;
	own_defaults = at;
	pthread_once(&thread_end_once, make_thread_end);
	pthread_setspecific(thread_end, own_defaults);
	return at->vstream;
}

static struct vstream *legacy_default(struct context *context)
{
	struct vstream *legacy = atomic_load_explicit(&context->legacy, memory_order_acquire), *none = NULL;

	if (legacy)
		return legacy;
	legacy = vstream_new(context, CU_STREAM_LEGACY, true, 0);
	if (legacy && !atomic_compare_exchange_strong(&context->legacy, &none, legacy)) {
		pthread_mutex_lock(&context->lock);
		vstream_free(legacy); /* another thread has made it */
		pthread_mutex_unlock(&context->lock);
		legacy = none;
	}
	return legacy;
}

/* ---- handles */

/* A thread mostly uses one stream for a while. */
static struct vstream *find_made(CUstream handle)
{
	static _Thread_local struct {
		CUstream handle;
		struct vstream *vstream;
		uint64_t removals;
	} last;
	uint64_t removals = atomic_load_explicit(&table.removals, memory_order_acquire);
	struct vstream *vstream;

	if (last.handle == handle && last.removals == removals)
		return last.vstream;
	pthread_mutex_lock(&table.lock);
	LIST_FOREACH(vstream, &table.buckets[bucket_of(handle)], in_bucket)
		if (vstream->base == handle)
			break;
	pthread_mutex_unlock(&table.lock);
	if (vstream) {
		last.handle = handle;
		last.vstream = vstream;
		last.removals = removals;
	}
	return vstream;
}

static bool is_default(CUstream handle)
{
	return !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

struct vstream *stream_find(CUstream handle, bool is_per_thread)
{
	struct context *context;

	if (!lease_is_there())
		return NULL;
	if (!is_default(handle))
		return find_made(handle);
	context = context_current();
	if (!context)
		return NULL;
	is_per_thread |= default_is_per_thread;
	return handle == CU_STREAM_PER_THREAD || (!handle && is_per_thread) ? own_default(context)
									    : legacy_default(context);
}

void vstream_add(CUstream handle, unsigned flags, int priority)
{
	struct context *context = lease_is_there() ? context_current() : NULL;
	struct vstream *vstream =
		context ? vstream_new(context, handle, !(flags & CU_STREAM_NON_BLOCKING), priority) : NULL;

	if (!vstream) {
		lease_fix(); /* it stays the driver's */
		return;
	}
	pthread_mutex_lock(&table.lock);
	LIST_INSERT_HEAD(&table.buckets[bucket_of(handle)], vstream, in_bucket);
	pthread_mutex_unlock(&table.lock);
}

static void take_out(struct vstream *vstream)
{
	pthread_mutex_lock(&table.lock);
	LIST_REMOVE(vstream, in_bucket);
	atomic_fetch_add_explicit(&table.removals, 1, memory_order_release);
	pthread_mutex_unlock(&table.lock);
}

/* In a host function the driver refuses all calls. */
static bool tail_can_be_recorded(struct vstream *vstream)
{
	struct inside inside = go_inside(vstream->context);
	bool is_done;

	pthread_mutex_lock(&vstream->lock);
	is_done = vstream->tail_at < 0 || place_record(vstream, vstream->tail_at);
	pthread_mutex_unlock(&vstream->lock);
	come_out(&inside);
	return is_done;
}

/* Default streams are not destroyed: the driver refuses that. */
bool vstream_remove(CUstream handle)
{
	struct vstream *vstream = is_default(handle) ? NULL : stream_find(handle, false);

	if (!vstream || !tail_can_be_recorded(vstream))
		return false;
	take_out(vstream);
	vstream_end(vstream);
	return true;
}

/* The default streams of threads stay for their threads. */
void vstreams_forget(struct context *context)
{
	struct orphan *orphan, *next_orphan;
	struct vstream *v, *next;

	LIST_FOREACH_SAFE(v, &context->streams, in_context, next) {
		if (v->is_legacy || v->is_per_thread) {
			drop_places(v);
			continue;
		}
		take_out(v);
		vstream_free(v);
	}
	LIST_FOREACH_SAFE(orphan, &context->orphans, next, next_orphan)
		orphan_free(orphan);
}

/* Streams that wait for something outside the GPU: a value in memory, a semaphore, a host function. Such a stream uses no SMs
 * for an unlimited time, so the fence does not wait for it. Work behind the wait cannot be moved: it runs on the units on which
 * it was placed, also if they are given back meanwhile.
 *
 * An event is recorded before each wait and one behind it. A virtual stream is one sequence of work over all its places. So
 * while the first event is complete and the second one is not, none of its work runs. That does not hold if another thread
 * places work between the two: then the wait is not noted, and counts as work. */
#include <stdlib.h>

#include "coro/coro.h"

enum { WAITS_MOST = 64 }; /* of a virtual stream; later ones count as work */

struct wait {
	TAILQ_ENTRY(wait) next;	     /* vstream::waits, in the order of the stream */
	struct mark *before, *after; /* NULL: not recorded */
	uint64_t work;		     /* of the virtual stream, before the call */
	bool is_outside;	     /* not for an event */
};

/* Noted waits for something outside, of all streams. */
static _Atomic unsigned outside_count;

static void wait_free(struct wait *wait)
{
	if (wait->before)
		mark_put(wait->before);
	if (wait->after)
		mark_put(wait->after);
	free(wait);
}

static void wait_remove(struct vstream *vstream, struct wait *wait)
{
	TAILQ_REMOVE(&vstream->waits, wait, next);
	vstream->wait_count--;
	if (wait->is_outside)
		atomic_fetch_sub(&outside_count, 1);
	wait_free(wait);
}

static bool has_come(const struct mark *mark)
{
	return real.cuEventQuery(mark->event) != CUDA_ERROR_NOT_READY;
}

/* With the context's lock, inside it. */
static void remove_ended(struct vstream *vstream)
{
	struct wait *first;

	while ((first = TAILQ_FIRST(&vstream->waits)) && has_come(first->after))
		wait_remove(vstream, first);
}

void vstream_forget_waits(struct vstream *vstream)
{
	struct wait *first;

	while ((first = TAILQ_FIRST(&vstream->waits)))
		wait_remove(vstream, first);
}

static unsigned calls_of(struct vstream *vstream)
{
	unsigned calls = 0;

	for (int at = -1; at < (int)vstream->context->partition_count; at++)
		calls += vstream_place(vstream, at)->calls;
	return calls;
}

bool vstream_is_waiting(struct vstream *vstream)
{
	const struct wait *first;

	remove_ended(vstream);
	first = TAILQ_FIRST(&vstream->waits);
	return first && !calls_of(vstream) && has_come(first->before);
}

/* A record on a stream that is captured would become part of the graph. */
static struct mark *mark_wait(const struct taken *taken)
{
	struct mark *mark = NULL;

	captures_lock();
	if (taken->at >= 0 || !vstream_is_capturing(taken->vstream))
		mark = mark_record(taken->stream);
	captures_unlock();
	return mark;
}

/* An event on the legacy default stream would wait for blocking streams. */
static bool can_note(const struct taken *taken)
{
	return taken->vstream && !taken->is_captured && !(taken->vstream->is_legacy && taken->at < 0);
}

static struct wait *begin(const struct taken *taken, bool is_outside)
{
	struct vstream *vstream = taken->vstream;
	struct wait *wait = calloc(1, sizeof(*wait));
	bool is_noted = false;
	struct inside inside;

	if (!wait)
		return NULL;
	inside = go_inside(vstream->context);
	pthread_mutex_lock(&vstream->context->lock);
	remove_ended(vstream);
	if (vstream->wait_count < WAITS_MOST && calls_of(vstream) == 1) {
		*wait = (struct wait){ .work = vstream->work, .is_outside = is_outside };
		is_noted = true;
	}
	pthread_mutex_unlock(&vstream->context->lock);
	if (is_noted)
		wait->before = mark_wait(taken);
	come_out(&inside);
	if (wait->before)
		return wait;
	free(wait);
	return NULL;
}

struct wait *wait_begin(const struct taken *taken)
{
	return can_note(taken) ? begin(taken, true) : NULL;
}

/* An event can be incomplete for long only behind a wait for something outside. */
struct wait *wait_begin_event(const struct taken *taken)
{
	struct context *context;
	struct inside inside;
	struct vstream *v;

	if (!atomic_load_explicit(&outside_count, memory_order_relaxed) || !can_note(taken))
		return NULL;
	context = taken->vstream->context;
	inside = go_inside(context);
	pthread_mutex_lock(&context->lock);
	LIST_FOREACH(v, &context->streams, in_context)
		remove_ended(v);
	pthread_mutex_unlock(&context->lock);
	come_out(&inside);
	return atomic_load(&outside_count) ? begin(taken, false) : NULL;
}

void wait_end(const struct taken *taken, struct wait *wait, CUresult result)
{
	struct vstream *vstream = taken->vstream;
	struct inside inside;

	if (!wait)
		return;
	inside = go_inside(vstream->context);
	wait->after = result ? NULL : mark_wait(taken);
	pthread_mutex_lock(&vstream->context->lock);
	if (wait->after && vstream->work == wait->work && vstream->tail_at == taken->at &&
	    calls_of(vstream) == 1) {
		TAILQ_INSERT_TAIL(&vstream->waits, wait, next);
		vstream->wait_count++;
		if (wait->is_outside)
			atomic_fetch_add(&outside_count, 1);
		wait = NULL;
	}
	pthread_mutex_unlock(&vstream->context->lock);
	if (wait)
		wait_free(wait);
	come_out(&inside);
}

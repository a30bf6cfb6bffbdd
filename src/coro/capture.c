/* Capture of streams into graphs, and events. What is captured stays on the program's own streams: nothing of this library
 * becomes part of a graph. */
#include <stdlib.h>

#include "coro/coro.h"

/* Events that were recorded last by a stream that is captured. A stream that waits for one joins the capture, so the wait
 * belongs on its base. */
struct captured_event {
	LIST_ENTRY(captured_event) next;
	CUevent event;
};
static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, captured_event) all;
	_Atomic unsigned count;
} captured = { .lock = PTHREAD_MUTEX_INITIALIZER };

static pthread_mutex_t begin_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned
	captures; /* in progress, in this process; too many after a stream was destroyed in a capture */

void captures_lock(void)
{
	pthread_mutex_lock(&begin_lock);
}

void captures_unlock(void)
{
	pthread_mutex_unlock(&begin_lock);
}

bool captures_are_there(void)
{
	return atomic_load_explicit(&captures, memory_order_relaxed);
}

bool vstream_is_capturing(const struct vstream *vstream)
{
	CUstreamCaptureStatus status;

	if (!captures_are_there())
		return false;
	/* An error is about a capture as well: the call that follows reports it. */
	return real.cuStreamIsCapturing(vstream->base, &status) || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static struct captured_event *find(CUevent event)
{
	struct captured_event *at;

	LIST_FOREACH(at, &captured.all, next)
		if (at->event == event)
			break;
	return at;
}

static bool is_captured(CUevent event)
{
	bool is_there;

	if (!lease_is_there() || !atomic_load_explicit(&captured.count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&captured.lock);
	is_there = find(event) != NULL;
	pthread_mutex_unlock(&captured.lock);
	return is_there;
}

static void note(CUevent event, bool is_now)
{
	struct captured_event *at;

	if (!lease_is_there() || (!is_now && !atomic_load_explicit(&captured.count, memory_order_relaxed)))
		return;
	pthread_mutex_lock(&captured.lock);
	at = find(event);
	if (at && !is_now) {
		LIST_REMOVE(at, next);
		captured.count--;
		free(at);
	} else if (!at && is_now && (at = calloc(1, sizeof(*at)))) {
		at->event = event;
		LIST_INSERT_HEAD(&captured.all, at, next);
		captured.count++;
	}
	pthread_mutex_unlock(&captured.lock);
}

/* Streams that are not virtual are captured as well. */
static bool is_capturing(CUstream stream)
{
	CUstreamCaptureStatus status;

	return captures_are_there() && !real.cuStreamIsCapturing(stream, &status) &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A record with CU_EVENT_RECORD_EXTERNAL becomes a node: it does not make those that wait part of the capture. */
EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	struct taken taken = stream_take(stream, false, TAKE_TAIL);
	bool is_graph = taken.vstream ? taken.is_captured : is_capturing(taken.stream);
	CUresult result = real.cuEventRecordWithFlags(event, taken.stream, flags);

	if (!result && !(is_graph && (flags & CU_EVENT_RECORD_EXTERNAL)))
		note(event, is_graph);
	stream_leave(&taken);
	return result;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

/* A launch that succeeded records the events of its attributes. */
void launch_note_events(const CUlaunchConfig *config, const struct taken *taken)
{
	bool is_graph = taken->vstream ? taken->is_captured : is_capturing(taken->stream);

	for (unsigned i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];

		if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
			note(attribute->value.programmaticEvent.event, is_graph);
		else if (attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
			note(attribute->value.launchCompletionEvent.event, is_graph);
	}
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
	note(event, false);
	return real.cuEventDestroy_v2(event);
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
	note(event, false);
	return real.cuEventDestroy(event);
}

/* A stream joins a capture by waiting for an event of it: its base does, and work from before has its event. */
static CUresult join_capture(const struct taken *taken, CUevent event, unsigned int flags)
{
	CUresult result;

	if (taken->vstream && !taken->is_captured)
		place_record(taken->vstream, -1);
	captures_lock();
	result = real.cuStreamWaitEvent(taken->stream, event, flags);
	captures_unlock();
	return result;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	bool is_join = is_captured(event);
	struct taken taken = stream_take(stream, false, is_join ? TAKE_BASE : TAKE_TAIL);
	struct wait *wait = is_join ? NULL : wait_begin_event(&taken);
	CUresult result = is_join ? join_capture(&taken, event, flags)
				  : real.cuStreamWaitEvent(taken.stream, event, flags);

	wait_end(&taken, wait, result);
	stream_leave(&taken);
	return result;
}

/* The count is raised before the capture begins. With the lock of the virtual stream a call of another thread comes either
 * before the capture or after its begin. Work from before has its event: see base_is_idle(). */
static struct vstream *before_capture(CUstream stream)
{
	struct vstream *vstream = stream_find(stream, false);
	struct inside inside;

	if (!lease_is_there())
		return NULL;
	if (vstream) {
		pthread_mutex_lock(&vstream->lock);
		if (vstream->tail_at < 0 && vstream_place(vstream, -1)->is_used && !vstream->is_legacy) {
			inside = go_inside(vstream->context);
			place_record(vstream, -1);
			come_out(&inside);
		}
	}
	captures_lock();
	captures++;
	return vstream;
}

static CUresult after_begin(struct vstream *vstream, CUresult result)
{
	if (!lease_is_there())
		return result;
	if (result)
		captures--;
	captures_unlock();
	if (vstream)
		pthread_mutex_unlock(&vstream->lock);
	return result;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	struct vstream *vstream = before_capture(stream);

	return after_begin(vstream, real.cuStreamBeginCapture_v2(stream_handle(stream), mode));
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
	struct vstream *vstream = before_capture(stream);

	return after_begin(vstream, real.cuStreamBeginCapture(stream_handle(stream)));
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
					    const CUgraphEdgeData *edges, size_t count,
					    CUstreamCaptureMode mode)
{
	struct vstream *vstream = before_capture(stream);

	return after_begin(vstream, real.cuStreamBeginCaptureToGraph(stream_handle(stream), graph,
								     dependencies, edges, count, mode));
}

/* A capture that has become invalid is over as well. */
EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	CUstream handle = stream_handle(stream);
	bool was_capturing = lease_is_there() && is_capturing(handle);
	CUresult result = real.cuStreamEndCapture(handle, graph);

	if (was_capturing && !is_capturing(handle))
		captures--;
	return result;
}

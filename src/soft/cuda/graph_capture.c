/* Capture: the work of some streams becomes a graph. A capture begins in one stream. Other streams join by
 * waiting for an event recorded in it, and must be joined back in the same way before it ends. The errors,
 * and which of them invalidate the capture, were measured with driver 580 on an H200. */
#include "soft/cuda/graph_capture.h"

#include <stdlib.h>
#include <string.h>

static struct capture *captures;
static uint64_t last_id, last_thread;
static _Thread_local uint64_t this_thread;
_Thread_local CUstreamCaptureMode capture_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

uint64_t capture_thread(void)
{
	if (!this_thread)
		this_thread = ++last_thread;
	return this_thread;
}

/* ---- tails */

void tail_clear(struct tail *tail)
{
	free(tail->nodes);
	free(tail->data);
	*tail = (struct tail){ 0 };
}

CUresult tail_add(struct tail *tail, CUgraphNode node, const CUgraphEdgeData *data)
{
	CUgraphNode *nodes;
	CUgraphEdgeData *more;

	for (size_t i = 0; i < tail->count; i++)
		if (tail->nodes[i] == node)
			return CUDA_SUCCESS;
	nodes = realloc(tail->nodes, (tail->count + 1) * sizeof(void *));
	if (nodes)
		tail->nodes = nodes;
	more = realloc(tail->data, (tail->count + 1) * sizeof(*more));
	if (more)
		tail->data = more;
	if (!nodes || !more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	tail->nodes[tail->count] = node;
	tail->data[tail->count++] = data ? *data : (CUgraphEdgeData){ 0 };
	return CUDA_SUCCESS;
}

static CUresult tail_join(struct tail *tail, const struct tail *other)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < other->count && !result; i++)
		result = tail_add(tail, other->nodes[i], &other->data[i]);
	return result;
}

/* ---- begin and end */

static CUresult add_member(struct capture *capture, struct stream *stream, struct member **member)
{
	*member = calloc(1, sizeof(**member));
	if (!*member)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*member)->stream = stream;
	(*member)->next = capture->members;
	capture->members = *member;
	stream->capture = capture;
	return CUDA_SUCCESS;
}

struct member *capture_member(const struct capture *capture, const struct stream *stream)
{
	struct member *member = capture->members;

	while (member && member->stream != stream)
		member = member->next;
	return member;
}

CUresult capture_begin(struct stream *stream, struct graph *graph, CUstreamCaptureMode mode,
		       struct capture **capture)
{
	struct capture *new = calloc(1, sizeof(*new));
	struct member *member;
	CUresult result = new ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (!result && !graph)
		result = graph_new(&new->graph);
	if (!result)
		result = add_member(new, stream, &member);
	if (result) {
		if (new &&new->graph)
			graph_free(new->graph);
		free(new);
		return result;
	}
	new->owns_graph = !graph;
	if (graph)
		new->graph = graph;
	new->graph->capture = new;
	new->id = ++last_id;
	new->mode = mode;
	new->thread = capture_thread();
	new->origin = stream;
	new->next = captures;
	captures = new;
	*capture = new;
	return CUDA_SUCCESS;
}

/* Free the capture when it has ended and no event refers to it. */
static void capture_reap(struct capture *capture)
{
	if (!capture->graph && !capture->event_count)
		free(capture);
}

struct graph *capture_end(struct capture *capture)
{
	struct capture **at = &captures;
	struct graph *graph = capture->graph;
	struct member *member;

	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	while ((member = capture->members)) {
		capture->members = member->next;
		if (member->stream)
			member->stream->capture = NULL;
		tail_clear(&member->tail);
		free(member);
	}
	graph->capture = NULL;
	capture->graph = NULL;
	capture_reap(capture);
	return graph;
}

/* Whether all nodes of the capture precede the next node of its first stream. */
bool capture_is_joined(const struct capture *capture)
{
	const struct graph *graph = capture->graph;
	const struct member *origin = capture_member(capture, capture->origin);
	bool *is_before = calloc(graph->node_count + 1, sizeof(*is_before)), is_joined = true, has_grown;

	if (!is_before)
		return false;
	for (size_t i = 0; i < origin->tail.count; i++)
		is_before[((struct node *)origin->tail.nodes[i])->index] = true;
	do { /* most edges lead to newer nodes: backwards, one pass is usually enough */
		has_grown = false;
		for (size_t i = graph->edge_count; i-- > 0;) {
			const struct edge *edge = &graph->edges[i];

			if (!is_before[edge->to->index] || is_before[edge->from->index])
				continue;
			is_before[edge->from->index] = has_grown = true;
		}
	} while (has_grown);
	for (const struct member *member = capture->members; member; member = member->next)
		for (size_t i = 0; i < member->tail.count; i++)
			is_joined &= is_before[((struct node *)member->tail.nodes[i])->index];
	free(is_before);
	return is_joined;
}

/* ---- operations of streams */

static CUresult add_op(struct capture *capture, struct stream *stream, const struct op *op)
{
	struct tail *tail = &capture_member(capture, stream)->tail;
	const CUlaunchAttributeValue priority = { .priority = stream->priority };
	struct node *node;
	struct op copy;
	CUresult result = op_clone(op, &copy);

	if (!result)
		result = graph_add_node(capture->graph, &copy, stream->context, &node);
	for (size_t i = 0; i < tail->count && !result; i++)
		result = graph_add_edge(capture->graph, (struct node *)tail->nodes[i], node, &tail->data[i]);
	if (!result && op->kind == OP_KERNEL && stream->priority)
		result = node_set_attribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority);
	if (result)
		return result;
	tail->count = 0;
	return tail_add(tail, (CUgraphNode)node, NULL);
}

CUresult capture_op(struct stream *stream, const struct op *op)
{
	struct capture *capture = stream->capture;
	CUresult result;

	if (capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	result = add_op(capture, stream, op);
	if (result)
		capture->is_invalid = true;
	return result;
}

void capture_forget_event(struct event *event)
{
	struct capture *capture = event->capture;

	if (!capture)
		return;
	tail_clear(event->capture_mark);
	free(event->capture_mark);
	event->capture_mark = NULL;
	event->capture = NULL;
	capture->event_count--;
	capture_reap(capture);
}

CUresult capture_record(struct stream *stream, struct event *event, bool *is_mine)
{
	struct capture *capture = stream->capture;
	struct tail *mark;
	CUresult result;

	*is_mine = capture != NULL;
	if (!capture) {
		result = capture_forbids_implicit(stream);
		if (!result)
			capture_forget_event(event);
		return result;
	}
	if (capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	mark = calloc(1, sizeof(*mark));
	if (!mark)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = tail_join(mark, &capture_member(capture, stream)->tail);
	if (result) {
		tail_clear(mark);
		free(mark);
		return result;
	}
	capture_forget_event(event);
	event->capture_mark = mark;
	event->capture = capture;
	capture->event_count++;
	return CUDA_SUCCESS;
}

/* For a wait for an event of this capture: the stream joins the capture if it is not a member. */
static CUresult join_stream(struct capture *capture, struct stream *stream, const struct tail *mark)
{
	struct member *member = capture_member(capture, stream);
	CUresult result = member ? CUDA_SUCCESS : add_member(capture, stream, &member);

	return result ? result : tail_join(&member->tail, mark);
}

static CUresult wait_for_captured(struct stream *stream, struct event *event)
{
	struct capture *capture = event->capture;

	if (!capture->graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->is_null) {
		capture->is_invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (stream->capture && stream->capture != capture) {
		capture->is_invalid = stream->capture->is_invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	return join_stream(capture, stream, event->capture_mark);
}

CUresult capture_wait(struct stream *stream, struct event *event, bool *is_mine)
{
	*is_mine = event->capture || stream->capture;
	if (event->capture)
		return wait_for_captured(stream, event);
	if (!stream->capture)
		return CUDA_SUCCESS;
	if (stream->capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!event->fence.channel) /* never recorded: nothing to wait for */
		return CUDA_SUCCESS;
	stream->capture->is_invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

/* The capture ends with the stream in which it began. The work of another destroyed stream stays, and can no
 * longer be joined. */
void capture_forget_stream(struct stream *stream)
{
	struct capture *capture = stream->capture;
	struct graph *graph;
	bool owns_graph;

	if (!capture)
		return;
	if (capture->origin != stream) {
		capture_member(capture, stream)->stream = NULL;
		stream->capture = NULL;
		return;
	}
	owns_graph = capture->owns_graph;
	graph = capture_end(capture);
	if (owns_graph)
		graph_free(graph);
}

/* ---- calls that are forbidden during capture */

static bool is_forbidden_by(const struct capture *capture)
{
	if (capture->thread == capture_thread())
		return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	return capture_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
	       capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_forbids(void)
{
	CUresult result = CUDA_SUCCESS;

	if (capture_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct capture *capture = captures; capture; capture = capture->next) {
		if (!is_forbidden_by(capture))
			continue;
		capture->is_invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

CUresult capture_forbids_stream(struct stream *stream)
{
	if (!stream->capture)
		return capture_forbids_implicit(stream);
	stream->capture->is_invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_forbids_context(struct context *context)
{
	CUresult result = CUDA_SUCCESS;

	for (struct stream *s = captures ? context->streams : NULL; s; s = s->next) {
		if (!s->capture)
			continue;
		s->capture->is_invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

CUresult capture_forbids_event(struct event *event)
{
	if (!event->capture)
		return CUDA_SUCCESS;
	if (!event->capture->graph)
		return CUDA_ERROR_INVALID_VALUE;
	event->capture->is_invalid = true;
	return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_find_implicit(const struct stream *stream, struct capture **capture)
{
	if (!stream->is_null)
		return CUDA_SUCCESS;
	for (const struct stream *s = captures ? stream->context->streams : NULL; s; s = s->next)
		if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) {
			*capture = s->capture;
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return CUDA_SUCCESS;
}

CUresult capture_forbids_implicit(struct stream *stream)
{
	struct capture *capture;
	CUresult result = capture_find_implicit(stream, &capture);

	if (result)
		capture->is_invalid = true;
	return result;
}

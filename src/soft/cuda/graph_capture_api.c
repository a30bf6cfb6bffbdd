/* Public functions: capture. */
#include "soft/cuda/graph_capture.h"

static bool is_mode(CUstreamCaptureMode mode)
{
	return mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

static CUresult begin(CUstream handle, struct graph *graph, CUstreamCaptureMode mode,
		      struct capture **capture)
{
	struct stream *stream;
	CUresult result = is_mode(mode) ? stream_find(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result)
		return result;
	if (stream->is_null)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	return capture_begin(stream, graph, mode, capture);
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	struct capture *capture;

	ENTER();
	LEAVE(begin(stream, NULL, mode, &capture));
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
	return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult set_tail(struct tail *tail, const CUgraphNode *nodes, const CUgraphEdgeData *data,
			 size_t count)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < count && !result; i++)
		result = tail_add(tail, nodes[i], data ? &data[i] : NULL);
	return result;
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle,
					    const CUgraphNode *dependencies,
					    const CUgraphEdgeData *dependencyData, size_t numDependencies,
					    CUstreamCaptureMode mode)
{
	struct capture *capture;
	struct graph *graph;
	CUresult result;

	ENTER();
	result = graph_find(graph_handle, &graph);
	if (!result && (graph->capture || (graph->parent && graph->parent->op.kind != OP_CONDITION)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = edges_check(graph, dependencies, dependencyData, numDependencies);
	if (!result)
		result = begin(handle, graph, mode, &capture);
	if (result)
		LEAVE(result);
	result = set_tail(&capture->members->tail, dependencies, dependencyData, numDependencies);
	if (result)
		capture_end(capture);
	LEAVE(result);
}

/* The error that prevents a graph; the capture ends anyway. */
static CUresult find_fault(const struct capture *capture)
{
	if (capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != capture_thread())
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	return capture_is_joined(capture) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

/* graph_out may be NULL if the program already has the graph. */
EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph_out)
{
	struct capture *capture;
	struct stream *stream;
	struct graph *graph;
	bool owns_graph;
	CUresult result;

	ENTER();
	result = stream_find(handle, &stream);
	capture = result ? NULL : stream->capture;
	if (!result && !graph_out && (!capture || capture->owns_graph))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	if (graph_out)
		*graph_out = NULL;
	if (!capture)
		LEAVE(CUDA_ERROR_ILLEGAL_STATE);
	if (capture->origin != stream) {
		capture->is_invalid = true;
		LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	}
	result = find_fault(capture);
	owns_graph = capture->owns_graph;
	graph = capture_end(capture);
	if (result && owns_graph)
		graph_free(graph);
	else if (!result && graph_out)
		*graph_out = (CUgraph)graph;
	return objects_leave(result);
}

/* A query changes nothing, even for the legacy stream. */
static CUresult find_status(CUstream handle, CUstreamCaptureStatus *status, struct stream **stream)
{
	struct capture *capture;
	CUresult result = status ? stream_find(handle, stream) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		result = capture_find_implicit(*stream, &capture);
	if (result)
		return result;
	capture = (*stream)->capture;
	*status = !capture		? CU_STREAM_CAPTURE_STATUS_NONE
		  : capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					: CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	struct stream *stream;

	ENTER();
	LEAVE(find_status(handle, status, &stream));
}

struct info {
	CUstreamCaptureStatus *status;
	cuuint64_t *id;
	CUgraph *graph;
	const CUgraphNode **nodes;
	const CUgraphEdgeData **data;
	size_t *count;
};

static bool has_data(const struct tail *tail)
{
	for (size_t i = 0; i < tail->count; i++)
		if (tail->data[i].from_port || tail->data[i].to_port || tail->data[i].type)
			return true;
	return false;
}

static CUresult get_info(CUstream handle, const struct info *info)
{
	const struct tail *tail;
	struct stream *stream;
	CUresult result = find_status(handle, info->status, &stream);

	if (!result && info->data && !info->nodes)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result || *info->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return result;
	tail = &capture_member(stream->capture, stream)->tail;
	if (info->id)
		*info->id = stream->capture->id;
	if (info->graph)
		*info->graph = (CUgraph)stream->capture->graph;
	if (info->nodes)
		*info->nodes = tail->nodes;
	if (info->data)
		*info->data = tail->data;
	if (info->count)
		*info->count = tail->count;
	return info->nodes && !info->data && has_data(tail) ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
					  CUgraph *graph, const CUgraphNode **dependencies,
					  const CUgraphEdgeData **edgeData, size_t *numDependencies)
{
	struct info info = { status, id, graph, dependencies, edgeData, numDependencies };

	ENTER();
	LEAVE(get_info(stream, &info));
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
					  CUgraph *graph, const CUgraphNode **dependencies,
					  size_t *numDependencies)
{
	struct info info = { status, id, graph, dependencies, NULL, numDependencies };

	ENTER();
	LEAVE(get_info(stream, &info));
}

EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	struct info info = { .status = status, .id = id };

	ENTER();
	LEAVE(get_info(stream, &info));
}

static CUresult update(CUstream handle, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
		       unsigned flags)
{
	struct stream *stream;
	struct tail *tail;
	CUresult result = stream_find(handle, &stream);

	if (!result && flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !stream->capture)
		result = CUDA_ERROR_ILLEGAL_STATE;
	if (!result && stream->capture->is_invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!result)
		result = edges_check(stream->capture->graph, nodes, data, count);
	if (result)
		return result;
	tail = &capture_member(stream->capture, stream)->tail;
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
		struct tail new = { 0 };

		/* `nodes` may be the list that the program got from a query: build the new tail first. */
		result = set_tail(&new, nodes, data, count);
		tail_clear(result ? &new : tail);
		if (!result)
			*tail = new;
		return result;
	}
	return set_tail(tail, nodes, data, count);
}

EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
						     const CUgraphEdgeData *dependencyData,
						     size_t numDependencies, unsigned int flags)
{
	ENTER();
	LEAVE(update(stream, dependencies, dependencyData, numDependencies, flags));
}

EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies,
						  size_t numDependencies, unsigned int flags)
{
	ENTER();
	LEAVE(update(stream, dependencies, NULL, numDependencies, flags));
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = capture_thread_mode;

	if (!mode || !is_mode(*mode))
		return CUDA_ERROR_INVALID_VALUE;
	capture_thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

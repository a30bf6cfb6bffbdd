/* Public functions: instantiate, launch and destroy graphs. */
#include "soft/cuda/graph.h"

/* Upload does nothing: commands are written at launch. */
static CUresult check_upload(const CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	struct stream *stream;

	return params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
		       ? stream_find(params->hUploadStream, &stream)
		       : CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *handle, CUgraph graph_handle, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	struct graph *graph;
	struct exec *exec;
	CUresult result;

	ENTER();
	result = handle && params ? graph_find(graph_handle, &graph) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = check_upload(params);
	if (!result)
		result = exec_new(graph, params->flags, &exec, params);
	if (!result)
		*handle = (CUgraphExec)exec;
	return objects_leave(result);
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
					     CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return instantiate(exec, graph, params);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	/* UPLOAD uses hUploadStream; NULL is the legacy stream, which is valid. */
	CUDA_GRAPH_INSTANTIATE_PARAMS params = { .flags = flags };

	return instantiate(exec, graph, &params);
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *errorNode,
				      char *logBuffer, size_t bufferSize)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = { 0 };
	CUresult result = instantiate(exec, graph, &params);

	if (errorNode)
		*errorNode = params.hErrNode_out;
	if (logBuffer && bufferSize)
		logBuffer[0] = 0;
	return result;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *errorNode, char *logBuffer,
				   size_t bufferSize)
{
	return cuGraphInstantiate_v2(exec, graph, errorNode, logBuffer, bufferSize);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec handle)
{
	struct exec *exec;
	CUresult result;

	ENTER();
	result = exec_find(handle, &exec);
	if (!result && exec->is_launching)
		result = CUDA_ERROR_ILLEGAL_STATE;
	if (!result)
		exec_free(exec);
	return objects_leave(result);
}

EXPORT CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
	struct exec *exec;

	LEAVE_WITH(flags, exec_find(handle, &exec),
		   exec->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
}

EXPORT CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
	struct stream *stream;
	struct exec *exec;
	CUresult result;

	ENTER();
	result = exec_find(handle, &exec);
	if (!result)
		result = stream_find(stream_handle, &stream);
	if (!result)
		result = capture_forbids_stream(stream);
	LEAVE(result);
}

/* Forbidden during capture in every mode (measured: driver 580); a child graph node replaces it. */
EXPORT CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
	struct stream *stream;
	struct exec *exec;
	CUresult result;

	ENTER();
	result = exec_find(handle, &exec);
	if (!result)
		result = stream_find(stream_handle, &stream);
	if (!result)
		result = capture_forbids_stream(stream);
	if (!result)
		result = exec_launch(exec, stream);
	LEAVE(result);
}

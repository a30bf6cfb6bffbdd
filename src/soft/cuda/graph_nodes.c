/* Public functions: add nodes to graphs. All of them use node_add. */
#include <stdlib.h>

#include "soft/cuda/graph.h"

static bool is_edge_data(const struct node *from, const CUgraphEdgeData *data)
{
	for (size_t i = 0; i < sizeof(data->reserved); i++)
		if (data->reserved[i])
			return false;
	if (data->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC || data->to_port)
		return false;
	if (!data->from_port)
		return !data->type;
	return from->op.kind == OP_KERNEL && data->from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
}

CUresult edges_check(const struct graph *graph, const CUgraphNode *handles, const CUgraphEdgeData *data,
		     size_t count)
{
	if (count && !handles)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		struct node *node;
		CUresult result = node_find(handles[i], &node);

		if (result)
			return result;
		if (node->graph != graph || (data && !is_edge_data(node, &data[i])))
			return CUDA_ERROR_INVALID_VALUE;
		for (size_t j = 0; j < i; j++)
			if (handles[j] == handles[i])
				return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* The graph is a body of a conditional node, or part of one. */
static bool is_in_body(const struct graph *graph)
{
	while (graph->parent && graph->parent->op.kind == OP_GRAPH)
		graph = graph->parent->graph;
	return graph->parent;
}

static bool is_for_bodies(CUgraphNodeType type)
{
	return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
	       type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_GRAPH ||
	       type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

/* A child graph can have memory nodes only if they were in it when it was added. */
static bool may_add(const struct graph *graph, const CUgraphNodeParams *params)
{
	bool is_memory = params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
			 params->type == CU_GRAPH_NODE_TYPE_MEM_FREE;

	return (!is_memory || !graph->parent) && (!is_in_body(graph) || is_for_bodies(params->type));
}

static CUresult node_add_edges(struct node *node, const CUgraphNode *from, const CUgraphEdgeData *data,
			       size_t count)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < count && !result; i++)
		result = graph_add_edge(node->graph, (struct node *)from[i], node, data ? &data[i] : NULL);
	return result;
}

static CUresult node_make(struct graph *graph, CUgraphNodeParams *params, struct node **node)
{
	struct context *context;
	struct op op;
	CUresult result = params_to_op(graph, params, &op, &context);

	if (!result)
		result = graph_add_node(graph, &op, context, node);
	return result;
}

static CUresult node_add(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies,
			 const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
{
	struct graph *graph;
	struct node *node;
	CUresult result;

	ENTER();
	result = out && params ? graph_find(handle, &graph) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = edges_check(graph, dependencies, data, count);
	if (!result && !may_add(graph, params))
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (!result)
		result = node_make(graph, params, &node);
	if (result)
		LEAVE(result);
	result = params_keep(params, node);
	if (!result)
		result = node_add_edges(node, dependencies, data, count);
	if (result)
		graph_remove_node(node);
	else
		*out = (CUgraphNode)node;
	LEAVE(result);
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				  const CUgraphEdgeData *dependencyData, size_t numDependencies,
				  CUgraphNodeParams *nodeParams)
{
	return node_add(node, graph, dependencies, dependencyData, numDependencies, nodeParams);
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			       size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	return node_add(node, graph, dependencies, NULL, numDependencies, nodeParams);
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
					size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_kernel(&params, nodeParams);
	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				     size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_kernel_v1(&params, nodeParams);
	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				     size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMCPY };

	if (!copyParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.memcpy.copyCtx = ctx;
	params.memcpy.copyParams = *copyParams;
	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				     size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
				     CUcontext ctx)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMSET };

	if (!memsetParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_memset(&params, memsetParams, ctx);
	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				   size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_HOST };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.host.fn = nodeParams->fn;
	params.host.userData = nodeParams->userData;
	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
					 size_t numDependencies, CUgraph childGraph)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = childGraph };

	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				    size_t numDependencies)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
					  size_t numDependencies, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord.event = event };

	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
					size_t numDependencies, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait.event = event };

	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				       size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	CUresult result;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.alloc.poolProps = nodeParams->poolProps;
	params.alloc.accessDescs = nodeParams->accessDescs;
	params.alloc.accessDescCount = nodeParams->accessDescCount;
	params.alloc.bytesize = nodeParams->bytesize;
	result = node_add(node, graph, dependencies, NULL, numDependencies, &params);
	nodeParams->dptr = params.alloc.dptr;
	return result;
}

EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				      size_t numDependencies, CUdeviceptr dptr)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free.dptr = dptr };

	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

EXPORT CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
					 size_t numDependencies,
					 const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_values(&params, nodeParams);
	return node_add(node, graph, dependencies, NULL, numDependencies, &params);
}

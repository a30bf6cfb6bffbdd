/* Public functions: get and set the parameters of nodes. All of them use node_get or node_set. */
#include <string.h>

#include "soft/cuda/graph.h"

/* `out`: the pointer that the program passed. */
static CUresult node_get(CUgraphNode handle, CUgraphNodeType type, const void *out, CUgraphNodeParams *params)
{
	struct node *node;
	CUresult result;

	memset(params, 0, sizeof(*params));
	ENTER();
	result = out ? node_find(handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (!result && params_type(node->op.kind) != type)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = params_from_node(node, params);
	LEAVE(result);
}

void node_replace_op(struct node *node, struct op *op, struct context *context)
{
	if (op->kind == OP_KERNEL) /* an attribute, not a parameter */
		op->kernel.is_cooperative = node->op.kernel.is_cooperative;
	op_free(&node->op);
	node->op = *op;
	node->context = context;
	if (op->kind == OP_GRAPH)
		op->child->parent = node;
}

static CUresult node_replace(struct node *node, CUgraphNodeParams *params)
{
	struct context *context;
	struct op op;
	CUresult result = params_to_op(node->graph, params, &op, &context);

	if (result)
		return result;
	node_replace_op(node, &op, context);
	return params_keep(params, node);
}

static CUresult node_set(CUgraphNode handle, CUgraphNodeParams *params)
{
	struct node *node;
	CUresult result;

	ENTER();
	result = params ? node_find(handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (!result && params_type(node->op.kind) != params->type)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result &&
	    (node->op.kind == OP_ALLOC || node->op.kind == OP_FREE || node->op.kind == OP_CONDITION))
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (!result)
		result = node_replace(node, params);
	return objects_leave(result);
}

EXPORT CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *nodeParams)
{
	return node_set(node, nodeParams);
}

EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, &params);

	_Static_assert(sizeof(*nodeParams) == sizeof(params.kernel), "versions 2 and 3 are the same");
	if (!result)
		memcpy(nodeParams, &params.kernel, sizeof(*nodeParams));
	return result;
}

EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, &params);

	if (!result)
		memcpy(nodeParams, &params.kernel, sizeof(*nodeParams));
	return result;
}

EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_kernel(&params, nodeParams);
	return node_set(node, &params);
}

EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_kernel_v1(&params, nodeParams);
	return node_set(node, &params);
}

EXPORT CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *nodeParams)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams, &params);

	if (!result)
		*nodeParams = params.memcpy.copyParams;
	return result;
}

/* The context is unchanged. */
EXPORT CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *nodeParams)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams, &params);

	if (result)
		return result;
	params.memcpy.copyParams = *nodeParams;
	return node_set(node, &params);
}

EXPORT CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, &params);

	/* The newer structure begins with the older one. */
	if (!result)
		memcpy(nodeParams, &params.memset, sizeof(*nodeParams));
	return result;
}

EXPORT CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, &params);

	if (result)
		return result;
	params_set_memset(&params, nodeParams, params.memset.ctx);
	return node_set(node, &params);
}

EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_HOST, nodeParams, &params);

	if (!result)
		*nodeParams =
			(CUDA_HOST_NODE_PARAMS){ .fn = params.host.fn, .userData = params.host.userData };
	return result;
}

EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_HOST };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.host.fn = nodeParams->fn;
	params.host.userData = nodeParams->userData;
	return node_set(node, &params);
}

EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_GRAPH, graph, &params);

	if (!result)
		*graph = params.graph.graph;
	return result;
}

EXPORT CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &params);

	if (!result)
		*event = params.eventRecord.event;
	return result;
}

EXPORT CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord.event = event };

	return node_set(node, &params);
}

EXPORT CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &params);

	if (!result)
		*event = params.eventWait.event;
	return result;
}

EXPORT CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait.event = event };

	return node_set(node, &params);
}

EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, nodeParams, &params);

	if (!result)
		*nodeParams = (CUDA_MEM_ALLOC_NODE_PARAMS){ .poolProps = params.alloc.poolProps,
							    .bytesize = params.alloc.bytesize,
							    .dptr = params.alloc.dptr };
	return result;
}

EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *dptr)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr, &params);

	if (!result)
		*dptr = params.free.dptr;
	return result;
}

EXPORT CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params;
	CUresult result = node_get(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams, &params);

	if (!result)
		*nodeParams = (CUDA_BATCH_MEM_OP_NODE_PARAMS){ .ctx = params.memOp.ctx,
							       .count = params.memOp.count,
							       .paramArray = params.memOp.paramArray };
	return result;
}

EXPORT CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node,
					       const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_values(&params, nodeParams);
	return node_set(node, &params);
}

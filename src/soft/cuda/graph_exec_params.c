/* Public functions: change single nodes of an exec; the original graph is unchanged. All of them use
 * exec_set. */
#include "soft/cuda/graph.h"

/* The nodes of the child are changed, not the child itself: steps refer to the nodes. */
static CUresult set_child(struct node *node, CUgraph handle)
{
	CUgraphExecUpdateResultInfo info;
	struct graph *graph;
	CUresult result = graph_find(handle, &graph);

	return result ? result : update_graph(node->op.child, graph, &info);
}

/* A copy in two or three dimensions cannot be changed, not even its addresses. */
static bool may_set_copy(const struct op *old, const struct op *new)
{
	const struct op_copy *a = &old->copy, *b = &new->copy;

	if (new->kind != OP_COPY || (a->height <= 1 && a->depth <= 1 && b->height <= 1 && b->depth <= 1))
		return true;
	return a->src == b->src && a->dst == b->dst && a->width == b->width && a->height == b->height &&
	       a->depth == b->depth && a->src_pitch == b->src_pitch && a->dst_pitch == b->dst_pitch &&
	       a->src_slice == b->src_slice && a->dst_slice == b->dst_slice;
}

static CUresult set_node(struct node *node, CUgraphNodeParams *params)
{
	struct context *context;
	struct op op;
	CUresult result = params_to_op(node->graph, params, &op, &context);

	if (result)
		return result;
	if (update_check(node, &op, context) || !may_set_copy(&node->op, &op)) {
		op_free(&op);
		return CUDA_ERROR_INVALID_VALUE;
	}
	node_replace_op(node, &op, context);
	return CUDA_SUCCESS;
}

static CUresult exec_set(CUgraphExec exec_handle, CUgraphNode handle, CUgraphNodeParams *params)
{
	struct exec *exec;
	struct node *node;
	CUresult result;

	ENTER();
	result = params ? exec_find(exec_handle, &exec) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = exec_find_node(exec, handle, &node);
	if (!result && params_type(node->op.kind) != params->type)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result &&
	    (node->op.kind == OP_ALLOC || node->op.kind == OP_FREE || node->op.kind == OP_CONDITION))
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (result)
		LEAVE(result);
	if (node->op.kind == OP_GRAPH)
		result = set_child(node, params->graph.graph);
	else
		result = set_node(node, params);
	return objects_leave(result);
}

EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *nodeParams)
{
	return exec_set(exec, node, nodeParams);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
						  const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_kernel(&params, nodeParams);
	return exec_set(exec, node, &params);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
					       const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_kernel_v1(&params, nodeParams);
	return exec_set(exec, node, &params);
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
					       const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMCPY };

	if (!copyParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.memcpy.copyCtx = ctx;
	params.memcpy.copyParams = *copyParams;
	return exec_set(exec, node, &params);
}

EXPORT CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
					       const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMSET };

	if (!memsetParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_memset(&params, memsetParams, ctx);
	return exec_set(exec, node, &params);
}

EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
					     const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_HOST };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.host.fn = nodeParams->fn;
	params.host.userData = nodeParams->userData;
	return exec_set(exec, node, &params);
}

EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph childGraph)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = childGraph };

	return exec_set(exec, node, &params);
}

EXPORT CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord.event = event };

	return exec_set(exec, node, &params);
}

EXPORT CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait.event = event };

	return exec_set(exec, node, &params);
}

EXPORT CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
						   const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params_set_values(&params, nodeParams);
	return exec_set(exec, node, &params);
}

/* Only kernels, copies and fills can be disabled. */
static CUresult find_optional(CUgraphExec exec_handle, CUgraphNode handle, struct node **node)
{
	struct exec *exec;
	CUresult result = exec_find(exec_handle, &exec);

	if (!result)
		result = exec_find_node(exec, handle, node);
	if (!result && (*node)->op.kind != OP_KERNEL && (*node)->op.kind != OP_COPY &&
	    (*node)->op.kind != OP_FILL)
		result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int isEnabled)
{
	struct node *node;
	CUresult result;

	ENTER();
	result = find_optional(exec, handle, &node);
	if (!result)
		node->is_disabled = !isEnabled;
	LEAVE(result);
}

EXPORT CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int *isEnabled)
{
	struct node *node;
	CUresult result;

	ENTER();
	result = isEnabled ? find_optional(exec, handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*isEnabled = !node->is_disabled;
	LEAVE(result);
}

/* Parameters of nodes: convert the API's structures to ops, and back. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/graph.h"
#include "soft/cuda/launch.h"
#include "soft/cuda/memory.h"

static const CUgraphNodeType types[OP_KINDS] = {
	[OP_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,	   [OP_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
	[OP_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,	   [OP_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
	[OP_HOST] = CU_GRAPH_NODE_TYPE_HOST,	   [OP_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
	[OP_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT, [OP_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
	[OP_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,   [OP_VALUES] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
	[OP_GRAPH] = CU_GRAPH_NODE_TYPE_GRAPH,	   [OP_CONDITION] = CU_GRAPH_NODE_TYPE_CONDITIONAL,
};

CUgraphNodeType params_type(enum op_kind kind)
{
	return types[kind];
}

void params_set_kernel(CUgraphNodeParams *params, const CUDA_KERNEL_NODE_PARAMS *from)
{
	params->kernel = (CUDA_KERNEL_NODE_PARAMS_v3){ .func = from->func,
						       .gridDimX = from->gridDimX,
						       .gridDimY = from->gridDimY,
						       .gridDimZ = from->gridDimZ,
						       .blockDimX = from->blockDimX,
						       .blockDimY = from->blockDimY,
						       .blockDimZ = from->blockDimZ,
						       .sharedMemBytes = from->sharedMemBytes,
						       .kernelParams = from->kernelParams,
						       .extra = from->extra,
						       .kern = from->kern,
						       .ctx = from->ctx };
}

void params_set_kernel_v1(CUgraphNodeParams *params, const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
	CUDA_KERNEL_NODE_PARAMS all = { 0 };

	memcpy(&all, from, sizeof(*from)); /* the newer structure begins with the older one */
	params_set_kernel(params, &all);
}

void params_set_memset(CUgraphNodeParams *params, const CUDA_MEMSET_NODE_PARAMS *from, CUcontext context)
{
	params->memset = (CUDA_MEMSET_NODE_PARAMS_v2){ .dst = from->dst,
						       .pitch = from->pitch,
						       .value = from->value,
						       .elementSize = from->elementSize,
						       .width = from->width,
						       .height = from->height,
						       .ctx = context };
}

void params_set_values(CUgraphNodeParams *params, const CUDA_BATCH_MEM_OP_NODE_PARAMS *from)
{
	params->memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){
		.ctx = from->ctx, .count = from->count, .paramArray = from->paramArray, .flags = from->flags
	};
}

CUresult params_find_context(CUcontext handle, struct context **context)
{
	if (!handle)
		return context_current(context);
	if (!context_is((struct context *)handle))
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = (struct context *)handle;
	return CUDA_SUCCESS;
}

/* A node runs in the context of the function. If the requested or else the current context is a green context
 * of it, the node runs there. */
static void choose_context(CUcontext asked, struct context **context)
{
	struct context *home = context_home(*context), *other;

	if (!params_find_context(asked, &other) && context_home(other) == home)
		*context = other;
}

static CUresult kernel_to_op(const CUDA_KERNEL_NODE_PARAMS_v3 *params, struct op *op,
			     struct context **context)
{
	struct op_kernel kernel = { .grid = { params->gridDimX, params->gridDimY, params->gridDimZ },
				    .threads = { params->blockDimX, params->blockDimY, params->blockDimZ },
				    .dynamic_shared_bytes = params->sharedMemBytes };
	CUfunction handle = params->func ? params->func : (CUfunction)params->kern;
	CUresult result = handle ? function_find(handle, &kernel.function) : CUDA_ERROR_INVALID_HANDLE;

	if (!result)
		result = launch_check(&kernel, NULL);
	if (result)
		return result;
	kernel.params = calloc(1, kernel.function->kernel->param_bytes + 1u);
	if (!kernel.params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = launch_gather(kernel.function->kernel, params->kernelParams, params->extra, kernel.params);
	if (result) {
		free(kernel.params);
		return result;
	}
	op->kind = OP_KERNEL;
	op->kernel = kernel;
	*context = kernel.function->module->context;
	choose_context(params->ctx, context);
	return CUDA_SUCCESS;
}

static CUresult memcpy_to_op(const CUDA_MEMCPY_NODE_PARAMS *params, struct op *op, struct context **context)
{
	const CUDA_MEMCPY3D *copy = &params->copyParams;
	CUresult result = params_find_context(params->copyCtx, context);

	op->kind = OP_COPY;
	if (!result && (params->flags || params->reserved))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && (!copy->WidthInBytes || !copy->Height || !copy->Depth))
		result = CUDA_ERROR_INVALID_VALUE;
	return result ? result : copy_from_3d(copy, &op->copy);
}

static CUresult memset_to_op(const CUDA_MEMSET_NODE_PARAMS_v2 *params, struct op *op,
			     struct context **context)
{
	unsigned bytes = params->elementSize;

	if ((bytes != 1 && bytes != 2 && bytes != 4) || params->dst % bytes || !params->width ||
	    !params->height || params->width > UINT64_MAX / 4)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->height > 1 && (params->pitch < params->width * bytes || params->pitch % bytes))
		return CUDA_ERROR_INVALID_VALUE;
	op->kind = OP_FILL;
	op->fill = (struct op_fill){ .dst = params->dst,
				     .pitch = params->pitch,
				     .width = params->width,
				     .height = params->height,
				     .value = params->value,
				     .element_bytes = bytes };
	return params_find_context(params->ctx, context);
}

static CUresult event_to_op(CUevent handle, enum op_kind kind, struct op *op)
{
	struct event *event;
	struct op borrowed = { .kind = kind };
	CUresult result = event_find(handle, &event);

	if (result)
		return result;
	borrowed.event.event = event;
	return op_clone(&borrowed, op);
}

/* Whether `inner` is `outer` or a descendant of it. */
static bool graph_is_in(const struct graph *inner, const struct graph *outer)
{
	while (inner != outer && inner->parent)
		inner = inner->parent->graph;
	return inner == outer;
}

static CUresult child_to_op(const struct graph *graph, const CUDA_CHILD_GRAPH_NODE_PARAMS *params,
			    struct op *op)
{
	struct graph *child;
	CUresult result = graph_find(params->graph, &child);

	if (result)
		return result;
	op->kind = OP_GRAPH;
	if (params->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
		return graph_clone(child, &op->child);
	if (params->ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE || child->parent || child->capture ||
	    graph_is_in(graph, child))
		return CUDA_ERROR_INVALID_VALUE;
	if (child->exec_count && graph_has_memory(child))
		return CUDA_ERROR_NOT_SUPPORTED;
	op->child = child;
	return CUDA_SUCCESS;
}

static CUresult alloc_to_op(CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params, struct op *op, struct context **context)
{
	struct gpu *gpu = gpu_find(params->poolProps.location.id);
	CUresult result;

	if (!params->bytesize || !gpu || params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || params->poolProps.handleTypes)
		return CUDA_ERROR_INVALID_VALUE;
	if (context_current(context) || (*context)->gpu != gpu)
		*context = gpu->primary;
	if (!*context)
		return CUDA_ERROR_INVALID_CONTEXT;
	op->kind = OP_ALLOC;
	op->alloc.bytes = params->bytesize;
	result = graph_memory_new(*context, params->bytesize, &op->alloc.address);
	params->dptr = result ? 0 : op->alloc.address;
	return result;
}

/* Whether the address is an allocation of this graph, or of a graph that has been launched. */
static bool is_graph_memory(const struct graph *graph, CUdeviceptr address)
{
	const struct range *range = range_find(address);

	for (size_t i = 0; i < graph->node_count; i++) {
		const struct op *op = &graph->nodes[i]->op;

		if (op->kind == OP_ALLOC && op->alloc.address == address)
			return true;
	}
	return range && range->base == address && range->kind == RANGE_DEVICE &&
	       range->flags == MEMORY_OF_GRAPH;
}

static CUresult free_to_op(const struct graph *graph, CUdeviceptr address, struct op *op)
{
	if (!is_graph_memory(graph, address))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < graph->node_count; i++) {
		const struct op *other = &graph->nodes[i]->op;

		if (other->kind == OP_FREE && other->alloc.address == address)
			return CUDA_ERROR_INVALID_VALUE;
	}
	op->kind = OP_FREE;
	op->alloc.address = address;
	return CUDA_SUCCESS;
}

static CUresult values_to_op(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *params, struct op *op,
			     struct context **context)
{
	struct op borrowed = { .kind = OP_VALUES };

	if (!params->count || params->count > 256 || !params->paramArray || params->flags)
		return CUDA_ERROR_INVALID_VALUE;
	borrowed.values.count = params->count;
	borrowed.values.list = params->paramArray;
	return params_find_context(params->ctx, context) ? CUDA_ERROR_INVALID_VALUE : op_clone(&borrowed, op);
}

CUresult params_to_op(const struct graph *graph, CUgraphNodeParams *params, struct op *op,
		      struct context **context)
{
	memset(op, 0, sizeof(*op));
	*context = NULL;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_to_op(&params->kernel, op, context);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return memcpy_to_op(&params->memcpy, op, context);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return memset_to_op(&params->memset, op, context);
	case CU_GRAPH_NODE_TYPE_HOST:
		op->kind = OP_HOST;
		op->host = (struct op_host){ .function = params->host.fn, .argument = params->host.userData };
		return params->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return child_to_op(graph, &params->graph, op);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		op->kind = OP_EMPTY;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return event_to_op(params->eventWait.event, OP_WAIT, op);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return event_to_op(params->eventRecord.event, OP_RECORD, op);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return alloc_to_op(&params->alloc, op, context);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return free_to_op(graph, params->free.dptr, op);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return values_to_op(&params->memOp, op, context);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return condition_to_op(graph, &params->conditional, op, context);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult params_keep(const CUgraphNodeParams *params, struct node *node)
{
	free(node->param_pointers);
	node->param_pointers = NULL;
	if (params->type == CU_GRAPH_NODE_TYPE_KERNEL)
		node->kernel = params->kernel.func ? NULL : params->kernel.kern;
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		node->pool = params->alloc.poolProps;
	if (params->type != CU_GRAPH_NODE_TYPE_MEMCPY)
		return CUDA_SUCCESS;
	if (!node->copy)
		node->copy = malloc(sizeof(*node->copy));
	if (!node->copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*node->copy = params->memcpy.copyParams;
	return CUDA_SUCCESS;
}

static CUresult kernel_from_node(struct node *node, CUDA_KERNEL_NODE_PARAMS_v3 *params)
{
	const struct op_kernel *op = &node->op.kernel;
	const struct ptx_kernel *kernel;

	if (!node_has_function(node))
		return CUDA_ERROR_INVALID_HANDLE;
	kernel = op->function->kernel;
	if (!node->param_pointers && kernel->param_count) {
		node->param_pointers = calloc(kernel->param_count, sizeof(void *));
		if (!node->param_pointers)
			return CUDA_ERROR_OUT_OF_MEMORY;
		for (uint32_t i = 0; i < kernel->param_count; i++)
			node->param_pointers[i] = op->params + kernel->params[i].offset;
	}
	*params = (CUDA_KERNEL_NODE_PARAMS_v3){ .func = (CUfunction)op->function,
						.gridDimX = op->grid[0],
						.gridDimY = op->grid[1],
						.gridDimZ = op->grid[2],
						.blockDimX = op->threads[0],
						.blockDimY = op->threads[1],
						.blockDimZ = op->threads[2],
						.sharedMemBytes = op->dynamic_shared_bytes,
						.kernelParams = node->param_pointers,
						.kern = node->kernel,
						.ctx = (CUcontext)node->context };
	return CUDA_SUCCESS;
}

static bool is_device_address(uint64_t address)
{
	const struct range *range = range_find(address);

	return range && range_is_device(range);
}

/* For a captured copy: lines and planes as in the op. */
static void memcpy_from_op(const struct op_copy *op, CUDA_MEMCPY3D *copy)
{
	bool is_src_device = is_device_address(op->src), is_dst_device = is_device_address(op->dst);

	*copy = (CUDA_MEMCPY3D){ .WidthInBytes = op->width, .Height = op->height, .Depth = op->depth };
	if (op->height > 1 || op->depth > 1) {
		copy->srcPitch = op->src_pitch;
		copy->dstPitch = op->dst_pitch;
	}
	if (op->depth > 1) {
		copy->srcHeight = op->src_pitch ? op->src_slice / op->src_pitch : 0;
		copy->dstHeight = op->dst_pitch ? op->dst_slice / op->dst_pitch : 0;
	}
	copy->srcMemoryType = is_src_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	copy->dstMemoryType = is_dst_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	copy->srcDevice = is_src_device ? op->src : 0;
	copy->dstDevice = is_dst_device ? op->dst : 0;
	copy->srcHost = is_src_device ? NULL : (const void *)(uintptr_t)op->src;
	copy->dstHost = is_dst_device ? NULL : (void *)(uintptr_t)op->dst;
}

static void memory_from_node(const struct node *node, CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params)
{
	params->poolProps = node->pool;
	params->bytesize = node->op.alloc.bytes;
	params->dptr = node->op.alloc.address;
}

CUresult params_from_node(struct node *node, CUgraphNodeParams *params)
{
	const struct op *op = &node->op;

	memset(params, 0, sizeof(*params));
	params->type = params_type(op->kind);
	switch (op->kind) {
	case OP_KERNEL:
		return kernel_from_node(node, &params->kernel);
	case OP_COPY:
		params->memcpy.copyCtx = (CUcontext)node->context;
		if (node->copy)
			params->memcpy.copyParams = *node->copy;
		else
			memcpy_from_op(&op->copy, &params->memcpy.copyParams);
		break;
	case OP_FILL:
		params->memset = (CUDA_MEMSET_NODE_PARAMS_v2){ .dst = op->fill.dst,
							       .pitch = op->fill.pitch,
							       .value = op->fill.value,
							       .elementSize = op->fill.element_bytes,
							       .width = op->fill.width,
							       .height = op->fill.height,
							       .ctx = (CUcontext)node->context };
		break;
	case OP_HOST:
		params->host.fn = op->host.function;
		params->host.userData = op->host.argument;
		break;
	case OP_GRAPH:
		params->graph.graph = (CUgraph)op->child;
		break;
	case OP_WAIT:
		params->eventWait.event = (CUevent)op->event.event;
		break;
	case OP_RECORD:
		params->eventRecord.event = (CUevent)op->event.event;
		break;
	case OP_ALLOC:
		memory_from_node(node, &params->alloc);
		break;
	case OP_FREE:
		params->free.dptr = op->alloc.address;
		break;
	case OP_VALUES:
		params->memOp.ctx = (CUcontext)node->context;
		params->memOp.count = op->values.count;
		params->memOp.paramArray = op->values.list;
		break;
	case OP_CONDITION:
		condition_from_op(&op->condition, &params->conditional);
		params->conditional.ctx = (CUcontext)node->context;
		break;
	case OP_EMPTY:
	case OP_KINDS:
		break;
	}
	return CUDA_SUCCESS;
}

/* Operations of streams: copy them for graphs, and dispatch them. */
#include "soft/cuda/core.h"

#include <stdlib.h>
#include <string.h>

/* A copy, or NULL: out of memory. Allocates at least one byte. */
static void *copy_of(const void *from, size_t bytes)
{
	void *to = malloc(bytes ? bytes : 1);

	if (to && bytes)
		memcpy(to, from, bytes);
	return to;
}

CUresult op_clone(const struct op *from, struct op *to)
{
	*to = *from;
	switch (from->kind) {
	case OP_KERNEL:
		to->kernel.params = copy_of(from->kernel.params, from->kernel.function->kernel->param_bytes);
		return to->kernel.params ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	case OP_VALUES:
		to->values.list = copy_of(from->values.list, from->values.count * sizeof(*to->values.list));
		return to->values.list ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	case OP_RECORD:
	case OP_WAIT:
		event_keep(to->event.event);
		return CUDA_SUCCESS;
	case OP_ALLOC:
		graph_memory_keep(to->alloc.address);
		return CUDA_SUCCESS;
	case OP_GRAPH:
		return graph_clone(from->child, &to->child);
	case OP_CONDITION:
		return op_clone_condition(&from->condition, &to->condition);
	default:
		return CUDA_SUCCESS;
	}
}

void op_free(struct op *op)
{
	switch (op->kind) {
	case OP_KERNEL:
		free(op->kernel.params);
		break;
	case OP_VALUES:
		free(op->values.list);
		break;
	case OP_RECORD:
	case OP_WAIT:
		event_drop(op->event.event);
		break;
	case OP_ALLOC:
		graph_memory_drop(op->alloc.address);
		break;
	case OP_GRAPH:
		graph_free(op->child);
		break;
	case OP_CONDITION:
		op_free_condition(&op->condition);
		break;
	default:
		break;
	}
	*op = (struct op){ .kind = OP_EMPTY };
}

CUresult op_submit(struct stream *stream, const struct op *op)
{
	switch (op->kind) {
	case OP_KERNEL:
		return op_submit_kernel(stream, &op->kernel);
	case OP_COPY:
		return op_submit_copy(stream, &op->copy);
	case OP_FILL:
		return op_submit_fill(stream, &op->fill);
	case OP_HOST:
		return stream_host(stream, op->host.function, op->host.argument);
	case OP_RECORD:
		return op_submit_record(stream, op->event.event);
	case OP_WAIT:
		return op_submit_wait(stream, op->event.event);
	case OP_ALLOC:
		return op_submit_alloc(stream, &op->alloc);
	case OP_FREE:
		return op_submit_free(stream, &op->alloc);
	case OP_VALUES:
		return op_submit_values(stream, &op->values);
	case OP_GRAPH:
		return op_submit_graph(stream, op->child);
	case OP_CONDITION: /* only a node of an exec can be launched */
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_SUCCESS;
	}
}

CUresult stream_do(struct stream *stream, const struct op *op)
{
	CUresult result;

	if (stream->capture)
		return capture_op(stream, op);
	result = capture_forbids_implicit(stream);
	return result ? result : op_submit(stream, op);
}

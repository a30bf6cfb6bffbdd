/* Conditional nodes. The handle of a condition is the address of a word in host memory, which kernels set by
 * cudaGraphSetConditional. A stream that reaches such a node waits while the thread of host functions reads the
 * word, launches a body on a lane, and reads the word again when the body is done. */
#include <stdlib.h>

#include "soft/cuda/graph.h"
#include "soft/cuda/memory.h"

enum { BODIES_MAX = 4096, WORD_BYTES = 8 };

struct condition {
	unsigned uses; /* graphs and ops */
	struct context *context;
	uint64_t context_id;
	struct range *word; /* freed with the context */
	bool has_default;
	uint32_t value; /* at the begin of each launch, if has_default */
};

static uint64_t condition_handle(const struct condition *condition)
{
	return condition->word->base;
}

static bool has_word(const struct condition *condition)
{
	return context_has_id(condition->context, condition->context_id);
}

static void condition_drop(struct condition *condition)
{
	if (--condition->uses)
		return;
	if (has_word(condition))
		memory_free_host(condition->word);
	free(condition);
}

static CUresult graph_keep(struct graph *graph, struct condition *condition)
{
	struct condition **more =
		realloc(graph->conditions, (graph->condition_count + 1) * sizeof(struct condition *));

	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->conditions = more;
	graph->conditions[graph->condition_count++] = condition;
	condition->uses++;
	return CUDA_SUCCESS;
}

CUresult conditions_copy(const struct graph *from, struct graph *to)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < from->condition_count && !result; i++)
		result = graph_keep(to, from->conditions[i]);
	return result;
}

void conditions_release(struct graph *graph)
{
	for (size_t i = 0; i < graph->condition_count; i++)
		condition_drop(graph->conditions[i]);
	free(graph->conditions);
}

static CUresult condition_new(struct graph *graph, struct context *context, uint32_t value, bool has_default,
			      struct condition **condition)
{
	struct condition *new = calloc(1, sizeof(*new));
	CUresult result;

	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*new = (struct condition){ .uses = 1,
				   .context = context,
				   .context_id = context->id,
				   .has_default = has_default,
				   .value = value };
	result = memory_new_host(context, WORD_BYTES, RANGE_HOST,
				 CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, &new->word);
	if (result) {
		free(new);
		return result;
	}
	result = graph_keep(graph, new);
	condition_drop(new); /* the graph has it now, if it could be kept */
	*condition = new;
	return result;
}

EXPORT CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph_handle,
					       CUcontext context_handle, unsigned int value,
					       unsigned int flags)
{
	struct condition *condition;
	struct context *context;
	struct graph *graph;
	CUresult result;

	ENTER();
	result = handle && !(flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT) ? graph_find(graph_handle, &graph)
								    : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = params_find_context(context_handle, &context);
	if (!result)
		result = condition_new(graph, context, value, flags & CU_GRAPH_COND_ASSIGN_DEFAULT,
				       &condition);
	if (!result)
		*handle = condition_handle(condition);
	LEAVE(result);
}

/* ---- nodes */

/* Of the graph, or of one that it is a part of. */
static struct condition *find_condition(const struct graph *graph, uint64_t handle)
{
	for (; graph; graph = graph->parent ? graph->parent->graph : NULL)
		for (size_t i = 0; i < graph->condition_count; i++)
			if (has_word(graph->conditions[i]) &&
			    condition_handle(graph->conditions[i]) == handle)
				return graph->conditions[i];
	return NULL;
}

static bool is_shape(const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	switch (params->type) {
	case CU_GRAPH_COND_TYPE_IF:
		return params->size == 1 || params->size == 2; /* the second is for else */
	case CU_GRAPH_COND_TYPE_WHILE:
		return params->size == 1;
	case CU_GRAPH_COND_TYPE_SWITCH:
		return params->size && params->size <= BODIES_MAX;
	}
	return false;
}

CUresult condition_to_op(const struct graph *graph, CUDA_CONDITIONAL_NODE_PARAMS *params, struct op *op,
			 struct context **context)
{
	struct condition *condition = is_shape(params) ? find_condition(graph, params->handle) : NULL;
	CUresult result = params_find_context(params->ctx, context);

	if (!condition || result)
		return result ? result : CUDA_ERROR_INVALID_VALUE;
	*op = (struct op){ .kind = OP_CONDITION, .condition = { .type = params->type } };
	op->condition.bodies = calloc(params->size, sizeof(struct graph *));
	if (!op->condition.bodies)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->condition.condition = condition;
	condition->uses++;
	while (op->condition.count < params->size && !result) {
		result = graph_new(&op->condition.bodies[op->condition.count]);
		op->condition.count += !result;
	}
	if (result)
		op_free(op);
	else
		params->phGraph_out = (CUgraph *)op->condition.bodies;
	return result;
}

void condition_from_op(const struct op_condition *op, CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	params->handle = condition_handle(op->condition);
	params->type = op->type;
	params->size = op->count;
	params->phGraph_out = (CUgraph *)op->bodies;
}

CUresult op_clone_condition(const struct op_condition *from, struct op_condition *to)
{
	CUresult result = CUDA_SUCCESS;

	*to = *from;
	to->count = 0;
	to->bodies = calloc(from->count, sizeof(struct graph *));
	if (!to->bodies)
		return CUDA_ERROR_OUT_OF_MEMORY;
	to->condition->uses++;
	while (to->count < from->count && !result) {
		result = graph_clone(from->bodies[to->count], &to->bodies[to->count]);
		to->count += !result;
	}
	if (result)
		op_free_condition(to);
	return result;
}

void op_free_condition(struct op_condition *op)
{
	for (unsigned i = 0; i < op->count; i++)
		graph_free(op->bodies[i]);
	free(op->bodies);
	condition_drop(op->condition);
}

/* ---- launches */

CUresult node_make_bodies(struct node *node, CUDA_GRAPH_INSTANTIATE_PARAMS *why)
{
	const struct op_condition *op = &node->op.condition;
	CUresult result = CUDA_SUCCESS;

	node->bodies = calloc(op->count, sizeof(struct exec *));
	if (!node->bodies)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < op->count && !result; i++)
		result = exec_new(op->bodies[i], 0, &node->bodies[i], why);
	return result;
}

void node_free_bodies(struct node *node)
{
	for (unsigned i = 0; node->bodies && i < node->op.condition.count; i++)
		if (node->bodies[i])
			exec_free(node->bodies[i]);
	free(node->bodies);
	node->bodies = NULL;
}

bool graph_has_conditions(const struct graph *graph)
{
	for (size_t i = 0; i < graph->node_count; i++) {
		const struct op *op = &graph->nodes[i]->op;

		if (op->kind == OP_CONDITION || (op->kind == OP_GRAPH && graph_has_conditions(op->child)))
			return true;
	}
	return false;
}

CUresult conditions_begin(struct stream *stream, const struct graph *graph)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < graph->condition_count && !result; i++) {
		const struct condition *condition = graph->conditions[i];
		CUstreamBatchMemOpParams write = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32 };

		if (!condition->has_default || !has_word(condition))
			continue;
		write.writeValue.address = condition_handle(condition);
		write.writeValue.value = condition->value;
		result = op_submit_values(stream, &(struct op_values){ .count = 1, .list = &write });
	}
	for (size_t i = 0; i < graph->node_count && !result; i++)
		if (graph->nodes[i]->op.kind == OP_GRAPH)
			result = conditions_begin(stream, graph->nodes[i]->op.child);
	return result;
}

/* A launch of a node. The exec outlives it: exec_free waits. */
struct condition_run {
	const struct node *node;
	struct context *context;
	struct stream *lane; /* NULL: no body was launched yet */
};

static struct exec *choose(const struct node *node, uint32_t value)
{
	const struct op_condition *op = &node->op.condition;
	uint32_t body = op->type == CU_GRAPH_COND_TYPE_SWITCH ? value : !value;

	return body < op->count ? node->bodies[body] : NULL;
}

/* Returns false after the launch of a body, which is done at *next. */
static bool condition_step(void *argument, struct fence *next)
{
	struct condition_run *run = argument;
	const struct condition *condition = run->node->op.condition.condition;
	struct exec *body = NULL;
	CUresult result = CUDA_SUCCESS;

	if (has_word(condition) && (!run->lane || run->node->op.condition.type == CU_GRAPH_COND_TYPE_WHILE))
		body = choose(run->node, __atomic_load_n((uint32_t *)(uintptr_t)condition_handle(condition),
							 __ATOMIC_ACQUIRE));
	if (!body)
		return true;
	if (!run->lane)
		result = lane_take(run->context, body, &run->lane);
	if (!result)
		result = exec_launch(body, run->lane);
	if (result) {
		context_set_error(run->context, result);
		return true;
	}
	*next = stream_fence(run->lane);
	return false;
}

static void condition_end(void *argument)
{
	struct condition_run *run = argument;

	if (run->lane)
		lane_give_back(run->lane);
	free(run);
}

CUresult condition_submit(struct stream *stream, const struct node *node)
{
	struct condition_run *run = calloc(1, sizeof(*run));
	CUresult result;

	if (!run)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*run = (struct condition_run){ .node = node, .context = stream->context };
	result = stream_steps(stream, condition_step, condition_end, run);
	if (result)
		free(run);
	return result;
}

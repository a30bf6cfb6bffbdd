/* Execs: a copy of a graph, flattened and ordered. The nodes of a child become steps between two empty
 * steps. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/graph.h"

/* The limit of concurrent branches per context; each is a channel. */
enum { LANES_MAX = 4, FLAGS_KNOWN = 0xf };

struct flat {
	struct exec *exec;
	struct order_edge *edges;
	uint32_t step_count, edge_count;
};

static void count_steps(const struct graph *graph, uint64_t *steps, uint64_t *edges)
{
	*edges += graph->edge_count;
	for (size_t i = 0; i < graph->node_count; i++) {
		const struct op *op = &graph->nodes[i]->op;

		*steps += op->kind == OP_GRAPH ? 2 : 1;
		if (op->kind != OP_GRAPH)
			continue;
		*edges += 1 + 2 * op->child->node_count;
		count_steps(op->child, steps, edges);
	}
}

/* Steps of one context share a place. Place 0 is for the first context, or for nodes without a context. */
static uint32_t place_of(struct exec *exec, struct context *context)
{
	if (!context)
		return 0;
	if (exec->place_count == 1 && !exec->places[0].context)
		exec->place_count = 0;
	for (uint32_t i = 0; i < exec->place_count; i++)
		if (exec->places[i].context == context)
			return i;
	exec->places[exec->place_count] = (struct plan_place){ context, context->id };
	return exec->place_count++;
}

static uint32_t add_step(struct flat *flat, struct node *node)
{
	struct exec *exec = flat->exec;
	bool is_empty = !node || node->op.kind == OP_EMPTY;
	uint32_t step = flat->step_count++;

	exec->nodes[step] = node;
	exec->order.steps[step].is_empty = is_empty;
	exec->order.steps[step].place = is_empty ? 0 : place_of(exec, node->context);
	return step;
}

static void add_edge(struct flat *flat, uint32_t from, uint32_t to)
{
	flat->edges[flat->edge_count++] = (struct order_edge){ from, to };
}

/* The first and the last step of a node; they differ only for children. */
struct span {
	uint32_t begin, end;
};

static bool flatten(struct flat *flat, const struct graph *graph, uint32_t begin, uint32_t end);

static bool flatten_child(struct flat *flat, const struct graph *child, struct span *span)
{
	span->begin = add_step(flat, NULL);
	span->end = add_step(flat, NULL);
	add_edge(flat, span->begin, span->end);
	return flatten(flat, child, span->begin, span->end);
}

/* Add all steps of a graph, after `begin` and before `end` unless these are ORDER_NONE. */
static bool flatten(struct flat *flat, const struct graph *graph, uint32_t begin, uint32_t end)
{
	struct span *spans = calloc(graph->node_count ? graph->node_count : 1, sizeof(*spans));
	bool is_done = spans != NULL;

	for (size_t i = 0; i < graph->node_count && is_done; i++) {
		struct node *node = graph->nodes[i];

		if (node->op.kind == OP_GRAPH)
			is_done = flatten_child(flat, node->op.child, &spans[i]);
		else
			spans[i].begin = spans[i].end = add_step(flat, node);
	}
	for (size_t i = 0; i < graph->node_count && is_done && begin != ORDER_NONE; i++) {
		add_edge(flat, begin, spans[i].begin);
		add_edge(flat, spans[i].end, end);
	}
	for (size_t i = 0; i < graph->edge_count && is_done; i++)
		add_edge(flat, spans[graph->edges[i].from->index].end,
			 spans[graph->edges[i].to->index].begin);
	free(spans);
	return is_done;
}

static CUresult exec_make_room(struct exec *exec, struct flat *flat)
{
	uint64_t steps = 0, edges = 0;

	count_steps(exec->graph, &steps, &edges);
	if (steps >= UINT32_MAX || edges >= UINT32_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->order.count = (uint32_t)steps;
	exec->order.steps = calloc(steps + 1, sizeof(*exec->order.steps));
	exec->nodes = calloc(steps + 1, sizeof(struct node *));
	exec->fences = calloc(steps + 1, sizeof(*exec->fences));
	exec->places = calloc(steps + 1, sizeof(*exec->places));
	exec->by_origin = calloc(steps + 1, sizeof(struct node *));
	flat->edges = calloc(edges + 1, sizeof(*flat->edges));
	exec->place_count = 1;
	return exec->order.steps && exec->nodes && exec->fences && exec->places && exec->by_origin &&
			       flat->edges
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_OUT_OF_MEMORY;
}

static int compare_origins(const void *a, const void *b)
{
	const struct node *const *left = a, *const *right = b;

	return ((*left)->origin > (*right)->origin) - ((*left)->origin < (*right)->origin);
}

static void collect_nodes(struct exec *exec, const struct graph *graph)
{
	for (size_t i = 0; i < graph->node_count; i++) {
		exec->by_origin[exec->node_count++] = graph->nodes[i];
		if (graph->nodes[i]->op.kind == OP_GRAPH)
			collect_nodes(exec, graph->nodes[i]->op.child);
	}
}

/* Report the node of the cycle in the original graph. */
static void tell_cycle(const struct exec *exec, uint32_t bad, CUDA_GRAPH_INSTANTIATE_PARAMS *why)
{
	uint64_t origin = bad < exec->order.count && exec->nodes[bad] ? exec->nodes[bad]->origin : 0;

	why->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
	for (size_t i = 0; i < exec->made_of->node_count; i++)
		if (exec->made_of->nodes[i]->id == origin)
			why->hErrNode_out = (CUgraphNode)exec->made_of->nodes[i];
}

static CUresult exec_plan(struct exec *exec, CUDA_GRAPH_INSTANTIATE_PARAMS *why)
{
	struct flat flat = { .exec = exec };
	CUresult result = exec_make_room(exec, &flat);
	uint32_t bad = ORDER_NONE;
	int rc;

	if (!result && !flatten(&flat, exec->graph, ORDER_NONE, ORDER_NONE))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result) {
		rc = order_make(&exec->order, flat.edges, flat.edge_count, LANES_MAX, &bad);
		if (rc == -EINVAL)
			tell_cycle(exec, bad, why);
		if (rc)
			result = rc == -EINVAL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	}
	free(flat.edges);
	if (result)
		return result;
	collect_nodes(exec, exec->graph);
	qsort(exec->by_origin, exec->node_count, sizeof(struct node *), compare_origins);
	return CUDA_SUCCESS;
}

static CUresult exec_check(const struct graph *graph, uint64_t flags, CUDA_GRAPH_INSTANTIATE_PARAMS *why)
{
	if (flags & ~(uint64_t)FLAGS_KNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) { /* kernels cannot launch graphs */
		why->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
		why->hErrNode_out = graph->node_count ? (CUgraphNode)graph->nodes[0] : NULL;
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return graph->exec_count && graph_has_memory(graph) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult exec_new(struct graph *graph, uint64_t flags, struct exec **exec, CUDA_GRAPH_INSTANTIATE_PARAMS *why)
{
	struct exec *new;
	CUresult result;

	why->hErrNode_out = NULL;
	why->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
	result = exec_check(graph, flags, why);
	if (result)
		return result;
	new = calloc(1, sizeof(*new));
	if (!new || !handle_add(new, HANDLE_EXEC)) {
		free(new);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	new->flags = flags;
	new->made_of = graph;
	new->made_of_id = graph->id;
	graph->exec_count++;
	result = graph_copy(graph, &new->graph);
	if (!result)
		result = exec_plan(new, why);
	for (uint32_t i = 0; i < new->node_count && !result; i++)
		if (new->by_origin[i]->op.kind == OP_CONDITION)
			result = node_make_bodies(new->by_origin[i], why);
	if (result) {
		exec_free(new);
		return result;
	}
	why->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	*exec = new;
	return CUDA_SUCCESS;
}

struct fence exec_done(const struct exec *exec)
{
	if (!context_has_id(exec->done_context, exec->done_context_id))
		return (struct fence){ 0 };
	return exec->done;
}

/* User objects, memory and bodies of conditional nodes are kept until launches that use them are done. A launch has copies
 * of everything else. */
void exec_free(struct exec *exec)
{
	struct graph *made_of = exec->made_of;

	handle_remove(exec);
	if (exec->graph &&
	    (exec->graph->object_count || graph_has_memory(exec->graph) || graph_has_conditions(exec->graph)))
		fence_wait(exec_done(exec));
	if (handle_kind(made_of) == HANDLE_GRAPH && made_of->id == exec->made_of_id)
		made_of->exec_count--;
	lane_forget(exec);
	graph_free(exec->graph);
	order_free(&exec->order);
	free(exec->nodes);
	free(exec->fences);
	free(exec->places);
	free(exec->by_origin);
	free(exec);
}

CUresult exec_find(CUgraphExec handle, struct exec **exec)
{
	if (handle_kind(handle) != HANDLE_EXEC)
		return CUDA_ERROR_INVALID_VALUE;
	*exec = (struct exec *)handle;
	return CUDA_SUCCESS;
}

CUresult exec_find_node(struct exec *exec, CUgraphNode handle, struct node **node)
{
	struct node *original, key, *key_at = &key, **found;
	CUresult result = node_find(handle, &original);

	if (result)
		return result;
	key.origin = original->id;
	found = bsearch(&key_at, exec->by_origin, exec->node_count, sizeof(struct node *), compare_origins);
	if (!found)
		return CUDA_ERROR_INVALID_VALUE;
	*node = *found;
	return CUDA_SUCCESS;
}

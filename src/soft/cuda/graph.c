/* Graphs, nodes and edges: create, copy, destroy. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/graph.h"

static uint64_t next_id = 1;

CUresult graph_new(struct graph **graph)
{
	struct graph *new = calloc(1, sizeof(*new));

	if (!new || !handle_add(new, HANDLE_GRAPH)) {
		free(new);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	new->id = next_id++;
	*graph = new;
	return CUDA_SUCCESS;
}

CUresult graph_find(CUgraph handle, struct graph **graph)
{
	if (handle_kind(handle) != HANDLE_GRAPH)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = (struct graph *)handle;
	return CUDA_SUCCESS;
}

CUresult node_find(CUgraphNode handle, struct node **node)
{
	if (handle_kind(handle) != HANDLE_NODE)
		return CUDA_ERROR_INVALID_VALUE;
	*node = (struct node *)handle;
	return CUDA_SUCCESS;
}

static bool graph_make_room(struct graph *graph)
{
	size_t room = graph->node_room ? graph->node_room * 2 : 8;
	struct node **more;

	if (graph->node_count < graph->node_room)
		return true;
	more = realloc(graph->nodes, room * sizeof(struct node *));
	if (!more)
		return false;
	graph->nodes = more;
	graph->node_room = room;
	return true;
}

CUresult graph_add_node(struct graph *graph, struct op *op, struct context *context, struct node **node)
{
	struct node *new = calloc(1, sizeof(*new));

	if (!new || !graph_make_room(graph) || !handle_add(new, HANDLE_NODE)) {
		free(new);
		op_free(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	new->graph = graph;
	new->id = next_id++;
	new->index = graph->node_count;
	new->op = *op;
	new->context = context;
	if (op->kind == OP_GRAPH)
		op->child->parent = new;
	for (unsigned i = 0; op->kind == OP_CONDITION && i < op->condition.count; i++)
		op->condition.bodies[i]->parent = new;
	graph->nodes[graph->node_count++] = new;
	*node = new;
	return CUDA_SUCCESS;
}

static void node_free(struct node *node)
{
	handle_remove(node);
	if (node->op.kind == OP_CONDITION)
		node_free_bodies(node);
	op_free(&node->op);
	free(node->param_pointers);
	free(node->copy);
	free(node->attributes);
	free(node);
}

void graph_remove_node(struct node *node)
{
	struct graph *graph = node->graph;
	size_t kept = 0;

	for (size_t i = 0; i < graph->edge_count; i++)
		if (graph->edges[i].from != node && graph->edges[i].to != node)
			graph->edges[kept++] = graph->edges[i];
	graph->edge_count = kept;
	for (size_t i = node->index + 1; i < graph->node_count; i++) {
		graph->nodes[i - 1] = graph->nodes[i];
		graph->nodes[i - 1]->index = i - 1;
	}
	graph->node_count--;
	node_free(node);
}

CUresult graph_add_edge(struct graph *graph, struct node *from, struct node *to, const CUgraphEdgeData *data)
{
	size_t room = graph->edge_room ? graph->edge_room * 2 : 8;

	if (graph->edge_count == graph->edge_room) {
		struct edge *more = realloc(graph->edges, room * sizeof(*more));

		if (!more)
			return CUDA_ERROR_OUT_OF_MEMORY;
		graph->edges = more;
		graph->edge_room = room;
	}
	graph->edges[graph->edge_count++] =
		(struct edge){ .from = from, .to = to, .data = data ? *data : (CUgraphEdgeData){ 0 } };
	return CUDA_SUCCESS;
}

struct edge *graph_find_edge(const struct graph *graph, const struct node *from, const struct node *to)
{
	for (size_t i = 0; i < graph->edge_count; i++)
		if (graph->edges[i].from == from && graph->edges[i].to == to)
			return &graph->edges[i];
	return NULL;
}

bool graph_has_memory(const struct graph *graph)
{
	for (size_t i = 0; i < graph->node_count; i++) {
		const struct op *op = &graph->nodes[i]->op;

		if (op->kind == OP_ALLOC || op->kind == OP_FREE)
			return true;
		if (op->kind == OP_GRAPH && graph_has_memory(op->child))
			return true;
	}
	return false;
}

void graph_free(struct graph *graph)
{
	if (!graph)
		return;
	for (size_t i = 0; i < graph->node_count; i++)
		node_free(graph->nodes[i]);
	objects_release(graph);
	conditions_release(graph);
	handle_remove(graph);
	free(graph->nodes);
	free(graph->edges);
	free(graph);
}

static CUresult node_copy_details(const struct node *from, struct node *to)
{
	to->origin = from->id;
	to->is_disabled = from->is_disabled;
	to->kernel = from->kernel;
	to->pool = from->pool;
	if (from->copy) {
		to->copy = malloc(sizeof(*to->copy));
		if (!to->copy)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*to->copy = *from->copy;
	}
	if (!from->attribute_count)
		return CUDA_SUCCESS;
	to->attributes = malloc(from->attribute_count * sizeof(*to->attributes));
	if (!to->attributes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(to->attributes, from->attributes, from->attribute_count * sizeof(*to->attributes));
	to->attribute_count = from->attribute_count;
	return CUDA_SUCCESS;
}

bool node_has_function(const struct node *node)
{
	return handle_kind(node->op.kernel.function) == HANDLE_FUNCTION;
}

static CUresult node_copy(const struct node *from, struct graph *graph)
{
	struct op op = { .kind = from->op.kind };
	struct node *node;
	CUresult result;

	if (op.kind == OP_KERNEL && !node_has_function(from))
		return CUDA_ERROR_INVALID_HANDLE;
	if (op.kind == OP_GRAPH) /* op_clone refuses memory nodes in a child */
		result = graph_copy(from->op.child, &op.child);
	else
		result = op_clone(&from->op, &op);
	if (result)
		return result;
	result = graph_add_node(graph, &op, from->context, &node);
	return result ? result : node_copy_details(from, node);
}

CUresult graph_copy(const struct graph *from, struct graph **to)
{
	struct graph *copy;
	CUresult result = graph_new(&copy);

	if (result)
		return result;
	copy->origin = from->id;
	for (size_t i = 0; i < from->node_count && !result; i++)
		result = node_copy(from->nodes[i], copy);
	for (size_t i = 0; i < from->edge_count && copy->nodes && !result; i++) {
		const struct edge *edge = &from->edges[i];

		result = graph_add_edge(copy, copy->nodes[edge->from->index], copy->nodes[edge->to->index],
					&edge->data);
	}
	if (!result)
		result = objects_copy(from, copy);
	if (!result)
		result = conditions_copy(from, copy);
	if (result) {
		graph_free(copy);
		return result;
	}
	*to = copy;
	return CUDA_SUCCESS;
}

CUresult graph_clone(const struct graph *from, struct graph **to)
{
	return graph_has_memory(from) ? CUDA_ERROR_NOT_SUPPORTED : graph_copy(from, to);
}

static struct node *find_copy_inside(const struct op *op, const struct node *node)
{
	struct node *found = NULL;

	if (op->kind == OP_GRAPH)
		return graph_find_copy(op->child, node);
	for (unsigned i = 0; op->kind == OP_CONDITION && i < op->condition.count && !found; i++)
		found = graph_find_copy(op->condition.bodies[i], node);
	return found;
}

struct node *graph_find_copy(const struct graph *copy, const struct node *node)
{
	for (size_t i = 0; i < copy->node_count; i++) {
		struct node *candidate = copy->nodes[i], *inner;

		if (candidate->origin == node->id)
			return candidate;
		inner = find_copy_inside(&candidate->op, node);
		if (inner)
			return inner;
	}
	return NULL;
}

static bool graph_is_captured(const struct graph *graph);

/* A capture is building a body of the node, or of one inside it. */
static bool node_is_captured(const struct node *node)
{
	const struct op *op = &node->op;
	bool is_captured = op->kind == OP_GRAPH && graph_is_captured(op->child);

	for (unsigned i = 0; op->kind == OP_CONDITION && i < op->condition.count && !is_captured; i++)
		is_captured = graph_is_captured(op->condition.bodies[i]);
	return is_captured;
}

static bool graph_is_captured(const struct graph *graph)
{
	bool is_captured = graph->capture;

	for (size_t i = 0; i < graph->node_count && !is_captured; i++)
		is_captured = node_is_captured(graph->nodes[i]);
	return is_captured;
}

EXPORT CUresult cuGraphCreate(CUgraph *handle, unsigned int flags)
{
	struct graph *graph;
	CUresult result;

	ENTER();
	if (!handle || flags)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = graph_new(&graph);
	if (!result)
		*handle = (CUgraph)graph;
	LEAVE(result);
}

EXPORT CUresult cuGraphDestroy(CUgraph handle)
{
	struct graph *graph;
	CUresult result;

	ENTER();
	result = graph_find(handle, &graph);
	if (!result && graph->parent) /* the node owns a child */
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && graph_is_captured(graph))
		result = CUDA_ERROR_ILLEGAL_STATE;
	if (!result)
		graph_free(graph);
	return objects_leave(result);
}

EXPORT CUresult cuGraphClone(CUgraph *clone, CUgraph original)
{
	struct graph *graph, *copy;
	CUresult result;

	ENTER();
	result = clone ? graph_find(original, &graph) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = graph_clone(graph, &copy);
	if (!result)
		*clone = (CUgraph)copy;
	return objects_leave(result);
}

EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode original, CUgraph clone)
{
	struct graph *graph;
	struct node *node, *copy;
	CUresult result;

	ENTER();
	result = found ? graph_find(clone, &graph) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = node_find(original, &node);
	if (result)
		LEAVE(result);
	copy = graph_find_copy(graph, node);
	if (!copy)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	*found = (CUgraphNode)copy;
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphDestroyNode(CUgraphNode handle)
{
	struct node *node;
	CUresult result;

	ENTER();
	result = node_find(handle, &node);
	if (!result && graph_has_memory(node->graph))
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (!result && (node->graph->capture || node_is_captured(node)))
		result = CUDA_ERROR_ILLEGAL_STATE;
	if (!result)
		graph_remove_node(node);
	return objects_leave(result);
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
	struct node *node;

	LEAVE_WITH(type, node_find(handle, &node), params_type(node->op.kind));
}

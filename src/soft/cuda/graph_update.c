/* Update an exec: one node, or all nodes from a graph of the same topology.
 *
 * Nodes are paired from the ends: the end nodes of both graphs in order, then the dependencies of paired
 * nodes in the order of their edges, as the API documents it. Everything is checked before anything is
 * changed. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/graph.h"
#include "soft/cuda/memory.h"

/* ---- allowed changes */

/* Whether both addresses are the same kind of memory, on the same GPU. */
static bool is_like(uint64_t old_address, uint64_t address)
{
	const struct range *old = range_find(old_address), *new = range_find(address);

	if (!old || !new)
		return old == new;
	return range_is_device(old) == range_is_device(new) &&
	       (!range_is_device(old) || old->gpu == new->gpu);
}

static bool is_flat(const struct op_copy *copy)
{
	return copy->height <= 1 && copy->depth <= 1;
}

static bool is_same_shape(const struct op_copy *a, const struct op_copy *b)
{
	return a->width == b->width && a->height == b->height && a->depth == b->depth;
}

static CUgraphExecUpdateResult check_copy(const struct op_copy *old, const struct op_copy *new)
{
	if (!is_like(old->src, new->src) || !is_like(old->dst, new->dst))
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	if (!(is_flat(old) && is_flat(new)) && !is_same_shape(old, new))
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult check_fill(const struct op_fill *old, const struct op_fill *new)
{
	bool is_2d = old->height > 1;

	if (!is_like(old->dst, new->dst) || old->height != new->height)
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	if (is_2d && (old->width != new->width || old->pitch != new->pitch ||
		      old->element_bytes != new->element_bytes))
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static bool is_same_values(const struct op_values *old, const struct op_values *new)
{
	return old->count == new->count;
}

CUgraphExecUpdateResult update_check(const struct node *old, const struct op *op,
				     const struct context *context)
{
	if (old->op.kind != op->kind)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	if (op->kind == OP_KERNEL && old->context != context)
		return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
	if (old->context != context)
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	switch (op->kind) {
	case OP_COPY:
		return check_copy(&old->op.copy, &op->copy);
	case OP_FILL:
		return check_fill(&old->op.fill, &op->fill);
	case OP_VALUES:
		return is_same_values(&old->op.values, &op->values)
			       ? CU_GRAPH_EXEC_UPDATE_SUCCESS
			       : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	case OP_ALLOC:
	case OP_FREE:
		return old->op.alloc.bytes == op->alloc.bytes ? CU_GRAPH_EXEC_UPDATE_SUCCESS
							      : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	case OP_CONDITION: /* bodies are instantiated with the exec */
		return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	default:
		return CU_GRAPH_EXEC_UPDATE_SUCCESS;
	}
}

static CUgraphExecUpdateResult check_pair(const struct node *old, const struct node *new)
{
	CUgraphExecUpdateResult result = update_check(old, &new->op, new->context);

	if (!result && new->op.kind == OP_KERNEL &&
	    old->op.kernel.is_cooperative != new->op.kernel.is_cooperative)
		result = CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
	return result;
}

/* ---- pairing */

struct pairing {
	const struct graph *old, *new;
	struct node **partner; /* of each node of old, in new; NULL: none yet */
	struct node **back;    /* of each node of new, in old */
	struct node **todo;    /* paired nodes of old whose dependencies are not yet paired */
	size_t todo_count;
	CUgraphExecUpdateResultInfo *info;
};

static bool pair_refuse(struct pairing *pairing, CUgraphExecUpdateResult result, struct node *node,
			struct node *from)
{
	pairing->info->result = result;
	pairing->info->errorNode = (CUgraphNode)node;
	pairing->info->errorFromNode = (CUgraphNode)from;
	return false;
}

/* `below`: the node of new that depends on this one; NULL: an end node. */
static bool pair_nodes(struct pairing *pairing, struct node *old, struct node *new, struct node *below)
{
	struct node *partner = pairing->partner[old->index];

	if (partner == new &&new)
		return true;
	if (partner || pairing->back[new->index])
		return pair_refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, below ? below : new,
				   below ? new : NULL);
	pairing->partner[old->index] = new;
	pairing->back[new->index] = old;
	pairing->todo[pairing->todo_count++] = old;
	return true;
}

static struct node *next_dependency(const struct graph *graph, const struct node *node, size_t *at)
{
	for (; *at < graph->edge_count; ++*at)
		if (graph->edges[*at].to == node)
			return graph->edges[(*at)++].from;
	return NULL;
}

static bool pair_dependencies(struct pairing *pairing, struct node *old)
{
	struct node *new = pairing->partner[old->index];
	size_t old_at = 0, new_at = 0;

	for (;;) {
		struct node *old_from = next_dependency(pairing->old, old, &old_at);
		struct node *new_from = next_dependency(pairing->new, new, &new_at);

		if (!old_from && !new_from)
			return true;
		if (!old_from || !new_from)
			return pair_refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new, NULL);
		if (!pair_nodes(pairing, old_from, new_from, new))
			return false;
	}
}

/* The next node without dependents, in order. */
static struct node *next_end(const struct graph *graph, const bool *has_dependents, size_t *at)
{
	for (; *at < graph->node_count; ++*at)
		if (!has_dependents[*at])
			return graph->nodes[(*at)++];
	return NULL;
}

static bool pair_ends(struct pairing *pairing, const bool *old_inner, const bool *new_inner)
{
	size_t old_at = 0, new_at = 0;

	for (;;) {
		struct node *old = next_end(pairing->old, old_inner, &old_at);
		struct node *new = next_end(pairing->new, new_inner, &new_at);

		if (!old && !new)
			return true;
		if (!old || !new)
			return pair_refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new, NULL);
		if (!pair_nodes(pairing, old, new, NULL))
			return false;
	}
}

static bool *find_inner(const struct graph *graph)
{
	bool *inner = calloc(graph->node_count + 1, sizeof(*inner));

	for (size_t i = 0; inner && i < graph->edge_count; i++)
		inner[graph->edges[i].from->index] = true;
	return inner;
}

static bool pair_all(struct pairing *pairing)
{
	bool *old_inner = find_inner(pairing->old), *new_inner = find_inner(pairing->new);
	bool is_same = old_inner && new_inner && pair_ends(pairing, old_inner, new_inner);

	for (size_t i = 0; i < pairing->todo_count && is_same; i++)
		is_same = pair_dependencies(pairing, pairing->todo[i]);
	free(old_inner);
	free(new_inner);
	/* No end node leads to a cycle in the new graph. */
	if (is_same && pairing->todo_count < pairing->old->node_count)
		return pair_refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
	return is_same;
}

/* ---- application */

/* The changes of an exec and its children are collected, then applied. */
struct change {
	struct node *node;
	struct node *from;
	struct op op;
};
struct changes {
	struct change *list;
	size_t count, room;
};

static bool changes_add(struct changes *changes, struct node *node, struct node *from)
{
	struct change *change;

	if (changes->count == changes->room) {
		size_t room = changes->room ? changes->room * 2 : 32;
		struct change *more = realloc(changes->list, room * sizeof(*more));

		if (!more)
			return false;
		changes->list = more;
		changes->room = room;
	}
	change = &changes->list[changes->count];
	*change = (struct change){ .node = node, .from = from };
	if (from->op.kind == OP_KERNEL && !node_has_function(from))
		return false;
	if (op_clone(&from->op, &change->op))
		return false;
	changes->count++;
	return true;
}

static bool collect(const struct graph *old, const struct graph *new, struct changes *changes,
		    CUgraphExecUpdateResultInfo *info);

static bool collect_pair(struct pairing *pairing, struct node *old, struct node *new, struct changes *changes)
{
	CUgraphExecUpdateResult result = check_pair(old, new);

	if (result)
		return pair_refuse(pairing, result, new, NULL);
	if (old->op.kind == OP_GRAPH)
		return collect(old->op.child, new->op.child, changes, pairing->info);
	if (changes_add(changes, old, new))
		return true;
	return pair_refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR, NULL, NULL);
}

static bool collect(const struct graph *old, const struct graph *new, struct changes *changes,
		    CUgraphExecUpdateResultInfo *info)
{
	struct pairing pairing = { .old = old, .new = new, .info = info };
	size_t room = old->node_count + 1;
	bool is_same;

	if (old->node_count != new->node_count)
		return pair_refuse(&pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
	pairing.partner = calloc(room, sizeof(struct node *));
	pairing.back = calloc(room, sizeof(struct node *));
	pairing.todo = calloc(room, sizeof(struct node *));
	is_same = pairing.partner && pairing.back && pairing.todo && pair_all(&pairing);
	for (size_t i = 0; i < old->node_count && is_same; i++)
		is_same = collect_pair(&pairing, old->nodes[i], pairing.partner[i], changes);
	free(pairing.partner);
	free(pairing.back);
	free(pairing.todo);
	return is_same;
}

static void change_apply(struct change *change)
{
	struct node *node = change->node;

	node->kernel = change->from->kernel;
	node_replace_op(node, &change->op, node->context);
}

CUresult update_graph(struct graph *old, const struct graph *new, CUgraphExecUpdateResultInfo *info)
{
	struct changes changes = { 0 };
	bool is_possible;

	memset(info, 0, sizeof(*info));
	info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
	is_possible = collect(old, new, &changes, info);
	for (size_t i = 0; i < changes.count; i++) {
		if (is_possible)
			change_apply(&changes.list[i]);
		else
			op_free(&changes.list[i].op);
	}
	free(changes.list);
	if (is_possible)
		info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	return is_possible ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec_handle, CUgraph graph_handle,
				     CUgraphExecUpdateResultInfo *info)
{
	struct graph *graph;
	struct exec *exec;
	CUresult result;

	ENTER();
	result = info ? exec_find(exec_handle, &exec) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = graph_find(graph_handle, &graph);
	if (!result)
		result = update_graph(exec->graph, graph, info);
	else if (info)
		*info = (CUgraphExecUpdateResultInfo){ .result = CU_GRAPH_EXEC_UPDATE_ERROR };
	return objects_leave(result);
}

EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *errorNode,
				  CUgraphExecUpdateResult *updateResult)
{
	CUgraphExecUpdateResultInfo info = { 0 };
	CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);

	if (errorNode)
		*errorNode = info.errorNode;
	if (updateResult)
		*updateResult = info.result;
	return result;
}

/* Nodes and edges: query, add and remove. */
#include "soft/cuda/graph.h"

/* Results of queries: an array with room for *room entries (NULL: only the count is wanted). The entries are
 * filled in; the rest is cleared. */
struct answer {
	CUgraphNode *from, *to;
	CUgraphEdgeData *data;
	size_t room, count;
	bool has_data; /* an edge has data, requested or not */
};

static void answer_add(struct answer *answer, struct node *from, struct node *to, const CUgraphEdgeData *data)
{
	if (data && (data->from_port || data->to_port || data->type))
		answer->has_data = true;
	if (answer->count < answer->room) {
		if (answer->from)
			answer->from[answer->count] = (CUgraphNode)from;
		if (answer->to)
			answer->to[answer->count] = (CUgraphNode)to;
		if (answer->data && data)
			answer->data[answer->count] = *data;
	}
	answer->count++;
}

/* Without an array, only the count is returned. */
static CUresult answer_end(struct answer *answer, size_t *count, bool is_counting)
{
	if (is_counting) {
		*count = answer->count;
		return CUDA_SUCCESS;
	}
	for (size_t i = answer->count; i < answer->room; i++) {
		if (answer->from)
			answer->from[i] = NULL;
		if (answer->to)
			answer->to[i] = NULL;
	}
	*count = answer->count < answer->room ? answer->count : answer->room;
	return answer->has_data && !answer->data ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
	struct answer answer = { .from = nodes, .room = nodes && count ? *count : 0 };
	struct graph *graph;
	CUresult result;

	ENTER();
	result = count ? graph_find(handle, &graph) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	for (size_t i = 0; i < graph->node_count; i++)
		answer_add(&answer, graph->nodes[i], NULL, NULL);
	LEAVE(answer_end(&answer, count, !nodes));
}

static bool is_root(const struct graph *graph, const struct node *node)
{
	for (size_t i = 0; i < graph->edge_count; i++)
		if (graph->edges[i].to == node)
			return false;
	return true;
}

EXPORT CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
	struct answer answer = { .from = nodes, .room = nodes && count ? *count : 0 };
	struct graph *graph;
	CUresult result;

	ENTER();
	result = count ? graph_find(handle, &graph) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	for (size_t i = 0; i < graph->node_count; i++)
		if (is_root(graph, graph->nodes[i]))
			answer_add(&answer, graph->nodes[i], NULL, NULL);
	LEAVE(answer_end(&answer, count, !nodes));
}

static CUresult get_edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
			  size_t *count)
{
	struct answer answer = { .from = from, .to = to, .data = data };
	struct graph *graph;
	CUresult result;

	ENTER();
	result = count && !from == !to ? graph_find(handle, &graph) : CUDA_ERROR_INVALID_VALUE;
	if (!result && data && !from)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	answer.room = from ? *count : 0;
	for (size_t i = 0; i < graph->edge_count; i++)
		answer_add(&answer, graph->edges[i].from, graph->edges[i].to, &graph->edges[i].data);
	LEAVE(answer_end(&answer, count, !from));
}

EXPORT CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
				   CUgraphEdgeData *edgeData, size_t *numEdges)
{
	return get_edges(graph, from, to, edgeData, numEdges);
}

EXPORT CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	return get_edges(graph, from, to, NULL, numEdges);
}

static CUresult get_neighbours(CUgraphNode handle, bool is_before, CUgraphNode *nodes, CUgraphEdgeData *data,
			       size_t *count)
{
	struct answer answer = { .from = nodes, .data = data };
	struct node *node;
	CUresult result;

	ENTER();
	result = count && (nodes || !data) ? node_find(handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	answer.room = nodes ? *count : 0;
	for (size_t i = 0; i < node->graph->edge_count; i++) {
		struct edge *edge = &node->graph->edges[i];

		if ((is_before ? edge->to : edge->from) == node)
			answer_add(&answer, is_before ? edge->from : edge->to, NULL, &edge->data);
	}
	LEAVE(answer_end(&answer, count, !nodes));
}

EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies,
					      CUgraphEdgeData *edgeData, size_t *numDependencies)
{
	return get_neighbours(node, true, dependencies, edgeData, numDependencies);
}

EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies,
					   size_t *numDependencies)
{
	return get_neighbours(node, true, dependencies, NULL, numDependencies);
}

EXPORT CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *dependentNodes,
						CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
	return get_neighbours(node, false, dependentNodes, edgeData, numDependentNodes);
}

EXPORT CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependentNodes,
					     size_t *numDependentNodes)
{
	return get_neighbours(node, false, dependentNodes, NULL, numDependentNodes);
}

/* Cycles are detected at instantiation, as in CUDA (measured: driver 580). */
static CUresult add_dependency(struct graph *graph, CUgraphNode from, CUgraphNode to,
			       const CUgraphEdgeData *data)
{
	CUresult result = edges_check(graph, &from, data, 1);

	if (!result)
		result = edges_check(graph, &to, NULL, 1);
	if (result)
		return result;
	if (from == to || graph_find_edge(graph, (struct node *)from, (struct node *)to))
		return CUDA_ERROR_INVALID_VALUE;
	return graph_add_edge(graph, (struct node *)from, (struct node *)to, data);
}

/* Adds all or none. */
static CUresult add_dependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
				 const CUgraphEdgeData *data, size_t count)
{
	struct graph *graph;
	size_t before;
	CUresult result;

	ENTER();
	result = graph_find(handle, &graph);
	if (!result && count && (!from || !to))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	before = graph->edge_count;
	for (size_t i = 0; i < count && !result; i++)
		result = add_dependency(graph, from[i], to[i], data ? &data[i] : NULL);
	if (result)
		graph->edge_count = before;
	LEAVE(result);
}

EXPORT CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
					  const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	return add_dependencies(graph, from, to, edgeData, numDependencies);
}

EXPORT CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				       size_t numDependencies)
{
	return add_dependencies(graph, from, to, NULL, numDependencies);
}

static bool is_same_data(const CUgraphEdgeData *a, const CUgraphEdgeData *b)
{
	return a->from_port == b->from_port && a->to_port == b->to_port && a->type == b->type;
}

static CUresult remove_dependency(struct graph *graph, CUgraphNode from, CUgraphNode to,
				  const CUgraphEdgeData *data)
{
	static const CUgraphEdgeData none;
	struct edge *edge;

	if (handle_kind(from) != HANDLE_NODE || handle_kind(to) != HANDLE_NODE)
		return CUDA_ERROR_INVALID_VALUE;
	edge = graph_find_edge(graph, (struct node *)from, (struct node *)to);
	if (!edge || !is_same_data(&edge->data, data ? data : &none))
		return CUDA_ERROR_INVALID_VALUE;
	graph->edge_count--;
	for (; edge < graph->edges + graph->edge_count; edge++)
		edge[0] = edge[1];
	return CUDA_SUCCESS;
}

static CUresult remove_dependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
				    const CUgraphEdgeData *data, size_t count)
{
	struct graph *graph;
	CUresult result;

	ENTER();
	result = graph_find(handle, &graph);
	if (!result && count && (!from || !to))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && graph_has_memory(graph))
		result = CUDA_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < count && !result; i++)
		result = remove_dependency(graph, from[i], to[i], data ? &data[i] : NULL);
	LEAVE(result);
}

EXPORT CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
					     const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	return remove_dependencies(graph, from, to, edgeData, numDependencies);
}

EXPORT CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
					  size_t numDependencies)
{
	return remove_dependencies(graph, from, to, NULL, numDependencies);
}

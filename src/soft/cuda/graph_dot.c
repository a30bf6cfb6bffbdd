/* cuGraphDebugDotPrint: write a graph as a Graphviz file. */
#include <inttypes.h>
#include <stdio.h>

#include "soft/cuda/graph.h"

static const char *const names[OP_KINDS] = {
	[OP_EMPTY] = "EMPTY",	      [OP_KERNEL] = "KERNEL",	[OP_COPY] = "MEMCPY",
	[OP_FILL] = "MEMSET",	      [OP_HOST] = "HOST",	[OP_RECORD] = "EVENT_RECORD",
	[OP_WAIT] = "EVENT_WAIT",     [OP_ALLOC] = "MEM_ALLOC", [OP_FREE] = "MEM_FREE",
	[OP_VALUES] = "BATCH_MEM_OP", [OP_GRAPH] = "GRAPH",	[OP_CONDITION] = "CONDITIONAL",
};

struct dot {
	FILE *file;
	unsigned flags;
};

static bool has_flag(const struct dot *dot, unsigned flag)
{
	return dot->flags & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
}

static void print_copy(const struct dot *dot, const struct op_copy *copy)
{
	fprintf(dot->file, "|0x%" PRIx64 " to 0x%" PRIx64 "|%" PRIu64 " x %" PRIu64 " x %" PRIu64, copy->src,
		copy->dst, copy->width, copy->height, copy->depth);
}

static void print_fill(const struct dot *dot, const struct op_fill *fill)
{
	fprintf(dot->file, "|0x%" PRIx64 "|0x%x, %u bytes each|%" PRIu64 " x %" PRIu64, fill->dst,
		fill->value, fill->element_bytes, fill->width, fill->height);
}

static void print_params(const struct dot *dot, const struct op *op)
{
	if (op->kind == OP_COPY && has_flag(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
		print_copy(dot, &op->copy);
	if (op->kind == OP_FILL && has_flag(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
		print_fill(dot, &op->fill);
	if (op->kind == OP_ALLOC && has_flag(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS))
		fprintf(dot->file, "|0x%" PRIx64 "|%" PRIu64 " bytes", op->alloc.address, op->alloc.bytes);
	if (op->kind == OP_FREE && has_flag(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS))
		fprintf(dot->file, "|0x%" PRIx64, op->alloc.address);
}

static void print_kernel(const struct dot *dot, const struct op_kernel *kernel)
{
	fprintf(dot->file, "|%s", kernel->function->kernel->name);
	if (has_flag(dot, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))
		fprintf(dot->file, "|grid %u,%u,%u|block %u,%u,%u|shared %u", kernel->grid[0],
			kernel->grid[1], kernel->grid[2], kernel->threads[0], kernel->threads[1],
			kernel->threads[2], kernel->dynamic_shared_bytes);
}

static void print_graph(const struct dot *dot, const struct graph *graph);

static void print_node(const struct dot *dot, const struct node *node)
{
	fprintf(dot->file, "\"graph_%" PRIu64 "_node_%zu\"[shape=\"record\" label=\"{%s|ID %zu",
		node->graph->id, node->index, names[node->op.kind], node->index);
	if (node->op.kind == OP_KERNEL && node_has_function(node))
		print_kernel(dot, &node->op.kernel);
	print_params(dot, &node->op);
	if (has_flag(dot, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
		fprintf(dot->file, "|handle %p", (const void *)node);
	fprintf(dot->file, "}\"];\n");
	if (node->op.kind == OP_GRAPH)
		print_graph(dot, node->op.child);
	for (unsigned i = 0; node->op.kind == OP_CONDITION && i < node->op.condition.count; i++)
		print_graph(dot, node->op.condition.bodies[i]);
}

static void print_graph(const struct dot *dot, const struct graph *graph)
{
	fprintf(dot->file, "subgraph cluster_%" PRIu64 " {\nlabel=\"graph_%" PRIu64 "\";\n", graph->id,
		graph->id);
	for (size_t i = 0; i < graph->node_count; i++)
		print_node(dot, graph->nodes[i]);
	for (size_t i = 0; i < graph->edge_count; i++)
		fprintf(dot->file, "\"graph_%" PRIu64 "_node_%zu\" -> \"graph_%" PRIu64 "_node_%zu\";\n",
			graph->id, graph->edges[i].from->index, graph->id, graph->edges[i].to->index);
	fprintf(dot->file, "}\n");
}

EXPORT CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned int flags)
{
	struct dot dot = { .flags = flags };
	struct graph *graph;
	CUresult result;

	ENTER();
	result = path ? graph_find(handle, &graph) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	dot.file = fopen(path, "we");
	if (!dot.file)
		LEAVE(CUDA_ERROR_OPERATING_SYSTEM);
	fprintf(dot.file, "digraph dot {\n");
	print_graph(&dot, graph);
	fprintf(dot.file, "}\n");
	if (fclose(dot.file))
		result = CUDA_ERROR_OPERATING_SYSTEM;
	LEAVE(result);
}

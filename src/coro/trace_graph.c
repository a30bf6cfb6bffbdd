/* Executable graphs. A launch of a graph is one line, which names its kernel nodes by a number. The nodes are written when the
 * graph is launched for the first time after it was made or changed. */
#include <stdlib.h>
#include <string.h>

#include "coro/trace.h"

enum { BUCKETS = 256, DEPTH_MOST = 16 };

struct node {
	CUgraphNode handle; /* in the graph that the executable graph was made of */
	bool is_copy, is_disabled;
	struct trace_shape shape;
	struct trace_region region;
};

struct exec {
	LIST_ENTRY(exec) next;
	CUgraphExec handle;
	unsigned number; /* in the trace; 0: not written since the last change */
	size_t count, room;
	struct node *nodes;
};

static struct {
	pthread_mutex_t lock;
	unsigned numbers;
	LIST_HEAD(, exec) buckets[BUCKETS];
} execs = { .lock = PTHREAD_MUTEX_INITIALIZER };

static size_t bucket_of(CUgraphExec handle)
{
	return ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 56;
}

static struct exec *find(CUgraphExec handle)
{
	struct exec *exec;

	LIST_FOREACH(exec, &execs.buckets[bucket_of(handle)], next)
		if (exec->handle == handle)
			break;
	return exec;
}

static struct trace_shape shape_of(const CUDA_KERNEL_NODE_PARAMS *params, const CUlaunchAttribute *attributes,
				   unsigned attribute_count)
{
	struct trace_launch launch = {
		.function = params->func,
		.kernel = params->kern,
		.grid = { params->gridDimX, params->gridDimY, params->gridDimZ },
		.block = { params->blockDimX, params->blockDimY, params->blockDimZ },
		.shared_bytes = params->sharedMemBytes,
		.attribute_count = attribute_count,
		.attributes = attributes,
		.parameters = params->kernelParams,
		.extra = params->extra,
	};

	return trace_shape(&launch);
}

/* A node has all attributes, those of a launch without them included. */
static unsigned attributes_of(CUgraphNode node, CUlaunchAttribute attributes[2])
{
	CUlaunchAttributeValue value;
	unsigned count = 0;

	memset(&value, 0, sizeof(value));
	if (!real.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) &&
	    value.cooperative)
		attributes[count++] =
			(CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = value };
	memset(&value, 0, sizeof(value));
	if (!real.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value) &&
	    value.clusterDim.x)
		attributes[count++] =
			(CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = value };
	return count;
}

static struct node *node_new(struct exec *exec, CUgraphNode handle)
{
	if (exec->count == exec->room) {
		void *more = reallocarray(exec->nodes, exec->room + 64, sizeof(*exec->nodes));

		if (!more)
			return NULL;
		exec->nodes = more;
		exec->room += 64;
	}
	exec->nodes[exec->count] = (struct node){ .handle = handle };
	return &exec->nodes[exec->count++];
}

static void add_kernel(struct exec *exec, CUgraphNode handle)
{
	CUlaunchAttribute attributes[2];
	CUDA_KERNEL_NODE_PARAMS params;
	struct node *node;

	if (real.cuGraphKernelNodeGetParams_v2(handle, &params))
		return;
	node = node_new(exec, handle);
	if (node)
		node->shape = shape_of(&params, attributes, attributes_of(handle, attributes));
}

static void add_copy(struct exec *exec, CUgraphNode handle)
{
	struct trace_region region;
	CUDA_MEMCPY3D copy;
	struct node *node;

	if (real.cuGraphMemcpyNodeGetParams(handle, &copy) || !trace_region_of(&copy, &region))
		return;
	node = node_new(exec, handle);
	if (node) {
		node->is_copy = true;
		node->region = region;
	}
}

static void add_nodes(struct exec *exec, CUgraph graph, unsigned depth);

static void add_node(struct exec *exec, CUgraphNode node, unsigned depth)
{
	CUgraphNodeType type;
	CUgraph child;

	if (real.cuGraphNodeGetType(node, &type))
		return;
	if (type == CU_GRAPH_NODE_TYPE_KERNEL)
		add_kernel(exec, node);
	else if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
		add_copy(exec, node);
	else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MOST &&
		 !real.cuGraphChildGraphNodeGetGraph(node, &child))
		add_nodes(exec, child, depth + 1);
}

static void add_nodes(struct exec *exec, CUgraph graph, unsigned depth)
{
	CUgraphNode *nodes;
	size_t count = 0;

	if (real.cuGraphGetNodes(graph, NULL, &count) || !count)
		return;
	nodes = calloc(count, sizeof(CUgraphNode));
	if (nodes && !real.cuGraphGetNodes(graph, nodes, &count))
		for (size_t i = 0; i < count; i++)
			add_node(exec, nodes[i], depth);
	free(nodes);
}

/* By the lock. A handle of an executable graph that went with its context may be used again. */
static struct exec *exec_at(CUgraphExec handle)
{
	struct exec *exec = find(handle);

	if (exec || !(exec = calloc(1, sizeof(*exec))))
		return exec;
	exec->handle = handle;
	LIST_INSERT_HEAD(&execs.buckets[bucket_of(handle)], exec, next);
	return exec;
}

void trace_graph_made(CUgraphExec handle, CUgraph graph)
{
	struct exec *exec;

	if (!trace_is_on)
		return;
	pthread_mutex_lock(&execs.lock);
	exec = exec_at(handle);
	if (exec) {
		exec->number = 0;
		exec->count = 0;
		add_nodes(exec, graph, 0);
	}
	pthread_mutex_unlock(&execs.lock);
}

void trace_graph_destroyed(CUgraphExec handle)
{
	struct exec *exec;

	if (!trace_is_on)
		return;
	pthread_mutex_lock(&execs.lock);
	exec = find(handle);
	if (exec) {
		LIST_REMOVE(exec, next);
		free(exec->nodes);
		free(exec);
	}
	pthread_mutex_unlock(&execs.lock);
}

static void write_nodes(struct exec *exec)
{
	char text[TRACE_SHAPE_TEXT];

	exec->number = ++execs.numbers;
	for (size_t i = 0; i < exec->count; i++)
		if (!exec->nodes[i].is_copy && !exec->nodes[i].is_disabled)
			trace_write("N %x %x %s\n", exec->number, exec->nodes[i].shape.name,
				    trace_shape_text(&exec->nodes[i].shape, text));
}

static void copied(const struct exec *exec, struct trace_place place)
{
	struct trace_region *regions = calloc(exec->count + 1, sizeof(*regions));
	size_t count = 0;

	for (size_t i = 0; regions && i < exec->count; i++)
		if (exec->nodes[i].is_copy && !exec->nodes[i].is_disabled)
			regions[count++] = exec->nodes[i].region;
	trace_copied(regions, count, place, false);
	free(regions);
}

void trace_graph_launched(CUgraphExec handle, struct trace_place place)
{
	struct trace_event event;
	struct exec *exec;

	if (!trace_is_on || trace_is_captured(&place))
		return;
	event = trace_event(&place);
	pthread_mutex_lock(&execs.lock);
	exec = find(handle);
	if (exec) {
		if (!exec->number)
			write_nodes(exec);
		trace_write("G %llx %x %llx %x\n", (unsigned long long)event.number, (unsigned)event.thread,
			    (unsigned long long)event.stream, exec->number);
		copied(exec, place);
	}
	pthread_mutex_unlock(&execs.lock);
}

/* The node that the program changes, with the lock held; NULL: unknown, and the lock is not held. */
static struct node *begin_change(CUgraphExec handle, CUgraphNode node)
{
	struct exec *exec;

	if (!trace_is_on)
		return NULL;
	pthread_mutex_lock(&execs.lock);
	exec = find(handle);
	for (size_t i = 0; exec && i < exec->count; i++)
		if (exec->nodes[i].handle == node) {
			exec->number = 0;
			return &exec->nodes[i];
		}
	pthread_mutex_unlock(&execs.lock);
	return NULL;
}

void trace_graph_kernel_set(CUgraphExec exec, CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct node *node = begin_change(exec, handle);
	uint64_t attributes;

	if (!node)
		return;
	attributes = node->shape.attributes; /* which stay */
	node->shape = shape_of(params, NULL, 0);
	node->shape.attributes = attributes;
	pthread_mutex_unlock(&execs.lock);
}

/* The second version has the members of the first one, and more behind them. */
void trace_graph_kernel_set_v1(CUgraphExec exec, CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUDA_KERNEL_NODE_PARAMS same = { 0 };

	memcpy(&same, params, sizeof(*params));
	trace_graph_kernel_set(exec, handle, &same);
}

void trace_graph_copy_set(CUgraphExec exec, CUgraphNode handle, const CUDA_MEMCPY3D *copy)
{
	struct node *node = begin_change(exec, handle);

	if (!node)
		return;
	trace_region_of(copy, &node->region);
	pthread_mutex_unlock(&execs.lock);
}

void trace_graph_node_set(CUgraphExec exec, CUgraphNode handle, const CUgraphNodeParams *params)
{
	if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		CUDA_KERNEL_NODE_PARAMS same;

		_Static_assert(sizeof(same) == sizeof(params->kernel),
			       "the third version is like the second");
		memcpy(&same, &params->kernel, sizeof(same));
		trace_graph_kernel_set(exec, handle, &same);
	} else if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
		trace_graph_copy_set(exec, handle, &params->memcpy.copyParams);
	}
}

void trace_graph_node_enabled(CUgraphExec exec, CUgraphNode handle, bool is_enabled)
{
	struct node *node = begin_change(exec, handle);

	if (!node)
		return;
	node->is_disabled = !is_enabled;
	pthread_mutex_unlock(&execs.lock);
}

/* A kernel node runs in the context of its function. Where the function came from a library (cuLibrary*, and so all kernels of
 * the CUDA runtime), the node can be given another context. A function of a module (cuModule*) has the context that it was
 * loaded in; its node is replaced by one that is captured on a stream of the partition (measured on driver 580). */
#include "coro/retarget.h"

#include <stdlib.h>

#include "coro/probe_time.h"

/* Where nodes go. */
struct target {
	CUcontext from; /* nodes of other contexts cannot go there */
	const struct partition *partition;
};

struct neighbours {
	CUgraphNode *nodes;
	CUgraphEdgeData *edges;
	size_t count;
};

typedef CUresult neighbours_of(CUgraphNode node, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count);

static bool find_neighbours(CUgraphNode node, neighbours_of *of, struct neighbours *to)
{
	*to = (struct neighbours){ 0 };
	if (of(node, NULL, NULL, &to->count))
		return false;
	if (!to->count)
		return true;
	to->nodes = calloc(to->count, sizeof(CUgraphNode));
	to->edges = calloc(to->count, sizeof(*to->edges));
	return to->nodes && to->edges && !of(node, to->nodes, to->edges, &to->count);
}

static void free_neighbours(struct neighbours *neighbours)
{
	free(neighbours->nodes);
	free(neighbours->edges);
}

/* The same launch, captured in the partition behind the same nodes; NULL: failed. */
static CUgraphNode capture(CUgraph graph, const struct partition *partition,
			   const CUDA_KERNEL_NODE_PARAMS *params, const struct neighbours *before)
{
	CUstream stream = partition->builder;
	CUlaunchConfig config = { .gridDimX = params->gridDimX,
				  .gridDimY = params->gridDimY,
				  .gridDimZ = params->gridDimZ,
				  .blockDimX = params->blockDimX,
				  .blockDimY = params->blockDimY,
				  .blockDimZ = params->blockDimZ,
				  .sharedMemBytes = params->sharedMemBytes,
				  .hStream = stream };
	CUstreamCaptureStatus status;
	const CUgraphNode *made = NULL;
	size_t count = 0;
	CUgraphNode node = NULL;
	CUgraph same;

	if (real.cuStreamBeginCaptureToGraph(stream, graph, before->nodes, before->edges, before->count,
					     CU_STREAM_CAPTURE_MODE_RELAXED))
		return NULL;
	if (!real.cuLaunchKernelEx(&config, params->func, params->kernelParams, params->extra) &&
	    !real.cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, &made, NULL, &count) && count == 1)
		node = made[0];
	return real.cuStreamEndCapture(stream, &same) ? NULL : node;
}

static bool replace(CUgraph graph, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params,
		    const struct partition *partition)
{
	struct neighbours before, after = { 0 };
	CUgraphNode made = NULL;
	bool is_done = false;

	if (find_neighbours(node, real.cuGraphNodeGetDependencies_v2, &before) &&
	    find_neighbours(node, real.cuGraphNodeGetDependentNodes_v2, &after))
		made = capture(graph, partition, params, &before);
	if (made) {
		CUgraphNode *from = calloc(after.count + 1, sizeof(CUgraphNode));

		for (size_t i = 0; from && i < after.count; i++)
			from[i] = made;
		is_done = from && !real.cuGraphKernelNodeCopyAttributes(made, node) &&
			  (!after.count || !real.cuGraphAddDependencies_v2(graph, from, after.nodes,
									   after.edges, after.count)) &&
			  !real.cuGraphDestroyNode(node);
		free(from);
	}
	free_neighbours(&before);
	free_neighbours(&after);
	return is_done;
}

/* A function of a module of another context cannot be captured on the partition's stream: the driver refuses it. */
static bool retarget_kernel(CUgraph graph, CUgraphNode node, const struct target *target)
{
	CUDA_KERNEL_NODE_PARAMS params;

	if (real.cuGraphKernelNodeGetParams_v2(node, &params) || (params.ctx && params.ctx != target->from))
		return false;
	if (!params.kern)
		return replace(graph, node, &params, target->partition);
	params.func = NULL;
	params.ctx = target->partition->context;
	return !real.cuGraphKernelNodeSetParams_v2(node, &params);
}

static bool retarget_nodes(CUgraph graph, const struct target *target);

static bool retarget_node(CUgraph graph, CUgraphNode node, const struct target *target)
{
	CUgraphNodeType type;
	CUgraph child;

	if (real.cuGraphNodeGetType(node, &type))
		return false;
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return retarget_kernel(graph, node, target);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return !real.cuGraphChildGraphNodeGetGraph(node, &child) && retarget_nodes(child, target);
	/* Bodies of conditional nodes belong to their graph, and memory that a graph allocates to one executable form. */
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return false;
	default:
		return true;
	}
}

static bool retarget_nodes(CUgraph graph, const struct target *target)
{
	CUgraphNode *nodes;
	size_t count = 0;
	bool is_done = true;

	if (real.cuGraphGetNodes(graph, NULL, &count))
		return false;
	nodes = calloc(count + 1, sizeof(CUgraphNode));
	if (!nodes || (count && real.cuGraphGetNodes(graph, nodes, &count)))
		is_done = false;
	for (size_t i = 0; is_done && i < count; i++)
		is_done = retarget_node(graph, nodes[i], target);
	free(nodes);
	return is_done;
}

static enum retarget retarget(CUgraph graph, CUgraphExec exec, const struct target *target, cuuint64_t flags,
			      CUgraphExec *form)
{
	CUgraph copy;
	bool is_done;

	if (real.cuGraphClone(&copy, graph))
		return RETARGET_IMPOSSIBLE;
	times_graph_copied(exec, copy);
	is_done = retarget_nodes(copy, target) && !real.cuGraphInstantiateWithFlags(form, copy, flags);
	if (!is_done)
		*form = NULL;
	real.cuGraphDestroy(copy);
	return is_done ? RETARGET_DONE : RETARGET_IMPOSSIBLE;
}

/* ---- A wait for the whole context fails while one of its streams is captured. The program does not know of the captures here,
 * so the two exclude each other. A launch does not wait for the end of such a wait, which may be the wait for that launch. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t is_made;
	unsigned syncs, making;
} waiting = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0 };

void sync_begin(void)
{
	if (!lease_is_there())
		return;
	pthread_mutex_lock(&waiting.lock);
	while (waiting.making)
		pthread_cond_wait(&waiting.is_made, &waiting.lock);
	waiting.syncs++;
	pthread_mutex_unlock(&waiting.lock);
}

void sync_end(void)
{
	if (!lease_is_there())
		return;
	pthread_mutex_lock(&waiting.lock);
	waiting.syncs--;
	pthread_mutex_unlock(&waiting.lock);
}

static bool make_begin(void)
{
	bool is_free;

	pthread_mutex_lock(&waiting.lock);
	is_free = !waiting.syncs;
	waiting.making += is_free;
	pthread_mutex_unlock(&waiting.lock);
	return is_free;
}

static void make_end(void)
{
	pthread_mutex_lock(&waiting.lock);
	waiting.making--;
	pthread_cond_broadcast(&waiting.is_made);
	pthread_mutex_unlock(&waiting.lock);
}

enum retarget graph_retarget(CUgraph graph, CUgraphExec exec, const struct context *context, int at,
			     cuuint64_t flags, CUgraphExec *form)
{
	const struct target target = { context->handle, &context->partitions[at] };
	enum retarget result;

	if (!make_begin())
		return RETARGET_NOT_NOW;
	/* There is no stream to upload it on. */
	flags &= ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
	result = retarget(graph, exec, &target, flags, form);
	make_end();
	return result;
}

/* The times of launches of graphs. Each executable graph with a kernel that has a timed form gets a place for a time in device
 * memory. The launches of an executable graph run one after the other. An operation of the stream writes the time before each
 * launch, so it is in order with the launch before on the same stream. */
#include <stdlib.h>

#include "coro/coro.h"
#include "coro/probe_time.h"

struct placed {
	CUgraphExec exec; /* NULL: free */
};
static struct {
	pthread_mutex_t lock;
	CUdeviceptr at; /* PROBE_TIMES times; 0: there is no memory yet */
	unsigned used;	/* places below this one were used */
	struct placed of[PROBE_TIMES];
} places = { .lock = PTHREAD_MUTEX_INITIALIZER };

void times_use(CUdeviceptr at)
{
	pthread_mutex_lock(&places.lock);
	if (!places.at)
		places.at = at;
	pthread_mutex_unlock(&places.lock);
}

/* With the lock. The exec NULL: a free place. */
static int find(CUgraphExec exec)
{
	for (unsigned i = 0; i < places.used; i++)
		if (places.of[i].exec == exec)
			return (int)i;
	return exec || places.used == PROBE_TIMES ? -1 : (int)places.used;
}

CUdeviceptr times_of_graph(CUgraphExec exec)
{
	CUdeviceptr at = 0;
	int place;

	pthread_mutex_lock(&places.lock);
	place = find(exec);
	if (place >= 0)
		at = places.at + sizeof(uint64_t) * (unsigned)place;
	pthread_mutex_unlock(&places.lock);
	return at;
}

/* Graphs beyond the number of places have no time. */
static void take_place(CUgraphExec exec)
{
	int place;

	pthread_mutex_lock(&places.lock);
	place = !places.at || find(exec) >= 0 ? -1 : find(NULL);
	if (place >= 0) {
		places.of[place].exec = exec;
		places.used += (unsigned)place == places.used;
	}
	pthread_mutex_unlock(&places.lock);
}

void times_graph_destroyed(CUgraphExec exec)
{
	int place;

	if (!times_are_there())
		return;
	pthread_mutex_lock(&places.lock);
	place = find(exec);
	if (exec && place >= 0)
		places.of[place].exec = NULL;
	pthread_mutex_unlock(&places.lock);
}

void times_graph_launch(CUgraphExec exec, CUstream stream)
{
	CUstreamCaptureStatus status;
	CUdeviceptr at = times_are_there() ? times_of_graph(exec) : 0;

	/* In a capture the launch becomes part of another graph, whose launch has a time of its own. */
	if (at && !real.cuStreamIsCapturing(stream, &status) && status == CU_STREAM_CAPTURE_STATUS_NONE)
		real.cuStreamWriteValue64_v2(stream, at, times_now(), 0);
}

static void *kernel_of(const CUDA_KERNEL_NODE_PARAMS *params)
{
	return params->func ? (void *)params->func : (void *)params->kern;
}

static void set_node(CUgraphExec exec, CUgraphNode node, bool is_copy)
{
	CUDA_KERNEL_NODE_PARAMS params;
	struct timed_launch launch;
	CUgraphNodeType type;
	void *before;

	if (real.cuGraphNodeGetType(node, &type) || type != CU_GRAPH_NODE_TYPE_KERNEL ||
	    real.cuGraphKernelNodeGetParams_v2(node, &params))
		return;
	before = kernel_of(&params);
	if (!times_has_form(before))
		return;
	take_place(exec);
	times_graph_node(exec, &params, &launch);
	/* A node that the driver does not change keeps its kernel, and has no time. */
	if (kernel_of(&params) != before && is_copy)
		real.cuGraphKernelNodeSetParams_v2(node, &params);
	else if (kernel_of(&params) != before)
		real.cuGraphExecKernelNodeSetParams_v2(exec, node, &params);
	times_after(&launch);
}

static void set_nodes(CUgraphExec exec, CUgraph graph, bool is_copy)
{
	CUgraphNode *nodes;
	size_t count = 0;

	if (real.cuGraphGetNodes(graph, NULL, &count) || !count)
		return;
	nodes = calloc(count, sizeof(CUgraphNode));
	if (nodes && !real.cuGraphGetNodes(graph, nodes, &count))
		for (size_t i = 0; i < count; i++)
			set_node(exec, nodes[i], is_copy);
	free(nodes);
}

void times_graph_made(CUgraphExec exec, CUgraph graph)
{
	if (times_are_there())
		set_nodes(exec, graph, false);
}

void times_graph_copied(CUgraphExec exec, CUgraph copy)
{
	if (times_are_there())
		set_nodes(exec, copy, true);
}

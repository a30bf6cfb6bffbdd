/* cuda: launching graphs: whatever their shape, they compute what their nodes do in order, and branches run beside each
 * other. */
#include "check.h"
#include "graphs.h"

#include <pthread.h>

/* ---- random graphs, compared with doing the same here, one after the other */

enum { NODES_MAX = 48, SEED_SLOT = NODES_MAX * 2, SLOTS = SEED_SLOT + 1 };

struct plan_node {
	enum { DO_KERNEL, DO_FILL, DO_COPY, DO_CHILD, DO_HOST, DO_NOTHING, DO_KINDS } kind;
	uint32_t a, b, k; /* slots it reads, and a number */
	uint32_t
		reads; /* the slot that stands for it: its own, or for one that does nothing, that of another */
};
struct plan {
	uint32_t count;
	struct plan_node nodes[NODES_MAX];
	CUgraphNode handles[NODES_MAX];
};
struct host_work {
	uint32_t *slots; /* host memory that the GPU sees */
	uint32_t to, from, k;
};
static struct host_work host_works[NODES_MAX];

static void host_mix(void *argument)
{
	struct host_work *work = argument;

	work->slots[work->to] = graphs_mixed(work->slots[work->from], work->slots[work->from], work->k);
}

/* What the graph computes. */
static void plan_run(const struct plan *plan, uint32_t *slots)
{
	for (uint32_t i = 0; i < plan->count; i++) {
		const struct plan_node *node = &plan->nodes[i];

		switch (node->kind) {
		case DO_KERNEL:
			slots[i] = graphs_mixed(slots[node->a], slots[node->b], node->k);
			break;
		case DO_FILL:
			slots[i] = node->k;
			break;
		case DO_COPY:
			slots[i] = slots[node->a];
			break;
		case DO_CHILD:
			slots[NODES_MAX + i] = graphs_mixed(slots[node->a], slots[node->b], 1);
			slots[i] = graphs_mixed(slots[NODES_MAX + i], slots[node->a], 2);
			break;
		case DO_HOST:
			slots[i] = graphs_mixed(slots[node->a], slots[node->a], node->k);
			break;
		default:
			break;
		}
	}
}

static void plan_add_node(struct plan *plan, uint32_t i, CUgraph graph, CUdeviceptr slots,
			  const CUgraphNode *deps, size_t dep_count)
{
	struct plan_node *node = &plan->nodes[i];
	CUgraphNode *handle = &plan->handles[i], first, second;
	CUDA_HOST_NODE_PARAMS host = { host_mix, &host_works[i] };
	CUgraph child;

	switch (node->kind) {
	case DO_KERNEL:
		*handle = graphs_add_mix(graph, deps, dep_count, slots, i, node->a, node->b, node->k);
		break;
	case DO_FILL:
		*handle = graphs_add_fill(graph, deps, dep_count, slots + 4ull * i, node->k);
		break;
	case DO_COPY:
		*handle =
			graphs_add_copy(graph, deps, dep_count, slots + 4ull * node->a, slots + 4ull * i, 4);
		break;
	case DO_CHILD:
		CU(cuGraphCreate(&child, 0));
		first = graphs_add_mix(child, NULL, 0, slots, NODES_MAX + i, node->a, node->b, 1);
		second = graphs_add_mix(child, &first, 1, slots, i, NODES_MAX + i, node->a, 2);
		(void)second;
		CU(cuGraphAddChildGraphNode(handle, graph, deps, dep_count, child));
		CU(cuGraphDestroy(child));
		break;
	case DO_HOST:
		host_works[i] = (struct host_work){ (uint32_t *)(uintptr_t)slots, i, node->a, node->k };
		CU(cuGraphAddHostNode(handle, graph, deps, dep_count, &host));
		break;
	default:
		CU(cuGraphAddEmptyNode(handle, graph, deps, dep_count));
		break;
	}
}

/* Every node reads slots of nodes before it, and depends on these. */
static void plan_make(struct plan *plan, CUgraph graph, CUdeviceptr slots)
{
	plan->count = 1 + (uint32_t)rand() % NODES_MAX;
	for (uint32_t i = 0; i < plan->count; i++) {
		struct plan_node *node = &plan->nodes[i];
		uint32_t count = i ? (uint32_t)rand() % 3 : 0, reach = i < 8 ? i : 8, deps[2] = { 0 };
		CUgraphNode handles[2];

		for (uint32_t d = 0; d < count; d++)
			deps[d] = i - 1 - (uint32_t)rand() % reach;
		if (count == 2 && deps[0] == deps[1])
			count = 1;
		for (uint32_t d = 0; d < count; d++)
			handles[d] = plan->handles[deps[d]];
		*node = (struct plan_node){ .kind = (uint32_t)rand() % (4 * DO_KINDS),
					    .k = (uint32_t)rand() };
		if (node->kind >= DO_KINDS)
			node->kind = DO_KERNEL;
		node->a = count ? plan->nodes[deps[0]].reads : SEED_SLOT;
		node->b = count > 1 ? plan->nodes[deps[1]].reads : node->a;
		node->reads = node->kind == DO_NOTHING ? node->a : i;
		plan_add_node(plan, i, graph, slots, handles, count);
	}
}

static void check_launches(const struct plan *plan, CUgraph graph, CUdeviceptr slots, CUstream *streams)
{
	uint32_t expected[SLOTS], got[SLOTS], last = 0;
	CUgraphExec exec;

	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int launch = 0; launch < 3; launch++) {
		CUstream stream = streams[rand() % 2];

		/* Between launches on different streams, order is what the exec sees to. */
		CU(cuStreamSynchronize(streams[last]));
		CU(cuMemsetD32Async(slots, 0xdead0000, SLOTS, stream));
		CU(cuMemsetD32Async(slots + 4ull * SEED_SLOT, (unsigned)launch + 5, 1, stream));
		CU(cuGraphLaunch(exec, stream));
		CU(cuMemcpyDtoHAsync_v2(got, slots, sizeof(got), stream));
		CU(cuStreamSynchronize(stream));
		for (uint32_t i = 0; i < SLOTS; i++)
			expected[i] = 0xdead0000;
		expected[SEED_SLOT] = (uint32_t)launch + 5;
		plan_run(plan, expected);
		for (uint32_t i = 0; i < plan->count; i++)
			CHECK_EQUAL(got[i], expected[i]);
		last = stream == streams[1];
	}
	CU(cuGraphExecDestroy(exec));
}

static void random_graphs_compute_what_their_nodes_do_in_order(void)
{
	static struct plan plan;
	CUstream streams[2];
	CUdeviceptr slots;
	void *memory;

	check_context();
	graphs_begin();
	srand(7);
	CU(cuStreamCreate(&streams[0], CU_STREAM_DEFAULT));
	CU(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc(&memory, SLOTS * 4ul, CU_MEMHOSTALLOC_DEVICEMAP));
	slots = (CUdeviceptr)(uintptr_t)memory;
	for (int round = 0; round < 60; round++) {
		CUgraph graph, clone;

		CU(cuGraphCreate(&graph, 0));
		plan_make(&plan, graph, slots);
		CU(cuGraphClone(&clone, graph));
		check_launches(&plan, graph, slots, streams);
		CU(cuGraphDestroy(graph));
		check_launches(&plan, clone, slots, streams);
		CU(cuGraphDestroy(clone));
	}
	CU(cuMemFreeHost(memory));
	CU(cuStreamDestroy_v2(streams[0]));
	CU(cuStreamDestroy_v2(streams[1]));
}

static void a_long_chain_needs_more_room_than_a_ring_has(void)
{
	enum { LENGTH = 3000 };
	CUgraphNode node = NULL;
	CUgraphExec exec;
	CUdeviceptr slots;
	CUgraph graph;
	uint32_t expected = 1, got = 0;

	check_context();
	graphs_begin();
	CU(cuMemAlloc_v2(&slots, 4));
	CU(cuGraphCreate(&graph, 0));
	for (uint32_t i = 0; i < LENGTH; i++) {
		node = graphs_add_mix(graph, &node, i ? 1 : 0, slots, 0, 0, 0, i);
		expected = graphs_mixed(expected, expected, i);
	}
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuMemsetD32_v2(slots, 1, 1));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuMemcpyDtoH_v2(&got, slots, 4));
	CHECK_EQUAL(got, expected);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
}

static void launches_of_one_exec_come_one_after_the_other(void)
{
	enum { LAUNCHES = 50 };
	CUstream streams[2];
	CUgraphNode node;
	CUgraphExec exec;
	CUdeviceptr slots;
	CUgraph graph;
	uint32_t expected = 3, got = 0;

	check_context();
	graphs_begin();
	CU(cuMemAlloc_v2(&slots, 4));
	CU(cuMemsetD32_v2(slots, 3, 1));
	CU(cuCtxSynchronize());
	CU(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
	CU(cuGraphCreate(&graph, 0));
	node = graphs_add_mix(graph, NULL, 0, slots, 0, 0, 0, 11);
	graphs_add_mix(graph, &node, 1, slots, 0, 0, 0, 12);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < LAUNCHES; i++) {
		CU(cuGraphLaunch(exec, streams[i % 2]));
		expected = graphs_mixed(expected, expected, 11);
		expected = graphs_mixed(expected, expected, 12);
	}
	CU(cuGraphExecDestroy(exec));
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH_v2(&got, slots, 4));
	CHECK_EQUAL(got, expected);
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
	CU(cuStreamDestroy_v2(streams[0]));
	CU(cuStreamDestroy_v2(streams[1]));
}

static CUgraphNode add_meet(CUgraph graph, CUdeviceptr slots, uint32_t want, uint32_t say, CUdeviceptr out)
{
	void *list[] = { &slots, &want, &say, &out };
	CUDA_KERNEL_NODE_PARAMS params = { .func = graphs_meet,
					   .gridDimX = 1,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 1,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = list };
	CUgraphNode node;

	CU(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	return node;
}

/* Each waits for the other: one after the other they would never meet. */
static void independent_branches_run_side_by_side(void)
{
	CUgraphExec exec;
	CUdeviceptr slots;
	CUgraph graph;
	uint32_t got[2] = { 0 };

	check_context();
	graphs_begin();
	CU(cuMemAlloc_v2(&slots, 16));
	CU(cuMemsetD32_v2(slots, 0, 4));
	CU(cuGraphCreate(&graph, 0));
	add_meet(graph, slots, 1, 2, slots + 4);
	add_meet(graph, slots, 2, 1, slots + 8);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuMemcpyDtoH_v2(got, slots + 4, sizeof(got)));
	CHECK(got[0] && got[1]);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
}

enum { THREADS = 4, BRANCHES = 3, BRANCH_LENGTH = 40 };

/* Branches of their own, then one node that needs them all. */
static CUgraph make_branches(CUdeviceptr slots)
{
	CUgraphNode ends[BRANCHES];
	CUgraph graph;

	CU(cuGraphCreate(&graph, 0));
	for (uint32_t branch = 0; branch < BRANCHES; branch++) {
		CUgraphNode node = NULL;

		for (uint32_t i = 0; i < BRANCH_LENGTH; i++)
			node = graphs_add_mix(graph, &node, i ? 1 : 0, slots, branch, branch, branch, i);
		ends[branch] = node;
	}
	graphs_add_mix(graph, ends, BRANCHES, slots, BRANCHES, 0, 1, 9);
	return graph;
}

static void *launch_branches(void *context)
{
	uint32_t expected[BRANCHES] = { 1, 1, 1 }, got = 0;
	CUdeviceptr slots;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	CU(cuCtxSetCurrent(context));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&slots, 64));
	CU(cuMemsetD32Async(slots, 1, 16, stream));
	graph = make_branches(slots);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int launch = 0; launch < 30; launch++) {
		CU(cuGraphLaunch(exec, stream));
		for (uint32_t i = 0; i < BRANCHES * BRANCH_LENGTH; i++)
			expected[i / BRANCH_LENGTH] = graphs_mixed(
				expected[i / BRANCH_LENGTH], expected[i / BRANCH_LENGTH], i % BRANCH_LENGTH);
	}
	CU(cuMemcpyDtoHAsync_v2(&got, slots + 4ull * BRANCHES, 4, stream));
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(got, graphs_mixed(expected[0], expected[1], 9));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
	CU(cuStreamDestroy_v2(stream));
	return NULL;
}

static void threads_launch_graphs_of_their_own(void)
{
	CUcontext context = check_context();
	pthread_t threads[THREADS];

	graphs_begin();
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, launch_branches, context));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

/* A chain that goes back and forth between two GPUs, through host memory. */
static void nodes_run_on_the_gpu_of_their_context(void)
{
	enum { LENGTH = 20 };
	CUcontext contexts[2];
	CUfunction functions[2], before;
	CUgraphNode node = NULL;
	CUgraphExec exec;
	uint32_t *memory, expected = 3;
	CUgraph graph;
	void *at;

	contexts[0] = check_context();
	graphs_begin();
	before = functions[0] = graphs_mix;
	CU(cuMemHostAlloc(&at, 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	memory = at;
	memory[0] = 3;
	CU(cuDevicePrimaryCtxRetain(&contexts[1], 1));
	CU(cuCtxSetCurrent(contexts[1]));
	functions[1] = check_function(graphs_ptx, "mix");
	CU(cuGraphCreate(&graph, 0));
	for (uint32_t i = 0; i < LENGTH; i++) {
		graphs_mix = functions[i % 2];
		node = graphs_add_mix(graph, &node, i ? 1 : 0, (CUdeviceptr)(uintptr_t)memory, 0, 0, 0, i);
	}
	graphs_mix = before;
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int launch = 0; launch < 4; launch++) { /* on either GPU's stream */
		CU(cuCtxSetCurrent(contexts[launch % 2]));
		CU(cuGraphLaunch(exec, NULL));
		for (uint32_t i = 0; i < LENGTH; i++)
			expected = graphs_mixed(expected, expected, i);
	}
	CU(cuCtxSynchronize());
	CHECK_EQUAL(*(volatile uint32_t *)memory, expected);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuCtxSetCurrent(contexts[0]));
	CU(cuDevicePrimaryCtxRelease_v2(1));
	CU(cuMemFreeHost(at));
}

TESTS(TEST(random_graphs_compute_what_their_nodes_do_in_order),
      TEST(a_long_chain_needs_more_room_than_a_ring_has), TEST(launches_of_one_exec_come_one_after_the_other),
      TEST(independent_branches_run_side_by_side), TEST(threads_launch_graphs_of_their_own),
      TEST(nodes_run_on_the_gpu_of_their_context))

/* cuda: changing execs: one node, or all of them from another graph, and what is refused. */
#include "check.h"
#include "graphs.h"

/* slots[0] = fill; slots[1] = mix(slots[0], slots[0], k); slots[2] = slots[1] */
struct line {
	CUgraph graph;
	CUgraphNode fill, mix, copy;
};

static CUdeviceptr slots;

static void begin(void)
{
	check_context();
	graphs_begin();
	CU(cuMemAlloc_v2(&slots, 64));
	CU(cuMemsetD32_v2(slots, 0, 16));
	CU(cuCtxSynchronize());
}

static void end(void)
{
	CU(cuCtxSynchronize());
	CU(cuMemFree_v2(slots));
}

static struct line line_make(uint32_t value, uint32_t k)
{
	struct line line;

	CU(cuGraphCreate(&line.graph, 0));
	line.fill = graphs_add_fill(line.graph, NULL, 0, slots, value);
	line.mix = graphs_add_mix(line.graph, &line.fill, 1, slots, 1, 0, 0, k);
	line.copy = graphs_add_copy(line.graph, &line.mix, 1, slots + 4, slots + 8, 4);
	return line;
}

static CUgraphExec exec_of(CUgraph graph)
{
	CUgraphExec exec;

	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static uint32_t launch(CUgraphExec exec, unsigned slot)
{
	uint32_t got = 0;

	CU(cuGraphLaunch(exec, NULL));
	CU(cuMemcpyDtoH_v2(&got, slots + 4ull * slot, 4));
	return got;
}

static void single_nodes_are_changed_in_the_exec_alone(void)
{
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_KERNEL_NODE_PARAMS mix;
	CUDA_MEMCPY3D copy;
	struct line line;
	CUgraphExec exec, other;
	uint32_t k = 9;
	void *list[5];

	begin();
	line = line_make(2, 1);
	exec = exec_of(line.graph);
	CHECK_EQUAL(launch(exec, 2), 2 * 38 + 1);
	CU(cuGraphMemsetNodeGetParams(line.fill, &fill));
	fill.value = 3;
	CU(cuGraphExecMemsetNodeSetParams(exec, line.fill, &fill, NULL));
	CHECK_EQUAL(launch(exec, 2), 3 * 38 + 1);
	CU(cuGraphKernelNodeGetParams_v2(line.mix, &mix));
	memcpy(list, mix.kernelParams, sizeof(list));
	list[4] = &k;
	mix.kernelParams = list;
	CU(cuGraphExecKernelNodeSetParams_v2(exec, line.mix, &mix));
	CHECK_EQUAL(launch(exec, 2), 3 * 38 + 9);
	CU(cuGraphMemcpyNodeGetParams(line.copy, &copy));
	copy.dstDevice = slots + 12;
	CU(cuGraphExecMemcpyNodeSetParams(exec, line.copy, &copy, NULL));
	CHECK_EQUAL(launch(exec, 3), 3 * 38 + 9);
	/* The graph is as it was. */
	other = exec_of(line.graph);
	CHECK_EQUAL(launch(other, 2), 2 * 38 + 1);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams_v2(exec, line.fill, &mix));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphExecDestroy(other));
	CU(cuGraphDestroy(line.graph));
	end();
}

static void an_exec_takes_all_from_a_graph_of_the_same_shape(void)
{
	CUgraphExecUpdateResultInfo info;
	struct line line, other;
	CUgraphExec exec;

	begin();
	line = line_make(2, 1);
	other = line_make(5, 6);
	exec = exec_of(line.graph);
	CU(cuGraphExecUpdate_v2(exec, other.graph, &info));
	CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	CU(cuGraphDestroy(other.graph));
	CHECK_EQUAL(launch(exec, 2), 5 * 38 + 6);
	/* Nodes of the graph that it was made of still name its nodes. */
	CU(cuGraphNodeSetEnabled(exec, line.copy, 0));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(line.graph));
	end();
}

/* The same shape, made in another order. */
static void nodes_are_paired_by_their_edges(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphNode mix, copy, fill;
	struct line line;
	CUgraphExec exec;
	CUgraph graph;

	begin();
	line = line_make(2, 1);
	exec = exec_of(line.graph);
	CU(cuGraphCreate(&graph, 0));
	copy = graphs_add_copy(graph, NULL, 0, slots + 4, slots + 8, 4);
	mix = graphs_add_mix(graph, NULL, 0, slots, 1, 0, 0, 4);
	fill = graphs_add_fill(graph, NULL, 0, slots, 7);
	CU(cuGraphAddDependencies_v2(graph, &mix, &copy, NULL, 1));
	CU(cuGraphAddDependencies_v2(graph, &fill, &mix, NULL, 1));
	CU(cuGraphExecUpdate_v2(exec, graph, &info));
	CHECK_EQUAL(launch(exec, 2), 7 * 38 + 4);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuGraphDestroy(line.graph));
	end();
}

static void another_shape_is_refused_and_changes_nothing(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphNode extra, node;
	struct line line, other;
	CUgraphExec exec;

	begin();
	line = line_make(2, 1);
	exec = exec_of(line.graph);
	other = line_make(5, 6);
	CU(cuGraphAddEmptyNode(&extra, other.graph, NULL, 0));
	CU_FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other.graph, &info));
	CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	CHECK(!info.errorNode);
	CU(cuGraphDestroyNode(extra));
	CU(cuGraphAddDependencies_v2(other.graph, &other.fill, &other.copy, NULL, 1));
	CU_FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other.graph, &info));
	CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	CHECK(info.errorNode == other.copy);
	CU(cuGraphDestroy(other.graph));
	/* An end more and an edge less. */
	other = line_make(5, 6);
	CU(cuGraphRemoveDependencies_v2(other.graph, &other.mix, &other.copy, NULL, 1));
	CU_FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other.graph, &info));
	CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	CU(cuGraphDestroy(other.graph));
	/* Another kind of node. */
	CU(cuGraphCreate(&other.graph, 0));
	other.fill = graphs_add_fill(other.graph, NULL, 0, slots, 9);
	node = graphs_add_fill(other.graph, &other.fill, 1, slots, 9);
	graphs_add_copy(other.graph, &node, 1, slots, slots + 8, 4);
	CU_FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other.graph, &info));
	CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
	CHECK(info.errorNode == node);
	CU(cuGraphDestroy(other.graph));
	CHECK_EQUAL(launch(exec, 2), 2 * 38 + 1);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecUpdate_v2(exec, NULL, &info));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(line.graph));
	end();
}

static void changes_that_an_exec_cannot_make_are_refused(void)
{
	CUgraphExecUpdateResultInfo info;
	CUkernelNodeAttrValue value = { .cooperative = 1 };
	struct line line, other;
	CUDA_MEMCPY3D copy;
	CUgraphExec exec;
	void *host;

	begin();
	line = line_make(2, 1);
	exec = exec_of(line.graph);
	CU(cuMemHostAlloc(&host, 4096, 0));
	/* Memory of another kind. */
	CU(cuGraphMemcpyNodeGetParams(line.copy, &copy));
	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = host;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, line.copy, &copy, NULL));
	other = line_make(5, 6);
	CU(cuGraphMemcpyNodeSetParams(other.copy, &copy));
	CU_FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other.graph, &info));
	CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
	CHECK(info.errorNode == other.copy);
	CU(cuGraphDestroy(other.graph));
	other = line_make(5, 6);
	CU(cuGraphKernelNodeSetAttribute(other.mix, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
	CU_FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other.graph, &info));
	CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
	CU(cuGraphDestroy(other.graph));
	CHECK_EQUAL(launch(exec, 2), 2 * 38 + 1);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(line.graph));
	CU(cuMemFreeHost(host));
	end();
}

/* Copies by lines stay as they are; fills by lines change their value and place. */
static void shapes_of_many_lines_stay(void)
{
	CUDA_MEMSET_NODE_PARAMS fill = {
		.dst = 0, .pitch = 16, .value = 1, .elementSize = 4, .width = 2, .height = 2
	};
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcPitch = 16,
			       .dstPitch = 16,
			       .WidthInBytes = 4,
			       .Height = 2,
			       .Depth = 1 };
	CUgraphNode fill_node, copy_node, none;
	CUgraphExec exec;
	CUgraph graph;

	begin();
	fill.dst = copy.srcDevice = slots;
	copy.dstDevice = slots + 32;
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddMemsetNode(&fill_node, graph, NULL, 0, &fill, NULL));
	CU(cuGraphAddMemcpyNode(&copy_node, graph, &fill_node, 1, &copy, NULL));
	exec = exec_of(graph);
	fill.value = 7;
	CU(cuGraphExecMemsetNodeSetParams(exec, fill_node, &fill, NULL));
	CHECK_EQUAL(launch(exec, 12), 7);
	CHECK_EQUAL(launch(exec, 9), 0);
	fill.width = 1;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, fill_node, &fill, NULL));
	CU(cuGraphExecMemcpyNodeSetParams(exec, copy_node, &copy, NULL));
	copy.dstDevice += 4;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, copy_node, &copy, NULL));
	copy.WidthInBytes = 0;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode(&none, graph, NULL, 0, &copy, NULL));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	end();
}

static void set_number(void *to)
{
	*(volatile int *)to = 5;
}

static void set_other_number(void *to)
{
	*(volatile int *)to = 6;
}

static void host_and_event_nodes_are_changed_freely(void)
{
	CUDA_HOST_NODE_PARAMS host;
	CUgraphNode call, record;
	CUevent first, second;
	CUgraphExec exec;
	CUgraph graph;
	int a = 0, b = 0;

	begin();
	host = (CUDA_HOST_NODE_PARAMS){ set_number, &a };
	CU(cuEventCreate(&first, 0));
	CU(cuEventCreate(&second, 0));
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddHostNode(&call, graph, NULL, 0, &host));
	CU(cuGraphAddEventRecordNode(&record, graph, &call, 1, first));
	exec = exec_of(graph);
	host = (CUDA_HOST_NODE_PARAMS){ set_other_number, &b };
	CU(cuGraphExecHostNodeSetParams(exec, call, &host));
	CU(cuGraphExecEventRecordNodeSetEvent(exec, record, second));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuEventSynchronize(second));
	CHECK(a == 0 && b == 6);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuEventDestroy_v2(first));
	CU(cuEventDestroy_v2(second));
	end();
}

static void children_are_changed_node_by_node(void)
{
	CUgraphExecUpdateResultInfo info;
	CUDA_MEMSET_NODE_PARAMS fill;
	struct line line, other;
	CUgraph graph, inner, changed;
	CUgraphNode child, nodes[3];
	CUgraphExec exec;
	size_t count = 3;

	begin();
	line = line_make(2, 1);
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddChildGraphNode(&child, graph, NULL, 0, line.graph));
	exec = exec_of(graph);
	CHECK_EQUAL(launch(exec, 2), 2 * 38 + 1);
	other = line_make(4, 3);
	CU(cuGraphExecChildGraphNodeSetParams(exec, child, other.graph));
	CHECK_EQUAL(launch(exec, 2), 4 * 38 + 3);
	/* A node of the child, by the handle that the graph has for it. */
	CU(cuGraphChildGraphNodeGetGraph(child, &inner));
	CU(cuGraphGetNodes(inner, nodes, &count));
	CU(cuGraphMemsetNodeGetParams(nodes[0], &fill));
	fill.value = 6;
	CU(cuGraphExecMemsetNodeSetParams(exec, nodes[0], &fill, NULL));
	CHECK_EQUAL(launch(exec, 2), 6 * 38 + 3);
	/* From the whole. */
	CU(cuGraphClone(&changed, graph));
	CU(cuGraphExecUpdate_v2(exec, changed, &info));
	CHECK_EQUAL(launch(exec, 2), 2 * 38 + 1);
	CU(cuGraphDestroyNode(other.copy));
	CU_FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
		 cuGraphExecChildGraphNodeSetParams(exec, child, other.graph));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuGraphDestroy(changed));
	CU(cuGraphDestroy(line.graph));
	CU(cuGraphDestroy(other.graph));
	end();
}

static void launches_under_way_keep_what_they_were_given(void)
{
	CUDA_MEMSET_NODE_PARAMS fill;
	CUgraphNode node, last;
	CUgraphExec exec;
	CUgraph graph;
	uint32_t got[2] = { 0 };
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuGraphCreate(&graph, 0));
	node = graphs_add_mix(graph, NULL, 0, slots, 5, 5, 5, 255);
	last = graphs_add_fill(graph, &node, 1, slots, 1);
	exec = exec_of(graph);
	CU(cuGraphLaunch(exec, stream));
	CU(cuGraphMemsetNodeGetParams(last, &fill));
	fill.dst = slots + 4;
	fill.value = 2;
	CU(cuGraphExecMemsetNodeSetParams(exec, last, &fill, NULL));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuStreamSynchronize(stream));
	CU(cuMemcpyDtoH_v2(got, slots, sizeof(got)));
	CHECK(got[0] == 1 && got[1] == 0);
	CU(cuStreamDestroy_v2(stream));
	end();
}

TESTS(TEST(single_nodes_are_changed_in_the_exec_alone),
      TEST(an_exec_takes_all_from_a_graph_of_the_same_shape), TEST(nodes_are_paired_by_their_edges),
      TEST(another_shape_is_refused_and_changes_nothing), TEST(changes_that_an_exec_cannot_make_are_refused),
      TEST(shapes_of_many_lines_stay), TEST(host_and_event_nodes_are_changed_freely),
      TEST(children_are_changed_node_by_node), TEST(launches_under_way_keep_what_they_were_given))

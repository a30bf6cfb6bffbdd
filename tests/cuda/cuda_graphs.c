/* cuda: graphs: asking about nodes and edges, parameters of every kind of node, memory nodes, user objects. */
#include "check.h"
#include "graphs.h"

#include <unistd.h>

/* ---- nodes and edges */

static void nodes_and_edges_are_told_as_made(void)
{
	CUgraphNode a, b, c, nodes[8] = { 0 }, from[8], to[8];
	CUgraphNodeType type;
	size_t count = 0;
	CUgraph graph;

	check_context();
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddEmptyNode(&a, graph, NULL, 0));
	CU(cuGraphAddEmptyNode(&b, graph, &a, 1));
	CU(cuGraphAddEmptyNode(&c, graph, (CUgraphNode[]){ a, b }, 2));
	CU(cuGraphGetNodes(graph, NULL, &count));
	CHECK_EQUAL(count, 3);
	count = 8;
	nodes[3] = a;
	CU(cuGraphGetNodes(graph, nodes, &count));
	CHECK_EQUAL(count, 3);
	CHECK(nodes[0] == a && nodes[1] == b && nodes[2] == c && !nodes[3]);
	count = 2;
	CU(cuGraphGetNodes(graph, nodes, &count));
	CHECK_EQUAL(count, 2);
	CU(cuGraphGetRootNodes(graph, NULL, &count));
	CHECK_EQUAL(count, 1);
	count = 8;
	CU(cuGraphGetEdges_v2(graph, from, to, NULL, &count));
	CHECK_EQUAL(count, 3);
	CHECK(from[0] == a && to[0] == b && from[2] == b && to[2] == c);
	count = 8;
	CU(cuGraphNodeGetDependencies_v2(c, nodes, NULL, &count));
	CHECK(count == 2 && nodes[0] == a && nodes[1] == b);
	count = 8;
	CU(cuGraphNodeGetDependentNodes_v2(a, nodes, NULL, &count));
	CHECK(count == 2 && nodes[0] == b && nodes[1] == c);
	CU(cuGraphRemoveDependencies_v2(graph, &a, &c, NULL, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies_v2(graph, &a, &c, NULL, 1));
	CU(cuGraphDestroyNode(b));
	CU(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &count));
	CHECK_EQUAL(count, 0);
	CU(cuGraphNodeGetType(c, &type));
	CHECK_EQUAL(type, CU_GRAPH_NODE_TYPE_EMPTY);
	CU(cuGraphDestroy(graph));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(c, &type));
}

static void wrong_dependencies_are_refused(void)
{
	CUgraphNode a, b, c, other_node;
	CUgraph graph, other;
	CUgraphExec exec;
	CUDA_GRAPH_INSTANTIATE_PARAMS params = { 0 };

	check_context();
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&graph, 1));
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphCreate(&other, 0));
	CU(cuGraphAddEmptyNode(&other_node, other, NULL, 0));
	CU(cuGraphAddEmptyNode(&a, graph, NULL, 0));
	CU(cuGraphAddEmptyNode(&b, graph, &a, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&c, graph, (CUgraphNode[]){ a, a }, 2));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&c, graph, NULL, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&c, graph, &other_node, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&c, NULL, NULL, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies_v2(graph, &a, &b, NULL, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies_v2(graph, &a, &a, NULL, 1));
	/* A cycle is found at the end. */
	CU(cuGraphAddDependencies_v2(graph, &b, &a, NULL, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&exec, graph, &params));
	CHECK_EQUAL(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
	CHECK(params.hErrNode_out == a || params.hErrNode_out == b);
	CU(cuGraphRemoveDependencies_v2(graph, &b, &a, NULL, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 64));
	CU(cuGraphInstantiateWithParams(&exec, graph, &params));
	CHECK_EQUAL(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
	CU(cuGraphExecDestroy(exec));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, NULL));
	CU(cuGraphDestroy(graph));
	CU(cuGraphDestroy(other));
}

static void nodes_are_found_in_clones_and_children(void)
{
	CUgraphNode a, child_node, found, inner[1];
	CUgraph graph, child, clone, in_node, in_clone;
	size_t count = 1;

	check_context();
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphCreate(&child, 0));
	CU(cuGraphAddEmptyNode(&a, child, NULL, 0));
	CU(cuGraphAddChildGraphNode(&child_node, graph, NULL, 0, child));
	CU(cuGraphDestroy(child));
	CU(cuGraphChildGraphNodeGetGraph(child_node, &in_node));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(in_node));
	CU(cuGraphGetNodes(in_node, inner, &count));
	CHECK_EQUAL(count, 1);
	CU(cuGraphClone(&clone, graph));
	CU(cuGraphNodeFindInClone(&found, child_node, clone));
	CHECK(found != child_node);
	CU(cuGraphChildGraphNodeGetGraph(found, &in_clone));
	CU(cuGraphNodeFindInClone(&found, inner[0], in_clone));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, child_node, graph));
	CU(cuGraphDestroy(graph));
	CU(cuGraphDestroy(clone));
}

/* ---- parameters */

static void kernel_nodes_tell_their_parameters(void)
{
	CUcontext context = check_context();
	CUDA_KERNEL_NODE_PARAMS params;
	CUkernelNodeAttrValue value = { 0 };
	CUgraphNode node, empty;
	CUdeviceptr slots;
	CUgraph graph;

	graphs_begin();
	CU(cuMemAlloc_v2(&slots, 64));
	CU(cuGraphCreate(&graph, 0));
	node = graphs_add_mix(graph, NULL, 0, slots, 1, 2, 3, 4);
	CU(cuGraphKernelNodeGetParams_v2(node, &params));
	CHECK(params.func == graphs_mix && params.ctx == context && !params.extra);
	CHECK_EQUAL(*(CUdeviceptr *)params.kernelParams[0], slots);
	CHECK_EQUAL(*(uint32_t *)params.kernelParams[4], 4);
	params.gridDimX = 0;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode_v2(&empty, graph, NULL, 0, &params));
	params.gridDimX = 1;
	params.func = NULL;
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphAddKernelNode_v2(&empty, graph, NULL, 0, &params));
	CU(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams_v2(empty, &params));
	value.cooperative = 1;
	CU(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
	value.cooperative = 0;
	CU(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
	CHECK_EQUAL(value.cooperative, 1);
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
}

static void cooperative_nodes_must_fit_the_gpu(void)
{
	CUkernelNodeAttrValue value = { .cooperative = 1 };
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraphExec exec;
	CUdeviceptr slots;
	CUgraphNode node;
	CUgraph graph;

	check_context();
	graphs_begin();
	CU(cuMemAlloc_v2(&slots, 64));
	CU(cuGraphCreate(&graph, 0));
	node = graphs_add_mix(graph, NULL, 0, slots, 0, 1, 1, 0);
	CU(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
	CU(cuGraphKernelNodeGetParams_v2(node, &params));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphLaunch(exec, NULL));
	params.gridDimX = 1 << 20;
	CU(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
	CU_FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuGraphLaunch(exec, NULL));
	CU(cuCtxSynchronize());
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
}

static void kernels_of_unloaded_modules_are_refused(void)
{
	CUDA_KERNEL_NODE_PARAMS params;
	CUfunction before = graphs_mix;
	CUgraph graph, clone;
	CUgraphNode node;
	CUgraphExec exec;
	CUdeviceptr slots;
	CUmodule module;

	check_context();
	CU(cuMemAlloc_v2(&slots, 64));
	CU(cuModuleLoadData(&module, graphs_ptx));
	CU(cuModuleGetFunction(&graphs_mix, module, "mix"));
	CU(cuGraphCreate(&graph, 0));
	node = graphs_add_mix(graph, NULL, 0, slots, 0, 0, 0, 0);
	graphs_mix = before;
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuModuleUnload(module));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphKernelNodeGetParams_v2(node, &params));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphClone(&clone, graph));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphLaunch(exec, NULL));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
}

static void changed_parameters_are_those_of_the_next_exec(void)
{
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_MEMCPY3D copy;
	CUgraphNode first, second;
	CUgraphExec before, after;
	CUdeviceptr slots;
	uint32_t got[3];
	CUgraph graph;

	check_context();
	CU(cuMemAlloc_v2(&slots, 64));
	CU(cuGraphCreate(&graph, 0));
	first = graphs_add_fill(graph, NULL, 0, slots, 5);
	second = graphs_add_copy(graph, &first, 1, slots, slots + 4, 4);
	CU(cuGraphInstantiateWithFlags(&before, graph, 0));
	CU(cuGraphMemsetNodeGetParams(first, &fill));
	CHECK_EQUAL(fill.value, 5);
	fill.value = 6;
	CU(cuGraphMemsetNodeSetParams(first, &fill));
	CU(cuGraphMemcpyNodeGetParams(second, &copy));
	CHECK_EQUAL(copy.dstDevice, slots + 4);
	copy.dstDevice = slots + 8;
	CU(cuGraphMemcpyNodeSetParams(second, &copy));
	CU(cuGraphInstantiateWithFlags(&after, graph, 0));
	CU(cuMemsetD32_v2(slots, 0, 3));
	CU(cuGraphLaunch(before, NULL));
	CU(cuMemcpyDtoH_v2(got, slots, sizeof(got)));
	CHECK(got[0] == 5 && got[1] == 5 && got[2] == 0);
	CU(cuGraphLaunch(after, NULL));
	CU(cuMemcpyDtoH_v2(got, slots, sizeof(got)));
	CHECK(got[0] == 6 && got[1] == 5 && got[2] == 6);
	CU(cuGraphExecDestroy(before));
	CU(cuGraphExecDestroy(after));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
}

static void event_nodes_order_streams_outside(void)
{
	CUgraphNode record, wait, node;
	CUevent begun, ended, found;
	CUgraphExec exec;
	CUstream stream;
	CUdeviceptr slots;
	CUgraph graph;
	uint32_t got = 0;

	check_context();
	graphs_begin();
	CU(cuMemAlloc_v2(&slots, 16));
	CU(cuMemsetD32_v2(slots, 0, 4));
	CU(cuCtxSynchronize());
	CU(cuEventCreate(&begun, 0));
	CU(cuEventCreate(&ended, 0));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, begun));
	node = graphs_add_mix(graph, &wait, 1, slots, 1, 0, 0, 1);
	CU(cuGraphAddEventRecordNode(&record, graph, &node, 1, ended));
	CU(cuGraphEventRecordNodeGetEvent(record, &found));
	CHECK(found == ended);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuMemsetD32Async(slots, 9, 1, stream));
	CU(cuEventRecord(begun, stream));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuStreamWaitEvent(stream, ended, 0));
	CU(cuMemcpyDtoHAsync_v2(&got, slots + 4, 4, stream));
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(got, graphs_mixed(9, 9, 1));
	CU(cuEventDestroy_v2(begun)); /* the exec keeps them */
	CU(cuEventDestroy_v2(ended));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuCtxSynchronize());
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuStreamDestroy_v2(stream));
	CU(cuMemFree_v2(slots));
}

static void batches_of_memory_operations_are_nodes(void)
{
	CUstreamBatchMemOpParams ops[2] = { 0 };
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = { .count = 2, .paramArray = ops };
	CUgraphExec exec;
	CUdeviceptr slots;
	CUgraphNode node;
	CUgraph graph;
	uint32_t got[2];

	CUcontext context = check_context();
	CU(cuMemAlloc_v2(&slots, 16));
	CU(cuMemsetD32_v2(slots, 0, 4));
	for (unsigned i = 0; i < 2; i++) {
		ops[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		ops[i].writeValue.address = slots + 4ull * i;
		ops[i].writeValue.value = 70 + i;
	}
	params.ctx = context;
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
	ops[0].writeValue.value = 0; /* it has a copy */
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuMemcpyDtoH_v2(got, slots, sizeof(got)));
	CHECK(got[0] == 70 && got[1] == 71);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
}

static void disabled_nodes_are_left_out_and_order_stays(void)
{
	CUgraphNode a, b, c, empty;
	CUgraphExec exec;
	CUdeviceptr slots;
	unsigned is_enabled = 7;
	CUgraph graph;
	uint32_t got[3];

	check_context();
	CU(cuMemAlloc_v2(&slots, 16));
	CU(cuGraphCreate(&graph, 0));
	a = graphs_add_fill(graph, NULL, 0, slots, 1);
	b = graphs_add_fill(graph, &a, 1, slots, 2);
	c = graphs_add_copy(graph, &b, 1, slots, slots + 4, 4);
	CU(cuGraphAddEmptyNode(&empty, graph, &c, 1));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, empty, 0));
	CU(cuGraphNodeSetEnabled(exec, b, 0));
	CU(cuGraphNodeGetEnabled(exec, b, &is_enabled));
	CHECK_EQUAL(is_enabled, 0);
	CU(cuGraphLaunch(exec, NULL));
	CU(cuMemcpyDtoH_v2(got, slots, 8));
	CHECK(got[0] == 1 && got[1] == 1);
	CU(cuGraphNodeSetEnabled(exec, b, 1));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuMemcpyDtoH_v2(got, slots, 8));
	CHECK(got[0] == 2 && got[1] == 2);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
}

/* ---- memory nodes */

static CUgraphNode add_alloc(CUgraph graph, size_t bytes, CUdeviceptr *address)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = { .bytesize = bytes };
	CUgraphNode node;

	params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	CU(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
	*address = params.dptr;
	return node;
}

static void memory_nodes_have_one_address_for_every_launch(void)
{
	CUgraphNode alloc, fill, copy, release, again;
	CUdeviceptr inner, out, freed;
	CUgraphExec exec, other;
	CUgraph graph, clone;
	uint64_t used = 1;
	uint32_t got = 0;

	check_context();
	CU(cuMemAlloc_v2(&out, 4));
	CU(cuGraphCreate(&graph, 0));
	alloc = add_alloc(graph, 1000, &inner);
	CHECK(inner);
	fill = graphs_add_fill(graph, &alloc, 1, inner, 77);
	copy = graphs_add_copy(graph, &fill, 1, inner, out, 4);
	CU(cuGraphAddMemFreeNode(&release, graph, &copy, 1, inner));
	CU(cuGraphMemFreeNodeGetParams(release, &freed));
	CHECK_EQUAL(freed, inner);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&again, graph, &copy, 1, inner));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&again, graph, &copy, 1, out));
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode(copy));
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphRemoveDependencies_v2(graph, &alloc, &fill, NULL, 1));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&other, graph, 0));
	for (int i = 0; i < 3; i++) {
		CU(cuMemsetD32_v2(out, 0, 1));
		CU(cuGraphLaunch(exec, NULL));
		CU(cuMemcpyDtoH_v2(&got, out, 4));
		CHECK_EQUAL(got, 77);
	}
	CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	CHECK_EQUAL(used, 0);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(out));
}

static void memory_left_by_a_launch_must_go_before_the_next(void)
{
	CUgraphNode alloc;
	CUdeviceptr inner;
	CUgraphExec exec;
	CUgraph graph;
	uint32_t got = 0;

	check_context();
	CU(cuGraphCreate(&graph, 0));
	alloc = add_alloc(graph, 4, &inner);
	graphs_add_fill(graph, &alloc, 1, inner, 5);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphLaunch(exec, NULL));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, NULL));
	CU(cuMemcpyDtoH_v2(&got, inner, 4)); /* still there */
	CHECK_EQUAL(got, 5);
	CU(cuMemFreeAsync(inner, NULL));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuMemFree_v2(inner));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuCtxSynchronize());
	CU(cuMemFree_v2(inner));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuDeviceGraphMemTrim(0));
}

static void a_graph_with_memory_moves_into_its_parent(void)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUDA_MEM_ALLOC_NODE_PARAMS more = { .bytesize = 4 };
	CUgraphNode alloc, fill, copy, release, child, extra;
	CUgraph graph, inner, found;
	CUdeviceptr memory, out;
	CUgraphExec exec;
	uint32_t got = 0;

	check_context();
	CU(cuMemAlloc_v2(&out, 4));
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphCreate(&inner, 0));
	alloc = add_alloc(inner, 100, &memory);
	fill = graphs_add_fill(inner, &alloc, 1, memory, 8);
	copy = graphs_add_copy(inner, &fill, 1, memory, out, 4);
	CU(cuGraphAddMemFreeNode(&release, inner, &copy, 1, memory));
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&child, graph, NULL, 0, inner));
	params.graph.graph = inner;
	params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	CU(cuGraphInstantiateWithFlags(&exec, inner, 0));
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode_v2(&child, graph, NULL, NULL, 0, &params));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphAddNode_v2(&child, graph, NULL, NULL, 0, &params));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inner));
	CU(cuGraphChildGraphNodeGetGraph(child, &found));
	CHECK(found == inner);
	more.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	more.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddMemAllocNode(&extra, inner, NULL, 0, &more));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 2; i++) {
		CU(cuMemsetD32_v2(out, 0, 1));
		CU(cuGraphLaunch(exec, NULL));
		CU(cuMemcpyDtoH_v2(&got, out, 4));
		CHECK_EQUAL(got, 8);
	}
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(out));
}

/* ---- user objects and printing */

static void count_up(void *data)
{
	++*(int *)data;
}

static void user_objects_live_as_long_as_graphs_that_use_them(void)
{
	CUgraph graph, clone;
	CUuserObject object;
	CUgraphExec exec;
	int gone = 0;

	check_context();
	CU(cuGraphCreate(&graph, 0));
	CU(cuUserObjectCreate(&object, &gone, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CU(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	CU(cuGraphClone(&clone, graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphDestroy(graph));
	CHECK_EQUAL(gone, 0);
	CU(cuGraphLaunch(exec, NULL));
	CU(cuGraphExecDestroy(exec));
	CHECK_EQUAL(gone, 0);
	CU(cuUserObjectRetain(object, 2));
	CU(cuGraphReleaseUserObject(clone, object, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphReleaseUserObject(clone, object, 1));
	CU(cuGraphDestroy(clone));
	CHECK_EQUAL(gone, 0);
	CU(cuUserObjectRelease(object, 2));
	CHECK_EQUAL(gone, 1);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(object, 1));
}

static void a_graph_is_printed_for_graphviz(void)
{
	char path[] = "/tmp/belfry-dot.XXXXXX", text[4096] = "";
	int fd = mkstemp(path);
	CUgraphNode node;
	CUdeviceptr slots;
	CUgraph graph;

	check_context();
	graphs_begin();
	CU(cuMemAlloc_v2(&slots, 16));
	CU(cuGraphCreate(&graph, 0));
	node = graphs_add_fill(graph, NULL, 0, slots, 1);
	graphs_add_mix(graph, &node, 1, slots, 1, 0, 0, 1);
	CU(cuGraphDebugDotPrint(graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	CHECK(strstr(text, "digraph") && strstr(text, "MEMSET") && strstr(text, "mix") && strstr(text, "->"));
	close(fd);
	unlink(path);
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(slots));
}

TESTS(TEST(nodes_and_edges_are_told_as_made), TEST(wrong_dependencies_are_refused),
      TEST(nodes_are_found_in_clones_and_children), TEST(kernel_nodes_tell_their_parameters),
      TEST(cooperative_nodes_must_fit_the_gpu), TEST(kernels_of_unloaded_modules_are_refused),
      TEST(changed_parameters_are_those_of_the_next_exec), TEST(event_nodes_order_streams_outside),
      TEST(batches_of_memory_operations_are_nodes), TEST(disabled_nodes_are_left_out_and_order_stays),
      TEST(memory_nodes_have_one_address_for_every_launch),
      TEST(memory_left_by_a_launch_must_go_before_the_next), TEST(a_graph_with_memory_moves_into_its_parent),
      TEST(user_objects_live_as_long_as_graphs_that_use_them), TEST(a_graph_is_printed_for_graphviz))

/* cuda: capture: streams become graphs; forks and joins; what makes a capture invalid and what is forbidden meanwhile.
 * The errors are those that driver 580 gave on an H200. */
#include "check.h"
#include "graphs.h"

#include <pthread.h>

static CUcontext context;
static CUdeviceptr slots;
static CUstream a, b, free_stream; /* two blocking ones, one that is not */
static CUevent event, other_event;

static void begin(void)
{
	context = check_context();
	graphs_begin();
	CU(cuMemAlloc_v2(&slots, 256));
	CU(cuMemsetD32_v2(slots, 0, 64));
	CU(cuCtxSynchronize());
	CU(cuStreamCreate(&a, CU_STREAM_DEFAULT));
	CU(cuStreamCreate(&b, CU_STREAM_DEFAULT));
	CU(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&event, 0));
	CU(cuEventCreate(&other_event, 0));
}

static void end(void)
{
	CU(cuEventDestroy_v2(event));
	CU(cuEventDestroy_v2(other_event));
	CU(cuStreamDestroy_v2(a));
	CU(cuStreamDestroy_v2(b));
	CU(cuStreamDestroy_v2(free_stream));
	CU(cuCtxSynchronize());
	CU(cuMemFree_v2(slots));
}

static CUresult mix(CUstream stream, uint32_t to, uint32_t from, uint32_t k)
{
	void *list[] = { &slots, &to, &from, &from, &k };

	return cuLaunchKernel(graphs_mix, 1, 1, 1, 1, 1, 1, 0, stream, list, NULL);
}

static CUstreamCaptureStatus status(CUstream stream)
{
	CUstreamCaptureStatus now;

	CU(cuStreamIsCapturing(stream, &now));
	return now;
}

/* A capture that has gone wrong ends so, and leaves its streams. */
static void ends_invalid(CUstream stream)
{
	CUgraph graph = (CUgraph)&graph;

	CHECK_EQUAL(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, mix(stream, 0, 0, 0));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
	CHECK(!graph);
	CHECK_EQUAL(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

static uint32_t launch(CUgraph graph, unsigned slot)
{
	CUgraphExec exec;
	uint32_t got = 0;

	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphLaunch(exec, a));
	CU(cuStreamSynchronize(a));
	CU(cuGraphExecDestroy(exec));
	CU(cuMemcpyDtoH_v2(&got, slots + 4ull * slot, 4));
	return got;
}

static void work_becomes_a_graph_and_is_not_done(void)
{
	CUgraph graph;
	uint32_t got = 7, out = 1;
	size_t nodes = 0, edges = 0;

	begin();
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_EQUAL(status(a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CU(cuMemsetD32Async(slots, 3, 1, a));
	CU(mix(a, 1, 0, 5));
	CU(cuMemcpyDtoDAsync_v2(slots + 8, slots + 4, 4, a));
	CU(cuMemcpyDtoHAsync_v2(&out, slots + 8, 4, a));
	CU(cuStreamEndCapture(a, &graph));
	CHECK_EQUAL(status(a), CU_STREAM_CAPTURE_STATUS_NONE);
	CU(cuStreamSynchronize(a));
	CU(cuMemcpyDtoH_v2(&got, slots, 4));
	CHECK(got == 0 && out == 1);
	CU(cuGraphGetNodes(graph, NULL, &nodes));
	CU(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &edges));
	CHECK(nodes == 4 && edges == 3);
	CHECK_EQUAL(launch(graph, 2), 3 * 38 + 5);
	CHECK_EQUAL(out, 3 * 38 + 5);
	CU(cuGraphDestroy(graph));
	end();
}

static void streams_fork_and_join_by_events(void)
{
	const CUgraphNode *dependencies;
	const CUgraphEdgeData *data;
	CUstreamCaptureStatus now;
	CUgraph graph, during;
	size_t count = 0;
	cuuint64_t id = 0, same = 1;

	begin();
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemsetD32Async(slots, 2, 1, a));
	CU(cuEventRecord(event, a));
	CHECK_EQUAL(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
	CU(cuStreamWaitEvent(b, event, 0));
	CHECK_EQUAL(status(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CU(mix(a, 1, 0, 1));
	CU(mix(b, 2, 0, 2));
	CU(cuEventRecord(other_event, b));
	CU(cuStreamWaitEvent(a, other_event, 0));
	CU(cuStreamGetCaptureInfo_v3(a, &now, &id, &during, &dependencies, &data, &count));
	CHECK_EQUAL(count, 2);
	CU(cuStreamGetCaptureInfo_v2(b, &now, &same, NULL, NULL, &count));
	CHECK(count == 1 && id == same);
	CU(mix(a, 3, 2, 3));
	CU(cuStreamEndCapture(a, &graph));
	CHECK(graph == during);
	CHECK_EQUAL(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
	CU(cuGraphGetRootNodes(graph, NULL, &count));
	CHECK_EQUAL(count, 1);
	CU(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &count));
	CHECK_EQUAL(count, 4);
	CHECK_EQUAL(launch(graph, 3), (2 * 38 + 2) * 38 + 3);
	CU(cuGraphDestroy(graph));
	/* The events stay marked until they are recorded again. */
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuEventQuery(event));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(b, event, 0));
	CU(cuEventRecord(event, b));
	CU(cuEventSynchronize(event));
	end();
}

static void a_stream_that_was_not_joined_spoils_the_end(void)
{
	CUstream gone;
	CUgraph graph;

	begin();
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuEventRecord(event, a));
	CU(cuStreamWaitEvent(b, event, 0));
	CU(mix(b, 1, 0, 1));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));
	CHECK(!graph);
	CHECK_EQUAL(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
	/* One that was destroyed cannot be joined any more. */
	CU(cuStreamCreate(&gone, CU_STREAM_DEFAULT));
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuEventRecord(event, a));
	CU(cuStreamWaitEvent(gone, event, 0));
	CU(mix(gone, 1, 0, 1));
	CU(cuStreamDestroy_v2(gone));
	CHECK_EQUAL(status(a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));
	/* With the stream that began it goes the capture. */
	CU(cuStreamCreate(&gone, CU_STREAM_DEFAULT));
	CU(cuStreamBeginCapture_v2(gone, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(mix(gone, 1, 0, 1));
	CU(cuStreamDestroy_v2(gone));
	CU(cuCtxSynchronize());
	/* One that did nothing needs no join. */
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(mix(a, 1, 0, 1));
	CU(cuEventRecord(event, a));
	CU(cuStreamWaitEvent(b, event, 0));
	CU(cuStreamEndCapture(a, &graph));
	CU(cuGraphDestroy(graph));
	end();
}

static void captures_begin_and_end_where_they_may(void)
{
	CUgraph graph;

	begin();
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, 0));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(CU_STREAM_LEGACY, 2));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture_v2(a, 3));
	CU_FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(a, &graph));
	CU(cuStreamBeginCapture_v2(a, 0));
	CU_FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(a, 0));
	CHECK_EQUAL(status(a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CU(cuEventRecord(event, a));
	CU(cuStreamWaitEvent(b, event, 0));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(b, &graph));
	CHECK_EQUAL(status(b), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	ends_invalid(a);
	/* A thread's own stream can be captured. */
	CU(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, 0));
	CU(mix(CU_STREAM_PER_THREAD, 1, 0, 1));
	CU(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
	CU(cuGraphDestroy(graph));
	end();
}

static void the_legacy_stream_stays_outside(void)
{
	CUstreamCaptureStatus now;
	CUgraph graph;
	uint32_t got;

	begin();
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &now));
	CHECK_EQUAL(status(a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, mix(NULL, 1, 0, 1));
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamSynchronize(NULL));
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyDtoH_v2(&got, slots, 4));
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuEventRecord(event, NULL));
	ends_invalid(a);
	/* It does not wait for this one. */
	CU(cuStreamBeginCapture_v2(free_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(mix(NULL, 1, 0, 1));
	CU(mix(b, 1, 0, 1));
	CU(cuMemcpyDtoH_v2(&got, slots, 4));
	CHECK_EQUAL(status(NULL), CU_STREAM_CAPTURE_STATUS_NONE);
	CU(cuEventRecord(event, free_stream));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamWaitEvent(NULL, event, 0));
	ends_invalid(free_stream);
	CU(cuStreamBeginCapture_v2(free_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cuStreamEndCapture(free_stream, &graph));
	CU(cuGraphDestroy(graph));
	end();
}

static void events_from_outside_and_of_other_captures_are_refused(void)
{
	CUgraph graph;

	begin();
	CU(cuEventRecord(event, b));
	CU(cuStreamBeginCapture_v2(a, 0));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(a, event, 0));
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, 0));
	CU(cuStreamWaitEvent(a, other_event, 0)); /* never recorded */
	CU(cuStreamEndCapture(a, &graph));
	CU(cuGraphDestroy(graph));
	CU(cuStreamBeginCapture_v2(a, 0));
	CU(cuStreamBeginCapture_v2(b, 0));
	CU(cuEventRecord(event, a));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(b, event, 0));
	ends_invalid(a);
	ends_invalid(b);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cuEventRecord(event, a));
	CU_FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cuEventRecord(event, a));
	CU_FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(event));
	ends_invalid(a);
	end();
}

static void external_events_become_nodes(void)
{
	CUgraphNode nodes[2];
	CUgraphNodeType types[2];
	CUgraph graph;
	size_t count = 2;

	begin();
	CU(cuStreamBeginCapture_v2(a, 0));
	CU(cuStreamWaitEvent(a, event, CU_EVENT_WAIT_EXTERNAL));
	CU(cuEventRecordWithFlags(other_event, a, CU_EVENT_RECORD_EXTERNAL));
	CU(cuStreamEndCapture(a, &graph));
	CU(cuGraphGetNodes(graph, nodes, &count));
	CHECK_EQUAL(count, 2);
	for (int i = 0; i < 2; i++)
		CU(cuGraphNodeGetType(nodes[i], &types[i]));
	CHECK_EQUAL(types[0], CU_GRAPH_NODE_TYPE_WAIT_EVENT);
	CHECK_EQUAL(types[1], CU_GRAPH_NODE_TYPE_EVENT_RECORD);
	launch(graph, 0);
	CU(cuEventSynchronize(other_event));
	CU(cuGraphDestroy(graph));
	end();
}

static void waiting_for_a_capturing_stream_is_never_possible(void)
{
	begin();
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(a));
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(a));
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(free_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
	ends_invalid(free_stream);
	end();
}

/* ---- modes and threads */

static CUresult other_result;

static void *other_allocates(void *unused)
{
	CUdeviceptr memory;

	(void)unused;
	CU(cuCtxSetCurrent(context));
	other_result = cuMemAlloc_v2(&memory, 4);
	if (!other_result)
		CU(cuMemFree_v2(memory));
	return NULL;
}

static void *other_ends(void *unused)
{
	CUgraph graph;

	(void)unused;
	CU(cuCtxSetCurrent(context));
	other_result = cuStreamEndCapture(a, &graph);
	if (!other_result)
		CU(cuGraphDestroy(graph));
	return NULL;
}

static void *other_works(void *unused)
{
	(void)unused;
	CU(cuCtxSetCurrent(context));
	other_result = mix(a, 1, 0, 1);
	return NULL;
}

static CUresult in_other_thread(void *(*run)(void *))
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, run, NULL));
	CHECK(!pthread_join(thread, NULL));
	return other_result;
}

static void modes_say_who_may_do_what(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr memory;
	CUgraph graph;

	begin();
	/* Global: no thread. */
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&memory, 4));
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_EQUAL(in_other_thread(other_allocates), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(b));
	ends_invalid(a);
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(event));
	ends_invalid(a);
	/* Of this thread: others may. */
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK_EQUAL(in_other_thread(other_allocates), CUDA_SUCCESS);
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&memory, 4));
	ends_invalid(a);
	/* Relaxed: all may. */
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cuMemAlloc_v2(&memory, 4));
	CU(cuStreamSynchronize(b));
	CU(cuStreamEndCapture(a, &graph));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(memory));
	/* A thread that says that it knows what it does. */
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuMemAlloc_v2(&memory, 4));
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	CU(cuStreamEndCapture(a, &graph));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(memory));
	end();
}

static void other_threads_may_work_but_not_end(void)
{
	CUgraph graph;

	begin();
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_EQUAL(in_other_thread(other_works), CUDA_SUCCESS);
	CHECK_EQUAL(in_other_thread(other_ends), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	CU_FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(a, &graph)); /* it is over all the same */
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK_EQUAL(in_other_thread(other_ends), CUDA_SUCCESS);
	end();
}

/* ---- into graphs, and more */

static void capture_goes_on_where_it_is_told(void)
{
	CUgraphNode fill, nodes[4];
	CUgraph graph, same;
	size_t count = 0;

	begin();
	CU(cuGraphCreate(&graph, 0));
	fill = graphs_add_fill(graph, NULL, 0, slots, 4);
	CU(cuStreamBeginCaptureToGraph(a, graph, &fill, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU_FAILS(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy(graph));
	CU_FAILS(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroyNode(fill));
	CU(mix(a, 1, 0, 1));
	/* Back to the fill, and then after both. */
	CU(cuStreamUpdateCaptureDependencies_v2(a, &fill, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	CU(mix(a, 2, 0, 2));
	count = 4;
	CU(cuGraphGetNodes(graph, nodes, &count));
	CU(cuStreamUpdateCaptureDependencies_v2(a, &nodes[1], NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	CU(mix(a, 3, 1, 3));
	CU(cuStreamEndCapture(a, &same));
	CHECK(same == graph);
	CU(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &count));
	CHECK_EQUAL(count, 4);
	CHECK_EQUAL(launch(graph, 3), (4 * 38 + 1) * 38 + 3);
	CU(cuGraphDestroy(graph));
	end();
}

static void memory_of_the_stream_becomes_memory_nodes(void)
{
	CUgraphNodeType type;
	CUgraphNode nodes[4];
	CUdeviceptr inner;
	CUgraph graph;
	size_t count = 4;

	begin();
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemAllocAsync(&inner, 100, a));
	CU(cuMemsetD32Async(inner, 6, 1, a));
	CU(cuMemcpyDtoDAsync_v2(slots + 4, inner, 4, a));
	CU(cuMemFreeAsync(inner, a));
	CU(cuStreamEndCapture(a, &graph));
	CU(cuGraphGetNodes(graph, nodes, &count));
	CHECK_EQUAL(count, 4);
	CU(cuGraphNodeGetType(nodes[0], &type));
	CHECK_EQUAL(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	CU(cuGraphNodeGetType(nodes[3], &type));
	CHECK_EQUAL(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
	CHECK_EQUAL(launch(graph, 1), 6);
	CU(cuGraphDestroy(graph));
	end();
}

static void graphs_are_not_launched_in_a_capture(void)
{
	CUgraphExec exec;
	CUgraph inner;

	begin();
	CU(cuGraphCreate(&inner, 0));
	graphs_add_fill(inner, NULL, 0, slots, 9);
	CU(cuGraphInstantiateWithFlags(&exec, inner, 0));
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphLaunch(exec, a));
	ends_invalid(a);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(inner));
	end();
}

static void add_one(void *number)
{
	++*(volatile int *)number;
}

static void host_functions_are_captured(void)
{
	CUgraph graph;
	int number = 0;

	begin();
	CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuLaunchHostFunc(a, add_one, &number));
	CU(cuStreamEndCapture(a, &graph));
	CHECK_EQUAL(number, 0);
	launch(graph, 0);
	launch(graph, 0);
	CHECK_EQUAL(number, 2);
	CU(cuGraphDestroy(graph));
	end();
}

TESTS(TEST(work_becomes_a_graph_and_is_not_done), TEST(streams_fork_and_join_by_events),
      TEST(a_stream_that_was_not_joined_spoils_the_end), TEST(captures_begin_and_end_where_they_may),
      TEST(the_legacy_stream_stays_outside), TEST(events_from_outside_and_of_other_captures_are_refused),
      TEST(external_events_become_nodes), TEST(waiting_for_a_capturing_stream_is_never_possible),
      TEST(modes_say_who_may_do_what), TEST(other_threads_may_work_but_not_end),
      TEST(capture_goes_on_where_it_is_told), TEST(memory_of_the_stream_becomes_memory_nodes),
      TEST(graphs_are_not_launched_in_a_capture), TEST(host_functions_are_captured))

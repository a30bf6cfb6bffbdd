/* The order of work is the program's, on whatever SMs the work runs; and no work waits for more than it would without the
 * library. */
#include "server.h"

enum { ROUNDS = 60 };

/* What is at `memory` now, without an order to other streams. */
static uint32_t look(void)
{
	CUstream stream;
	uint32_t got;

	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemcpyDtoHAsync_v2(&got, memory, sizeof(got), stream));
	CU(cuStreamSynchronize(stream));
	CU(cuStreamDestroy_v2(stream));
	return got;
}

/* A launch that is too large for the partition goes to all SMs, behind what it would have waited for. It is the first work of
 * the legacy stream. */
static void a_launch_that_falls_back_keeps_its_order(void)
{
	volatile uint32_t *flag;
	void *params[] = { &memory };
	CUstream stream;

	start();
	flag = flag_new();
	lease_set(1);
	CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	CU(cuMemsetD32Async(memory, SMS, 1, stream)); /* not an SM */
	CU(cuStreamSynchronize(stream));
	launch_on(check_function(ptx, "until"), stream, &flag);
	CU(cuLaunchCooperativeKernel(check_function(ptx, "where"), 2 * SMS, 1, 1, 512, 1, 1, 0, NULL,
				     params));
	usleep(20000);
	CHECK_EQUAL(look(), SMS);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	*flag = 1;
	CHECK(is_done(NULL));
	CHECK(look() < SMS);
	CU(cuStreamDestroy_v2(stream));
	lease_set(CORO_UNITS_ALL);
}

/* Two blocking streams are ordered by work of the legacy stream between theirs, and by nothing else. */
static void blocking_streams_do_not_wait_for_each_other(void)
{
	CUfunction until;
	CUstream busy, other;

	start();
	until = check_function(ptx, "until");
	for (unsigned i = 0; i < 2; i++) {
		volatile uint32_t *flag = flag_new();

		CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
		CU(cuStreamCreate(&busy, CU_STREAM_DEFAULT));
		CU(cuStreamCreate(&other, CU_STREAM_DEFAULT));
		CU(cuMemsetD32Async(memory, 1, 1, NULL));
		launch_on(until, busy, &flag);
		if (i) /* what remains of a destroyed stream is awaited by later work of the legacy stream only */
			CU(cuStreamDestroy_v2(busy));
		lease_set(1);
		CU(cuMemsetD32Async(memory + 4, 1, 1, other));
		CHECK(is_done(other));
		*flag = 1;
		if (!i)
			CU(cuStreamDestroy_v2(busy));
		CU(cuStreamDestroy_v2(other));
	}
	lease_set(CORO_UNITS_ALL);
}

static void a_query_places_nothing(void)
{
	volatile uint32_t *flag;
	CUstream busy, other;

	start();
	flag = flag_new();
	CU(cuStreamSynchronize(NULL));
	CU(cuStreamCreate(&busy, CU_STREAM_DEFAULT));
	CU(cuStreamCreate(&other, CU_STREAM_DEFAULT));
	lease_set(CORO_UNITS_ALL);
	CU(cuMemsetD32Async(memory, 1, 1, NULL)); /* the legacy stream is on all SMs */
	lease_set(1);
	launch_on(check_function(ptx, "until"), busy, &flag);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	lease_set(CORO_UNITS_ALL);
	CU(cuMemsetD32Async(memory, 1, 1, other));
	CHECK(is_done(other)); /* it is not behind a wait that the query has put on the legacy stream */
	*flag = 1;
	CHECK(is_done(NULL));
	CU(cuStreamDestroy_v2(busy));
	CU(cuStreamDestroy_v2(other));
}

/* An event behind all work of the context is behind work on every partition, and all work waits for one. */
static void events_of_the_context_concern_all_partitions(void)
{
	volatile uint32_t *flag;
	CUstream busy, others[2];
	CUcontext context;
	CUevent event;

	start();
	flag = flag_new();
	CU(cuCtxGetCurrent(&context));
	CU(cuEventCreate(&event, 0));
	for (unsigned i = 0; i < 2; i++)
		CU(cuStreamCreate(&others[i], CU_STREAM_NON_BLOCKING));
	lease_set(1);
	CU(cuMemsetD32Async(memory, 1, 1, others[0]));
	CU(cuStreamSynchronize(others[0]));
	CU(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	launch_on(check_function(ptx, "until"), busy, &flag);
	CU(cuCtxRecordEvent(context, event));
	CU(cuStreamDestroy_v2(busy));
	CU(cuCtxWaitEvent(context, event));
	for (unsigned i = 0; i < 2; i++) {
		lease_set(1 + i);
		CU(cuMemsetD32Async(memory + 4, 1, 1, others[i]));
	}
	usleep(20000);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
	for (unsigned i = 0; i < 2; i++)
		CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(others[i]));
	*flag = 1;
	CU(cuEventSynchronize(event));
	for (unsigned i = 0; i < 2; i++) {
		CHECK(is_done(others[i]));
		CU(cuStreamDestroy_v2(others[i]));
	}
	CU(cuEventDestroy_v2(event));
	lease_set(CORO_UNITS_ALL);
}

/* The legacy stream waits for the work of a blocking stream that was destroyed on other units. */
static void destroyed_streams_keep_their_order(void)
{
	CUfunction step;
	CUstream stream;
	uint32_t expected = 0, got, k;
	void *params[] = { &memory, &k };

	start();
	step = check_function(ptx, "step");
	CU(cuMemsetD32_v2(memory, 0, 1));
	for (k = 0; k < ROUNDS; k++) {
		lease_set(1 + k % 5);
		if (k & 1) {
			CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		} else {
			CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
			CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
			CU(cuStreamDestroy_v2(stream));
		}
		expected = expected * 3 + k;
	}
	CU(cuMemcpyDtoH_v2(&got, memory, sizeof(got)));
	CHECK_EQUAL(got, expected);
	lease_set(CORO_UNITS_ALL);
}

/* alone(at, flag): counts those that run at once, notes at `at` + 4 if there are two, and runs until *flag is not 0. */
static const char alone_ptx[] = PTX_HEAD
	".visible .entry alone(.param .u64 at, .param .u64 flag)\n"
	"{\n"
	"	.reg .b64 %rd<3>; .reg .b32 %r<4>; .reg .pred %p<3>;\n"
	"	ld.param.u64 %rd1, [at]; ld.param.u64 %rd2, [flag];\n"
	"	atom.global.add.u32 %r1, [%rd1], 1;\n"
	"	setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;\n"
	"	mov.u32 %r2, 1; st.global.u32 [%rd1+4], %r2;\n"
	"AGAIN:	ld.volatile.global.u32 %r3, [%rd2]; setp.eq.u32 %p2, %r3, 0; @%p2 bra AGAIN;\n"
	"	atom.global.add.u32 %r1, [%rd1], -1;\n"
	"	ret;\n"
	"}\n";

static CUgraphExec graph_of_steps(CUfunction step, uint32_t k, CUgraph *graph)
{
	void *params[] = { &memory, &k };
	CUgraphExec exec;
	CUstream stream;

	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (unsigned i = 0; i < 4; i++)
		CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	CU(cuStreamEndCapture(stream, graph));
	CU(cuStreamDestroy_v2(stream));
	CU(cuGraphInstantiateWithFlags(&exec, *graph, 0));
	return exec;
}

static CUgraphExec graph_of_one(CUfunction function, void **params, CUgraph *graph)
{
	CUDA_KERNEL_NODE_PARAMS kernel = { .func = function,
					   .gridDimX = 1,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 1,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = params };
	CUgraphNode node;
	CUgraphExec exec;

	CU(cuGraphCreate(graph, 0));
	CU(cuGraphAddKernelNode_v2(&node, *graph, NULL, 0, &kernel));
	CU(cuGraphInstantiateWithFlags(&exec, *graph, 0));
	return exec;
}

/* Launches of one executable graph run one after the other, also on streams that are gone. */
static void launches_of_a_graph_are_ordered(void)
{
	static const uint64_t leases[] = { 1, 2, CORO_UNITS_ALL, 4, 4 };
	volatile uint32_t *flag;
	void *params[] = { &memory, &flag };
	uint32_t got[2];
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	start();
	flag = flag_new();
	exec = graph_of_one(check_function(alone_ptx, "alone"), params, &graph);
	CU(cuMemsetD32_v2(memory, 0, 2));
	CU(cuStreamSynchronize(NULL));
	for (unsigned i = 0; i < 5; i++) {
		lease_set(leases[i]);
		CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CU(cuGraphLaunch(exec, stream));
		CU(cuStreamDestroy_v2(stream));
	}
	usleep(20000);
	*flag = 1;
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH_v2(got, memory, sizeof(got)));
	CHECK_EQUAL(got[0], 0);
	CHECK_EQUAL(got[1], 0);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	lease_set(CORO_UNITS_ALL);
}

static void a_disabled_node_stays_disabled_after_an_update(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphNode nodes[4];
	size_t count = 4;
	uint32_t got;
	CUgraphExec exec;
	CUgraph graph;

	start();
	exec = graph_of_steps(check_function(ptx, "step"), 1, &graph);
	CU(cuGraphGetNodes(graph, nodes, &count));
	CU(cuGraphNodeSetEnabled(exec, nodes[0], 0));
	CU(cuGraphNodeSetEnabled(exec, nodes[1], 0));
	CU(cuGraphExecUpdate_v2(exec, graph, &info));
	for (unsigned i = 0; i < 2; i++) {
		lease_set(i ? 1 : CORO_UNITS_ALL);
		CU(cuMemsetD32_v2(memory, 0, 1));
		CU(cuGraphLaunch(exec, NULL));
		CU(cuMemcpyDtoH_v2(&got, memory, sizeof(got)));
		CHECK_EQUAL(got, 4); /* 0 * 3 + 1, times 3, + 1: two steps */
	}
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	lease_set(CORO_UNITS_ALL);
}

/* A launch of one thread that records the event, by an attribute. */
static void launch_with_event(CUfunction function, CUstream stream, void **params, CUevent event)
{
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT };
	CUlaunchConfig config = { .gridDimX = 1,
				  .gridDimY = 1,
				  .gridDimZ = 1,
				  .blockDimX = 1,
				  .blockDimY = 1,
				  .blockDimZ = 1,
				  .hStream = stream,
				  .attrs = &attribute,
				  .numAttrs = 1 };

	attribute.value.launchCompletionEvent.event = event;
	CU(cuLaunchKernelEx(&config, function, params, NULL));
}

static void an_event_of_a_captured_launch_is_part_of_the_capture(void)
{
	CUstream first, second;
	uint32_t k = 1;
	void *params[] = { &memory, &k };
	CUevent forked, joined;
	CUfunction step;
	CUgraph graph;
	size_t count = 0;

	start();
	step = check_function(ptx, "step");
	CU(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
	CU(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
	lease_set(1);
	CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, second, params, NULL)); /* on a partition */
	CU(cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch_with_event(step, first, params, forked);
	CU(cuStreamWaitEvent(second, forked, 0));
	CHECK(is_fenced(lease_set(2), WAIT_MS)); /* the fence asks the partition, which is not captured */
	CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, second, params, NULL));
	CU(cuEventRecord(joined, second));
	CU(cuStreamWaitEvent(first, joined, 0));
	CU(cuStreamEndCapture(first, &graph));
	CU(cuGraphGetNodes(graph, NULL, &count));
	CHECK_EQUAL(count, 2);
	CU(cuGraphDestroy(graph));
	CU(cuEventDestroy_v2(forked));
	CU(cuEventDestroy_v2(joined));
	CU(cuStreamDestroy_v2(first));
	CU(cuStreamDestroy_v2(second));
	lease_set(CORO_UNITS_ALL);
}

struct sync_job {
	CUcontext context;
	_Atomic bool may_end;
	_Atomic unsigned rounds;
};

static void *sync_in_thread(void *arg)
{
	struct sync_job *job = arg;

	CU(cuCtxSetCurrent(job->context));
	while (!atomic_load(&job->may_end)) {
		CU(cuCtxSynchronize());
		atomic_fetch_add(&job->rounds, 1);
	}
	return NULL;
}

/* Graphs are made anew by a capture. Another thread that waits for the context does not see it. */
static void a_wait_for_the_context_beside_graphs_succeeds(void)
{
	struct sync_job job = { 0 };
	uint32_t k = 1;
	void *params[] = { &memory, &k };
	CUfunction step;
	pthread_t thread;

	start();
	CU(cuCtxGetCurrent(&job.context));
	step = check_function(ptx, "step");
	CHECK(!pthread_create(&thread, NULL, sync_in_thread, &job));
	for (unsigned i = 0; i < ROUNDS || atomic_load(&job.rounds) < 20; i++) {
		CUgraph graph;
		CUgraphExec exec = graph_of_one(step, params, &graph);

		lease_set(1 + i % 3);
		CU(cuGraphLaunch(exec, NULL));
		CU(cuGraphExecDestroy(exec));
		CU(cuGraphDestroy(graph));
	}
	job.may_end = true;
	CHECK(!pthread_join(thread, NULL));
	lease_set(CORO_UNITS_ALL);
}

TESTS(TEST(a_launch_that_falls_back_keeps_its_order), TEST(blocking_streams_do_not_wait_for_each_other),
      TEST(a_query_places_nothing), TEST(events_of_the_context_concern_all_partitions),
      TEST(destroyed_streams_keep_their_order), TEST(launches_of_a_graph_are_ordered),
      TEST(a_disabled_node_stays_disabled_after_an_update),
      TEST(an_event_of_a_captured_launch_is_part_of_the_capture),
      TEST(a_wait_for_the_context_beside_graphs_succeeds))

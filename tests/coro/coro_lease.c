/* Leases: the program runs on the SMs that the GPU server leases to it, and follows when they change. */
#include "server.h"

enum { THREADS = 64, STEPS = 300 };

static void launches_stay_on_the_leased_units(void)
{
	CUfunction where;
	CUstream stream;
	uint32_t first, second, both;

	start();
	where = check_function(ptx, "where");
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK_EQUAL(launched(where, stream), UINT32_MAX);
	CHECK(page->unit_count > 1);
	lease_set(1);
	first = launched(where, stream);
	lease_set(2);
	second = launched(where, stream);
	lease_set(3);
	both = launched(where, NULL);
	CHECK_EQUAL(__builtin_popcount(first), page->unit_sms);
	CHECK_EQUAL(__builtin_popcount(second), page->unit_sms);
	CHECK_EQUAL(first & second, 0);
	CHECK_EQUAL(both, first | second);
	lease_set(CORO_UNITS_ALL);
	CHECK_EQUAL(launched(where, stream), UINT32_MAX);
	CU(cuStreamDestroy_v2(stream));
}

static void the_order_of_a_stream_holds_while_it_moves(void)
{
	static const uint64_t leases[] = { 1, 2, 3, CORO_UNITS_ALL, 2, 6, CORO_UNITS_ALL };
	CUfunction step;
	CUstream streams[3] = { NULL };
	uint32_t expected = 0, got, k;
	uint64_t moves;
	void *params[] = { &memory, &k };

	start();
	step = check_function(ptx, "step");
	CU(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
	CU(cuStreamCreate(&streams[2], CU_STREAM_DEFAULT));
	CU(cuMemsetD32_v2(memory, 0, 1));
	moves = page->moves;
	/* The legacy default stream and blocking streams wait for each other. */
	for (k = 0; k < STEPS; k++) {
		CUstream stream = k & 1 ? NULL : streams[1 + (k >> 1) % 2];

		lease_set(leases[k % (sizeof(leases) / sizeof(*leases))]);
		CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		expected = expected * 3 + k;
	}
	CU(cuMemcpyDtoH_v2(&got, memory, sizeof(got)));
	CHECK_EQUAL(got, expected);
	CHECK(page->moves > moves + STEPS / 4);
	lease_set(CORO_UNITS_ALL);
	CU(cuStreamDestroy_v2(streams[1]));
	CU(cuStreamDestroy_v2(streams[2]));
}

static void a_fence_waits_for_what_runs(void)
{
	CUfunction until, where;
	CUstream busy, other;
	volatile uint32_t *flag;
	uint64_t generation;
	uint32_t before, after;
	void *host, *params[] = { &host };

	start();
	until = check_function(ptx, "until");
	where = check_function(ptx, "where");
	CU(cuMemHostAlloc(&host, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	flag = host;
	*flag = 0;
	CU(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CHECK(is_fenced(lease_set(1), 5000));
	before = launched(where, other);
	CU(cuLaunchKernel(until, 1, 1, 1, 1, 1, 1, 0, busy, params, NULL));
	generation = lease_set(2);
	CHECK(!is_fenced(generation, 100));
	CHECK_EQUAL(page->seen, generation);
	after = launched(where, other); /* what is launched now is on the new units */
	CHECK_EQUAL(before & after, 0);
	CHECK(!is_fenced(generation, 20));
	*flag = 1;
	CHECK(is_fenced(generation, 5000));
	CU(cuStreamSynchronize(busy));
	/* More units than before: nothing has to end. */
	*flag = 0;
	CU(cuLaunchKernel(until, 1, 1, 1, 1, 1, 1, 0, busy, params, NULL));
	CHECK(is_fenced(lease_set(3), 5000));
	*flag = 1;
	CU(cuCtxSynchronize());
	lease_set(CORO_UNITS_ALL);
	CU(cuMemFreeHost(host));
	CU(cuStreamDestroy_v2(busy));
	CU(cuStreamDestroy_v2(other));
}

static CUgraphExec graph_of(CUfunction where)
{
	void *params[] = { &memory };
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < 3; i++)
		CU(cuLaunchKernel(where, BLOCKS, 1, 1, 32, 1, 1, 0, stream, params, NULL));
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphDestroy(graph));
	CU(cuStreamDestroy_v2(stream));
	return exec;
}

static void check_graph(CUfunction where)
{
	CUgraphExec exec = graph_of(where);
	uint32_t at[2];

	for (unsigned i = 0; i < 4; i++) {
		lease_set(1u << i % 2);
		CU(cuGraphLaunch(exec, NULL));
		CU(cuStreamSynchronize(NULL));
		CHECK_EQUAL(__builtin_popcount(used()), page->unit_sms);
		CHECK(i < 2 || used() == at[i % 2]);
		at[i % 2] = used();
	}
	CHECK_EQUAL(at[0] & at[1], 0);
	lease_set(CORO_UNITS_ALL);
	CU(cuGraphExecDestroy(exec));
}

static void graphs_follow_the_lease(void)
{
	CUlibrary library;
	CUkernel kernel;

	start();
	check_graph(check_function(ptx, "where"));
	CU(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&kernel, library, "where"));
	check_graph((CUfunction)kernel);
}

static void what_does_not_fit_runs_on_all_sms(void)
{
	CUfunction where;
	uint64_t fell_back;
	void *params[] = { &memory };

	start();
	where = check_function(ptx, "where");
	lease_set(1);
	fell_back = page->fell_back;
	/* Two blocks of 1024 threads fit on an SM. */
	CU(cuLaunchCooperativeKernel(where, 2 * SMS, 1, 1, 1024, 1, 1, 0, NULL, params));
	CU(cuStreamSynchronize(NULL));
	CHECK_EQUAL(page->fell_back, fell_back + 1);
	CU_FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
		 cuLaunchCooperativeKernel(where, 2 * SMS + 1, 1, 1, 1024, 1, 1, 0, NULL, params));
	lease_set(CORO_UNITS_ALL);
}

/* Whatever stands in the page, the program goes on. */
static void a_page_of_garbage_does_no_harm(void)
{
	static const uint64_t garbage[] = { 0, 1ull << 63, 0xdeadbeefdeadbeef, 1ull << 62,
					    0x5555555555555555 };
	CUfunction where;

	start();
	where = check_function(ptx, "where");
	for (size_t i = 0; i < sizeof(garbage) / sizeof(*garbage); i++) {
		lease_set(garbage[i]);
		CHECK(launched(where, NULL));
	}
	atomic_store(&page->generation, 0);
	CHECK(launched(where, NULL));
	memset((char *)page + 128, 0xff, CORO_LEASE_BYTES - 128);
	CHECK(launched(where, NULL));
	lease_set(CORO_UNITS_ALL);
}

static void *work_in_thread(void *arg)
{
	CUcontext context = arg;
	uint32_t k = 0, got, expected = 0;
	CUdeviceptr at;
	void *params[] = { &at, &k };
	CUfunction step;

	CU(cuCtxSetCurrent(context));
	step = check_function(ptx, "step");
	CU(cuMemAlloc_v2(&at, 4));
	CU(cuMemsetD32Async(at, 0, 1, CU_STREAM_PER_THREAD));
	for (k = 0; k < 20; k++) {
		CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, params, NULL));
		expected = expected * 3 + k;
	}
	CU(cuMemcpyDtoHAsync_v2(&got, at, 4, CU_STREAM_PER_THREAD));
	CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	CHECK_EQUAL(got, expected);
	CU(cuMemFree_v2(at));
	return NULL;
}

static void threads_with_streams_of_their_own_follow(void)
{
	pthread_t threads[THREADS];
	CUcontext context;

	start();
	CU(cuCtxGetCurrent(&context));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, work_in_thread, context));
	for (unsigned i = 0; i < 40; i++) {
		lease_set(1 + i % 3);
		usleep(2000);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(is_fenced(lease_set(1), 5000));
	lease_set(CORO_UNITS_ALL);
}

static void a_reset_context_starts_again(void)
{
	CUfunction where;

	start();
	lease_set(1);
	where = check_function(ptx, "where");
	CHECK_EQUAL(__builtin_popcount(launched(where, NULL)), page->unit_sms);
	CU(cuDevicePrimaryCtxReset_v2(0));
	check_context();
	CU(cuMemAlloc_v2(&memory, sizeof(places)));
	where = check_function(ptx, "where");
	CHECK_EQUAL(__builtin_popcount(launched(where, NULL)), page->unit_sms);
	lease_set(CORO_UNITS_ALL);
}

TESTS(TEST(launches_stay_on_the_leased_units), TEST(the_order_of_a_stream_holds_while_it_moves),
      TEST(a_fence_waits_for_what_runs), TEST(graphs_follow_the_lease),
      TEST(what_does_not_fit_runs_on_all_sms), TEST(threads_with_streams_of_their_own_follow),
      TEST(a_reset_context_starts_again), TEST(a_page_of_garbage_does_no_harm))

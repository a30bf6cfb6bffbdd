/* Programs that do what they should not, or what few programs do. */
#include <sys/wait.h>

#include "server.h"

enum { FORKS = 20, WORKERS = 8, STEPS = 60 };

static CUcontext context;
static CUfunction step;
static _Atomic bool is_over;

static void begin(void)
{
	start();
	CU(cuCtxGetCurrent(&context));
	step = check_function(ptx, "step");
	atomic_store(&is_over, false);
}

static void *launch_in_thread(void *unused)
{
	CUstream stream;
	CUevent done;
	uint32_t k = 1;
	CUdeviceptr at;
	void *params[] = { &at, &k };

	(void)unused;
	CU(cuCtxSetCurrent(context));
	CU(cuMemAlloc_v2(&at, 4));
	CU(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	while (!atomic_load(&is_over)) {
		CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
		CU(cuEventSynchronize(done)); /* of the stream before: work must not pile up */
		for (unsigned i = 0; i < 10; i++)
			CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		CU(cuEventRecord(done, stream));
		CU(cuStreamDestroy_v2(stream)); /* while its work runs */
		CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, params, NULL));
	}
	CU(cuEventDestroy_v2(done));
	CU(cuMemFree_v2(at));
	return NULL;
}

/* A child does not use the parent's context, its lease, or a lock that a thread of the parent held. */
static void child(void)
{
	struct coro_lease before = *page;
	CUdeviceptr at = memory;
	uint32_t k = 0;
	void *params[] = { &at, &k };
	CUgraph graph;

	alarm(20);
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&at, 4));
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED,
		 cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, params, NULL));
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuStreamSynchronize(NULL));
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemFree_v2(memory));
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemsetD32_v2(memory, 0, 1));
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuEventRecord(NULL, NULL));
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuStreamEndCapture(NULL, &graph));
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(page->is_fixed, before.is_fixed);
	_exit(0);
}

static void a_forked_child_is_refused_and_leaves_the_lease(void)
{
	pthread_t threads[2];
	int status;

	begin();
	for (unsigned i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, launch_in_thread, NULL));
	for (unsigned i = 0; i < FORKS; i++) {
		pid_t pid;

		lease_set(1 + i % 3);
		pid = fork();
		CHECK(pid >= 0);
		if (!pid)
			child();
		CHECK_EQUAL(waitpid(pid, &status, 0), pid);
		CHECK_EQUAL(status, 0);
	}
	atomic_store(&is_over, true);
	for (unsigned i = 0; i < 2; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(is_fenced(lease_set(1), WAIT_MS));
	lease_set(CORO_UNITS_ALL);
}

static void streams_are_destroyed_in_flight(void)
{
	pthread_t threads[WORKERS];

	begin();
	for (unsigned i = 0; i < WORKERS; i++)
		CHECK(!pthread_create(&threads[i], NULL, launch_in_thread, NULL));
	for (unsigned i = 0; i < 50; i++) {
		lease_set(i % 8 == 7 ? CORO_UNITS_ALL : 1 + i % 8);
		usleep(4000);
	}
	atomic_store(&is_over, true);
	for (unsigned i = 0; i < WORKERS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(is_fenced(lease_set(2), WAIT_MS));
	lease_set(CORO_UNITS_ALL);
}

static CUresult from_callback[3];

static void call_cuda(void *stream)
{
	uint32_t k = 7;
	void *params[] = { &memory, &k };
	CUdeviceptr at;

	from_callback[0] = cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
	from_callback[1] = cuMemAlloc_v2(&at, 4);
	from_callback[2] = cuStreamQuery(stream);
}

/* A host function has no context, and must not call CUDA. It fails as it does without the library, and changes nothing. */
static void host_functions_that_call_cuda_fail(void)
{
	uint32_t k, expected = 0, got;
	void *params[] = { &memory, &k };
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemsetD32_v2(memory, 0, 1));
	CU(cuStreamSynchronize(NULL));
	for (k = 0; k < 20; k++) {
		lease_set(1 + k % 3);
		CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		CU(cuLaunchHostFunc(stream, call_cuda, stream));
		expected = expected * 3 + k;
	}
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(from_callback[0], CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(from_callback[1], CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(from_callback[2], CUDA_ERROR_NOT_READY);
	CU(cuMemcpyDtoH_v2(&got, memory, sizeof(got)));
	CHECK_EQUAL(got, expected);
	CU(cuStreamDestroy_v2(stream));
	lease_set(CORO_UNITS_ALL);
}

/* A relaxed capture, while the lease changes and while both the thread and others use CUDA. */
static void a_relaxed_capture_disturbs_nothing(void)
{
	uint32_t k, expected = 0, got;
	void *params[] = { &memory, &k };
	pthread_t thread;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	begin();
	CHECK(!pthread_create(&thread, NULL, launch_in_thread, NULL));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemsetD32Async(memory, 0, 1, stream));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (k = 0; k < STEPS; k++) {
		CUdeviceptr at;

		lease_set(1 + k % 5);
		CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		CU(cuMemAlloc_v2(&at, 64));
		CU(cuMemsetD32_v2(at, 1, 16));
		CU(cuMemFree_v2(at));
		expected = expected * 3 + k;
	}
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
	CU(cuMemcpyDtoH_v2(&got, memory, sizeof(got)));
	CHECK_EQUAL(got, expected);
	atomic_store(&is_over, true);
	CHECK(!pthread_join(thread, NULL));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuStreamDestroy_v2(stream));
	lease_set(CORO_UNITS_ALL);
}

static void *scribble(void *unused)
{
	uint64_t *words = (uint64_t *)page, mixed = 1;

	(void)unused;
	while (!atomic_load(&is_over)) {
		for (size_t i = 0; i < CORO_LEASE_BYTES / sizeof(*words); i++) {
			mixed = mixed * 6364136223846793005ull + 1442695040888963407ull;
			__atomic_store_n(&words[i], mixed, __ATOMIC_RELAXED);
		}
		syscall(SYS_futex, &page->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		usleep(100);
	}
	return NULL;
}

static void a_program_that_writes_over_its_page_computes_the_same(void)
{
	uint32_t k, expected = 0, got;
	void *params[] = { &memory, &k };
	pthread_t thread;

	begin();
	CU(cuMemsetD32_v2(memory, 0, 1));
	CHECK(!pthread_create(&thread, NULL, scribble, NULL));
	for (k = 0; k < 10 * STEPS; k++) {
		CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, k & 1 ? NULL : CU_STREAM_PER_THREAD, params,
				  NULL));
		expected = expected * 3 + k;
	}
	CU(cuMemcpyDtoH_v2(&got, memory, sizeof(got)));
	atomic_store(&is_over, true);
	CHECK(!pthread_join(thread, NULL));
	CHECK_EQUAL(got, expected);
}

TESTS(TEST(a_forked_child_is_refused_and_leaves_the_lease), TEST(streams_are_destroyed_in_flight),
      TEST(host_functions_that_call_cuda_fail), TEST(a_relaxed_capture_disturbs_nothing),
      TEST(a_program_that_writes_over_its_page_computes_the_same))

/* The fence: a lease counts as followed when all work on other units has ended, wherever the program has put it. */
#include "server.h"

struct job {
	CUcontext context;
	CUfunction until;
	volatile uint32_t *flag;
	_Atomic bool is_placed, may_end;
};

static void wait_until(_Atomic bool *what)
{
	for (unsigned i = 0; i < WAIT_MS && !atomic_load(what); i++)
		usleep(1000);
	CHECK(atomic_load(what));
}

static void a_place_that_a_stream_has_left_counts(void)
{
	volatile uint32_t *flag;
	uint64_t generation;
	CUstream stream;

	start();
	flag = flag_new();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	lease_set(1);
	launch_on(check_function(ptx, "until"), stream, &flag);
	generation = lease_set(2);
	/* The stream's last work is on the new units, behind the kernel on the old ones. */
	CU(cuMemsetD32Async(memory, 1, 1, stream));
	CHECK(is_awaited(generation));
	*flag = 1;
	CHECK(is_fenced(generation, WAIT_MS));
	CU(cuStreamDestroy_v2(stream));
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
}

static void *end_later(void *flag)
{
	usleep(100000);
	__atomic_store_n((uint32_t *)flag, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* The driver's own functions may not wait for the streams of green contexts. */
static void a_wait_for_the_context_waits_for_work_on_units(void)
{
	CUcontext context;
	CUfunction until;
	CUstream stream;

	start();
	CU(cuCtxGetCurrent(&context));
	until = check_function(ptx, "until");
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	lease_set(1);
	for (unsigned i = 0; i < 3; i++) {
		volatile uint32_t *flag = flag_new();
		pthread_t thread;

		launch_on(until, stream, &flag);
		CHECK(!pthread_create(&thread, NULL, end_later, (void *)flag));
		CU(i == 0 ? cuCtxSynchronize() : cuCtxSynchronize_v2(i == 1 ? context : NULL));
		CHECK(__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 1 && cuStreamQuery(stream) == CUDA_SUCCESS);
		CHECK(!pthread_join(thread, NULL));
	}
	CU(cuStreamDestroy_v2(stream));
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
}

static void requests_are_reported_with_their_times(void)
{
	CUfunction until;
	CUstream stream;
	CUevent event;

	start();
	until = check_function(ptx, "until");
	CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuCtxSynchronize());
	for (unsigned i = 0; i < 3; i++) {
		volatile uint32_t *flag = flag_new();
		uint64_t before = page->requests;
		pthread_t thread;

		launch_on(until, stream, &flag);
		launch_on(until, stream, &flag); /* of the same request */
		CU(cuEventRecord(event, stream));
		CHECK(!pthread_create(&thread, NULL, end_later, (void *)flag));
		CU(i == 0   ? cuCtxSynchronize()
		   : i == 1 ? cuStreamSynchronize(stream)
			    : cuEventSynchronize(event));
		CU(cuStreamSynchronize(stream)); /* nothing is placed: no request */
		CHECK_EQUAL(page->requests, before + 1);
		CHECK(page->took_ns[before % CORO_REQUESTS] >= 90000000);
		CHECK(page->took_ns[before % CORO_REQUESTS] < 60000000000);
		CHECK(!pthread_join(thread, NULL));
	}
	CU(cuEventDestroy_v2(event));
	CU(cuStreamDestroy_v2(stream));
}

static void work_of_a_destroyed_stream_counts(void)
{
	static const uint64_t before[] = { 1, CORO_UNITS_ALL };
	CUfunction until;
	CUstream stream;

	start();
	until = check_function(ptx, "until");
	for (unsigned i = 0; i < 4; i++) {
		volatile uint32_t *flag = flag_new();
		uint64_t generation;

		lease_set(before[i % 2]);
		CU(cuStreamCreate(&stream, i < 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
		launch_on(until, stream, &flag);
		CU(cuStreamDestroy_v2(stream));
		generation = lease_set(2);
		CHECK(is_awaited(generation));
		*flag = 1;
		CHECK(is_fenced(generation, WAIT_MS));
	}
	lease_set(CORO_UNITS_ALL);
}

static void *place_in_thread(void *arg)
{
	struct job *job = arg;

	CU(cuCtxSetCurrent(job->context));
	launch_on(job->until, CU_STREAM_PER_THREAD, &job->flag);
	atomic_store(&job->is_placed, true);
	wait_until(&job->may_end);
	return NULL;
}

/* The handle of a thread's default stream means another stream in every other thread. */
static void work_of_threads_counts_also_when_they_have_ended(void)
{
	struct job job = { 0 };
	CUfunction where;
	CUstream other;

	start();
	CU(cuCtxGetCurrent(&job.context));
	job.until = check_function(ptx, "until");
	where = check_function(ptx, "where");
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < 4; i++) {
		pthread_t thread;
		uint64_t generation;

		CHECK(is_fenced(lease_set(i % 2 ? CORO_UNITS_ALL : 1), WAIT_MS));
		job.flag = flag_new();
		job.is_placed = false;
		job.may_end = i >= 2;
		CHECK(!pthread_create(&thread, NULL, place_in_thread, &job));
		wait_until(&job.is_placed);
		if (i >= 2)
			CHECK(!pthread_join(thread, NULL));
		generation = lease_set(2);
		CHECK(is_awaited(generation));
		launch_on(where, other, &memory); /* the wait holds no lock */
		CHECK(is_done(other));
		*job.flag = 1;
		CHECK(is_fenced(generation, WAIT_MS));
		job.may_end = true;
		if (i < 2)
			CHECK(!pthread_join(thread, NULL));
	}
	lease_set(CORO_UNITS_ALL);
	CU(cuStreamDestroy_v2(other));
}

static void work_from_before_a_capture_counts(void)
{
	volatile uint32_t *flag;
	uint64_t generation;
	CUgraph graph;
	CUstream stream;

	start();
	flag = flag_new();
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	launch_on(check_function(ptx, "until"), stream, &flag);
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	generation = lease_set(1);
	CHECK(is_awaited(generation));
	*flag = 1;
	CHECK(is_fenced(generation, WAIT_MS));
	CU(cuMemsetD32Async(memory, 1, 1, stream));
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphDestroy(graph));
	CU(cuStreamDestroy_v2(stream));
	lease_set(CORO_UNITS_ALL);
}

/* A question about the legacy stream would end the capture of a blocking stream. */
static void a_fence_leaves_captures_alone(void)
{
	volatile uint32_t *flag;
	uint64_t generation;
	CUgraph graph;
	CUstream stream;

	start();
	flag = flag_new();
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
	CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	launch_on(check_function(ptx, "until"), NULL, &flag);
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	*flag = 1;
	generation = lease_set(1);
	CHECK(is_awaited(generation));
	CU(cuMemsetD32Async(memory, 1, 1, stream));
	CU(cuStreamEndCapture(stream, &graph));
	CHECK(is_fenced(generation, WAIT_MS));
	CU(cuGraphDestroy(graph));
	CU(cuStreamDestroy_v2(stream));
	lease_set(CORO_UNITS_ALL);
}

static void *free_in_thread(void *arg)
{
	struct job *job = arg;
	CUdeviceptr freed;

	CU(cuCtxSetCurrent(job->context));
	CU(cuMemAlloc_v2(&freed, 4096));
	atomic_store(&job->is_placed, true);
	CU(cuMemFree_v2(freed));
	return NULL;
}

static void *copy_in_thread(void *arg)
{
	struct job *job = arg;
	uint32_t got;

	CU(cuCtxSetCurrent(job->context));
	atomic_store(&job->is_placed, true);
	CU(cuMemcpyDtoH_v2(&got, memory, sizeof(got)));
	return NULL;
}

/* A call that waits for the GPU does not keep other threads from using the stream. */
static void a_thread_that_waits_holds_no_lock(void)
{
	static void *(*const waits[])(void *) = { free_in_thread, copy_in_thread };
	struct job job = { 0 };
	CUfunction where;

	start();
	CU(cuCtxGetCurrent(&job.context));
	job.until = check_function(ptx, "until");
	where = check_function(ptx, "where");
	for (unsigned i = 0; i < 4; i++) {
		void *params[] = { &memory };
		pthread_t thread;

		lease_set(1 + i / 2);
		job.flag = flag_new();
		job.is_placed = false;
		launch_on(job.until, NULL, &job.flag);
		CHECK(!pthread_create(&thread, NULL, waits[i % 2], &job));
		wait_until(&job.is_placed);
		usleep(20000); /* it waits by now, or the test finds less */
		CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
		lease_set(4 + i);
		CU(cuLaunchKernel(where, BLOCKS, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
		*job.flag = 1;
		CHECK(!pthread_join(thread, NULL));
		CU(cuStreamSynchronize(NULL));
		CHECK(used());
	}
	lease_set(CORO_UNITS_ALL);
}

static void *reset_in_thread(void *arg)
{
	struct job *job = arg;

	atomic_store(&job->is_placed, true);
	CU(cuDevicePrimaryCtxReset_v2(0));
	return NULL;
}

/* The driver waits for the work of a context that it destroys. */
static void work_of_a_context_that_ends_counts(void)
{
	volatile uint32_t *flag;
	struct job job = { 0 };
	uint64_t generation;
	pthread_t thread;

	start();
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
	flag = flag_new();
	launch_on(check_function(ptx, "until"), NULL, &flag);
	generation = lease_set(1);
	CHECK(is_awaited(generation));
	CHECK(!pthread_create(&thread, NULL, reset_in_thread, &job));
	wait_until(&job.is_placed);
	CHECK(!is_fenced(generation, 200));
	*flag = 1;
	CHECK(!pthread_join(thread, NULL));
	CHECK(is_fenced(generation, WAIT_MS));
	CHECK_EQUAL(page->is_fixed, 0);
	check_context();
	CU(cuMemAlloc_v2(&memory, sizeof(places)));
	lease_set(CORO_UNITS_ALL);
}

/* Work on the units of the lease, then a wait, then more work. Returns the word that the stream waits for. */
static volatile uint32_t *place_wait(CUstream stream)
{
	volatile uint32_t *value = flag_new();
	CUfunction step = check_function(ptx, "step");
	uint32_t k = 5;
	void *params[] = { &memory, &k };

	CU(cuMemsetD32Async(memory, 1, 1, stream));
	CU(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)value, 1, CU_STREAM_WAIT_VALUE_GEQ));
	CU(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	return value;
}

static uint32_t stepped(CUstream stream)
{
	uint32_t got;

	CU(cuStreamSynchronize(stream));
	CU(cuMemcpyDtoH_v2(&got, memory, sizeof(got)));
	return got;
}

static void a_stream_that_waits_for_a_value_does_not_count(void)
{
	volatile uint32_t *value;
	CUstream stream;

	start();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < 3; i++) {
		CHECK(is_fenced(lease_set(i ? i : CORO_UNITS_ALL), WAIT_MS));
		value = place_wait(stream);
		CHECK(is_fenced(lease_set(4), WAIT_MS));
		CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
		CU(cuMemsetD32Async(memory + 4, 7, 1, stream)); /* on the new units, behind the wait */
		CHECK(is_fenced(lease_set(8), WAIT_MS));
		CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
		*value = 1;
		CHECK_EQUAL(stepped(stream), 8); /* 1 * 3 + 5: once, and in order */
	}
	CU(cuStreamDestroy_v2(stream));
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
}

static void work_before_a_wait_counts(void)
{
	volatile uint32_t *value, *flag;
	uint64_t generation;
	CUstream stream;

	start();
	flag = flag_new();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	lease_set(1);
	launch_on(check_function(ptx, "until"), stream, &flag);
	value = place_wait(stream);
	generation = lease_set(2);
	CHECK(is_awaited(generation));
	*flag = 1;
	CHECK(is_fenced(generation, WAIT_MS)); /* it waits for the value now */
	*value = 1;
	CHECK_EQUAL(stepped(stream), 8);
	CU(cuStreamDestroy_v2(stream));
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
}

static void work_between_two_waits_counts(void)
{
	volatile uint32_t *first, *second, *flag;
	uint64_t generation;
	CUstream stream;
	CUevent passed;

	start();
	flag = flag_new();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&passed, CU_EVENT_DISABLE_TIMING));
	lease_set(1);
	first = place_wait(stream);
	CU(cuEventRecord(passed, stream));
	launch_on(check_function(ptx, "until"), stream, &flag);
	second = place_wait(stream);
	CHECK(is_fenced(lease_set(2), WAIT_MS));
	*first = 1;
	CU(cuEventSynchronize(passed)); /* the kernel runs now, on the units that were given back */
	generation = lease_set(4);
	CHECK(is_awaited(generation));
	*flag = 1;
	CHECK(is_fenced(generation, WAIT_MS));
	*second = 1;
	CHECK_EQUAL(stepped(stream), 8);
	CU(cuEventDestroy_v2(passed));
	CU(cuStreamDestroy_v2(stream));
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
}

static void a_stream_behind_one_that_waits_does_not_count(void)
{
	volatile uint32_t *value;
	CUstream stream, other;
	CUevent event;

	start();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	lease_set(1);
	value = place_wait(stream);
	CU(cuEventRecord(event, stream));
	CU(cuStreamWaitEvent(other, event, 0));
	CU(cuMemsetD32Async(memory + 4, 3, 1, other));
	CHECK(is_fenced(lease_set(2), WAIT_MS));
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
	*value = 1;
	CHECK_EQUAL(stepped(stream), 8);
	CU(cuStreamSynchronize(other));
	CU(cuEventDestroy_v2(event));
	CU(cuStreamDestroy_v2(other));
	CU(cuStreamDestroy_v2(stream));
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
}

static void wait_in_host(void *may_end)
{
	while (!atomic_load((_Atomic bool *)may_end))
		usleep(1000);
}

static void a_host_function_does_not_count(void)
{
	_Atomic bool may_end = false;
	CUstream stream;

	start();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	lease_set(1);
	CU(cuMemsetD32Async(memory, 1, 1, stream));
	CU(cuLaunchHostFunc(stream, wait_in_host, &may_end));
	CU(cuMemsetD32Async(memory, 2, 1, stream));
	CHECK(is_fenced(lease_set(2), WAIT_MS));
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
	atomic_store(&may_end, true);
	CHECK_EQUAL(stepped(stream), 2);
	CU(cuStreamDestroy_v2(stream));
	CHECK(is_fenced(lease_set(CORO_UNITS_ALL), WAIT_MS));
}

TESTS(TEST(a_place_that_a_stream_has_left_counts), TEST(a_wait_for_the_context_waits_for_work_on_units),
      TEST(requests_are_reported_with_their_times), TEST(work_of_a_destroyed_stream_counts),
      TEST(work_of_threads_counts_also_when_they_have_ended), TEST(work_from_before_a_capture_counts),
      TEST(a_fence_leaves_captures_alone), TEST(a_thread_that_waits_holds_no_lock),
      TEST(a_stream_that_waits_for_a_value_does_not_count), TEST(work_before_a_wait_counts),
      TEST(work_between_two_waits_counts), TEST(a_stream_behind_one_that_waits_does_not_count),
      TEST(a_host_function_does_not_count), TEST(work_of_a_context_that_ends_counts))

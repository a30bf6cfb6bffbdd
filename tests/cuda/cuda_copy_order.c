/* When copies happen: in the order of streams, at once or later, between GPUs and in graphs. */
#include <pthread.h>

#include "check.h"

enum { BYTES = 3 << 20 }; /* more than the library has staging for in one piece */
/* The thread sanitizer pays for each byte. */
#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 10 };
#else
enum { ROUNDS = 50 };
#endif

static void synchronous_copies_are_done_when_they_return(void)
{
	CUdeviceptr device;
	void *pinned;

	check_context();
	CU(cuMemHostAlloc(&pinned, BYTES, 0));
	CU(cuMemAlloc_v2(&device, BYTES));
	for (unsigned i = 0; i < ROUNDS; i++) {
		const volatile uint8_t *seen = pinned;

		CU(cuMemsetD8_v2(device, (unsigned char)i, BYTES));
		CU(cuMemcpyDtoH_v2(pinned, device, BYTES));
		CHECK_EQUAL(seen[0], i);
		CHECK_EQUAL(seen[BYTES - 1], i);
	}
	CU(cuMemFreeHost(pinned));
	CU(cuMemFree_v2(device));
}

/* The source is the program's again at once, so writing to it must not change what arrives. */
static void pageable_memory_may_be_changed_after_the_call(void)
{
	uint8_t *source = malloc(BYTES), *back = malloc(BYTES);
	CUdeviceptr device;
	CUstream stream;

	check_context();
	CU(cuStreamCreate(&stream, 0));
	CU(cuMemAlloc_v2(&device, BYTES));
	for (size_t bytes = 1; bytes <= BYTES; bytes = bytes * 5 + 3) {
		memset(source, (int)bytes & 0xff, bytes);
		CU(cuMemcpyHtoDAsync_v2(device, source, bytes, stream));
		memset(source, 0, bytes);
		CU(cuMemcpyDtoHAsync_v2(back, device, bytes, stream));
		for (size_t i = 0; i < bytes; i++)
			CHECK_EQUAL(back[i], bytes & 0xff);
	}
	CU(cuMemFree_v2(device));
	CU(cuStreamDestroy_v2(stream));
	free(source);
	free(back);
}

/* A stream that stands until the gate is opened; the calls return all the same. */
static void asynchronous_copies_do_not_wait(void)
{
	CUcontext first = check_context(), second;
	uint32_t *gate, *pinned, small = 7;
	CUdeviceptr a, b, far;
	CUstream stream;

	CU(cuDevicePrimaryCtxRetain(&second, 1));
	CU(cuCtxSetCurrent(second));
	CU(cuMemAlloc_v2(&far, 4096));
	CU(cuCtxSetCurrent(first));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc((void **)&gate, 4, 0));
	CU(cuMemHostAlloc((void **)&pinned, 4096, 0));
	CU(cuMemAlloc_v2(&a, 4096));
	CU(cuMemAlloc_v2(&b, 4096));
	*gate = 0;
	memset(pinned, 0, 4096);
	CU(cuStreamWaitValue32_v2(stream, (uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
	CU(cuMemcpyHtoDAsync_v2(a, &small, 4, stream));
	CU(cuMemcpyDtoDAsync_v2(b, a, 4, stream));
	CU(cuMemcpyPeerAsync(far, second, b, first, 4, stream));
	CU(cuMemsetD8Async(a, 0, 4096, stream));
	CU(cuMemcpyPeerAsync(a, first, far, second, 4, stream));
	CU(cuMemcpyDtoHAsync_v2(pinned, a, 4, stream));
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
	CHECK_EQUAL(*(volatile uint32_t *)pinned, 0);
	*(volatile uint32_t *)gate = 1;
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(*pinned, 7);
	CU(cuMemFree_v2(a));
	CU(cuMemFree_v2(b));
	CU(cuMemFree_v2(far));
	CU(cuMemFreeHost(gate));
	CU(cuMemFreeHost(pinned));
	CU(cuStreamDestroy_v2(stream));
	CU(cuDevicePrimaryCtxRelease_v2(1));
}

/* Blocking streams and the default stream wait for each other; the copy sees what the kernel before it did. */
static void copies_on_the_default_stream_wait_for_other_streams(void)
{
	uint32_t *gate, value = 0;
	CUdeviceptr at;
	CUstream stream;

	check_context();
	CU(cuStreamCreate(&stream, 0));
	CU(cuMemHostAlloc((void **)&gate, 4, 0));
	CU(cuMemAlloc_v2(&at, 4));
	CU(cuMemsetD32_v2(at, 1, 1));
	*gate = 0;
	CU(cuStreamWaitValue32_v2(stream, (uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
	CU(cuMemsetD32Async(at, 2, 1, stream));
	*(volatile uint32_t *)gate = 1;
	CU(cuMemcpyDtoH_v2(&value, at, 4));
	CHECK_EQUAL(value, 2);
	CU(cuMemFree_v2(at));
	CU(cuMemFreeHost(gate));
	CU(cuStreamDestroy_v2(stream));
}

/* A context beside another that shares nothing: memory of the one is copied through the host. */
static void copies_go_between_two_contexts_of_a_gpu(void)
{
	CUcontext first = check_context(), second;
	CUdeviceptr from, to;
	uint32_t value = 0;

	CU(cuMemAlloc_v2(&from, 4));
	CU(cuMemsetD32_v2(from, 99, 1));
	CU(cuCtxSynchronize());
	CU(cuCtxCreate_v4(&second, NULL, 0, 0));
	CU(cuMemAlloc_v2(&to, 4));
	CU(cuMemcpy(to, from, 4));
	CU(cuMemcpyDtoH_v2(&value, to, 4));
	CHECK_EQUAL(value, 99);
	CU(cuCtxDestroy_v2(second));
	CU(cuCtxSetCurrent(first));
	CU(cuMemFree_v2(from));
}

static void copies_go_between_two_gpus(void)
{
	CUcontext first = check_context(), second;
	uint8_t *here = malloc(BYTES), *there = malloc(BYTES);
	CUdeviceptr from, to;
	int count;

	CU(cuDeviceGetCount(&count));
	CHECK(count > 1);
	for (size_t i = 0; i < BYTES; i++)
		here[i] = (uint8_t)(i * 13);
	CU(cuMemAlloc_v2(&from, BYTES));
	CU(cuMemcpyHtoD_v2(from, here, BYTES));
	CU(cuDevicePrimaryCtxRetain(&second, 1));
	CU(cuCtxSetCurrent(second));
	CU(cuMemAlloc_v2(&to, BYTES));
	CU(cuMemsetD8_v2(to, 0, BYTES));
	CU(cuCtxSynchronize());
	CU(cuMemcpyPeer(to, second, from, first, BYTES));
	CU(cuMemcpyDtoH_v2(there, to, BYTES));
	CHECK(!memcmp(here, there, BYTES));
	/* By address alone, from the other side, in the order of a stream. */
	CU(cuCtxSetCurrent(first));
	CU(cuMemsetD8Async(from, 3, BYTES, NULL));
	CU(cuMemcpyAsync(to, from, BYTES, NULL));
	CU(cuMemsetD8Async(from, 4, BYTES, NULL));
	CU(cuMemcpyDtoH_v2(there, to, BYTES));
	for (size_t i = 0; i < BYTES; i++)
		CHECK_EQUAL(there[i], 3);
	CU(cuMemFree_v2(from));
	CU(cuMemFree_v2(to));
	CU(cuDevicePrimaryCtxRelease_v2(1));
	free(here);
	free(there);
}

static void *copy_much(void *argument)
{
	CUcontext context = argument;
	uint8_t *here = malloc(BYTES), *back = malloc(BYTES);
	CUstream stream;
	CUdeviceptr at;

	CU(cuCtxSetCurrent(context));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&at, BYTES));
	for (unsigned i = 0; i < 10; i++) {
		memset(here, (int)i + 1, BYTES);
		CU(cuMemcpyHtoDAsync_v2(at, here, BYTES, stream));
		CU(cuMemcpyDtoHAsync_v2(back, at, BYTES, stream));
		CHECK(!memcmp(here, back, BYTES));
	}
	CU(cuMemFree_v2(at));
	CU(cuStreamDestroy_v2(stream));
	free(here);
	free(back);
	return NULL;
}

static void many_threads_copy_at_once(void)
{
	CUcontext context = check_context();
	pthread_t threads[6];

	for (int i = 0; i < 6; i++)
		CHECK(!pthread_create(&threads[i], NULL, copy_much, context));
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
}

/* In a graph the copy happens when the graph runs, also from and to pageable memory. */
static void captured_copies_happen_at_launch(void)
{
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;
	CUdeviceptr at;
	uint32_t from = 1, to = 0;

	check_context();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&at, 4));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemcpyHtoDAsync_v2(at, &from, 4, stream));
	CU(cuMemcpyDtoHAsync_v2(&to, at, 4, stream));
	CU(cuStreamEndCapture(stream, &graph));
	CHECK_EQUAL(to, 0);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (from = 5; from < 8; from++) {
		CU(cuGraphLaunch(exec, stream));
		CU(cuStreamSynchronize(stream));
		CHECK_EQUAL(to, from);
	}
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree_v2(at));
	CU(cuStreamDestroy_v2(stream));
}

static void captures_forbid_synchronous_copies(void)
{
	CUgraph graph;
	CUstream stream;
	CUdeviceptr at;
	uint32_t here = 1;

	check_context();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&at, 4));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemcpyHtoD_v2(at, &here, 4));
	CU_FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
	CU(cuMemFree_v2(at));
	CU(cuStreamDestroy_v2(stream));
}

TESTS(TEST(synchronous_copies_are_done_when_they_return), TEST(pageable_memory_may_be_changed_after_the_call),
      TEST(asynchronous_copies_do_not_wait), TEST(copies_on_the_default_stream_wait_for_other_streams),
      TEST(copies_go_between_two_contexts_of_a_gpu), TEST(copies_go_between_two_gpus),
      TEST(many_threads_copy_at_once), TEST(captured_copies_happen_at_launch),
      TEST(captures_forbid_synchronous_copies))

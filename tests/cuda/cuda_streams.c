/* Streams: order within one, among them, with the host; default streams; host functions; values in memory. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const char ptx[] = PTX_HEAD ".visible .entry append(.param .u64 plist, .param .u32 pvalue)\n"
				   "{\n"
				   "	.reg .b64 %rd<4>; .reg .b32 %r<4>;\n"
				   "	ld.param.u64 %rd1, [plist];\n"
				   "	ld.param.u32 %r1, [pvalue];\n"
				   "	atom.global.add.u32 %r2, [%rd1], 1;\n"
				   "	mul.wide.u32 %rd2, %r2, 4;\n"
				   "	add.u64 %rd3, %rd1, %rd2;\n"
				   "	st.global.u32 [%rd3+4], %r1;\n"
				   "	ret;\n"
				   "}\n";

enum { LIST_MAX = 8192 };

/* What has happened, in order: a count and that many numbers, which the GPU appends to. */
static uint32_t *list;
static volatile uint32_t *gate;
static CUfunction append;

static void begin(void)
{
	void *at;

	check_context();
	if (!append)
		append = check_function(ptx, "append");
	CU(cuMemHostAlloc(&at, (LIST_MAX + 1) * sizeof(*list), 0));
	list = at;
	CU(cuMemHostAlloc(&at, 4096, 0));
	gate = at;
	memset(list, 0, (LIST_MAX + 1) * sizeof(*list));
	*gate = 0;
}

static void end(void)
{
	CU(cuCtxSynchronize());
	CU(cuMemFreeHost(list));
	CU(cuMemFreeHost((void *)(uintptr_t)gate));
}

static void note(CUstream stream, uint32_t value)
{
	void *params[] = { &list, &value };

	CU(cuLaunchKernel(append, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* The stream stands until the gate has this value. */
static void hold(CUstream stream, uint32_t value)
{
	CU(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)gate, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static void open_gate(uint32_t value)
{
	__atomic_store_n(gate, value, __ATOMIC_RELEASE);
}

static void work_is_done_in_order(void)
{
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t i = 0; i < 100; i++)
		note(stream, i);
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(list[0], 100);
	for (uint32_t i = 0; i < 100; i++)
		CHECK_EQUAL(list[i + 1], i);
	CU(cuStreamDestroy_v2(stream));
	end();
}

static void more_than_a_ring_holds_can_be_submitted(void)
{
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t i = 0; i < 5000; i++)
		note(stream, i);
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(list[0], 5000);
	for (uint32_t i = 0; i < 5000; i++)
		CHECK_EQUAL(list[i + 1], i);
	CU(cuStreamDestroy_v2(stream));
	end();
}

static void the_null_stream_waits_for_blocking_streams_and_they_for_it(void)
{
	CUstream one, other;

	begin();
	CU(cuStreamCreate(&one, CU_STREAM_DEFAULT));
	CU(cuStreamCreate(&other, CU_STREAM_DEFAULT));
	hold(one, 1);
	note(one, 1);
	note(NULL, 2);
	note(other, 3);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
	usleep(2000);
	CHECK_EQUAL(__atomic_load_n(&list[0], __ATOMIC_ACQUIRE), 0);
	open_gate(1);
	CU(cuStreamSynchronize(other));
	CHECK_EQUAL(list[0], 3);
	for (uint32_t i = 1; i <= 3; i++)
		CHECK_EQUAL(list[i], i);
	CU(cuStreamDestroy_v2(one));
	CU(cuStreamDestroy_v2(other));
	end();
}

static void a_blocking_stream_is_not_ready_while_the_null_stream_works(void)
{
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	CU(cuStreamSynchronize(stream));
	hold(CU_STREAM_LEGACY, 1);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
	open_gate(1);
	CU(cuStreamSynchronize(stream));
	CU(cuStreamQuery(NULL));
	CU(cuStreamDestroy_v2(stream));
	end();
}

static void non_blocking_streams_do_not_wait_for_the_null_stream(void)
{
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	hold(NULL, 1);
	note(NULL, 1);
	note(stream, 2);
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(list[0], 1);
	CHECK_EQUAL(list[1], 2);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	open_gate(1);
	CU(cuStreamSynchronize(NULL));
	CHECK_EQUAL(list[2], 1);
	CU(cuStreamDestroy_v2(stream));
	end();
}

static void a_threads_own_default_stream_waits_for_the_null_stream(void)
{
	begin();
	hold(NULL, 1);
	note(NULL, 1);
	note(CU_STREAM_PER_THREAD, 2);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
	open_gate(1);
	CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	CHECK_EQUAL(list[1], 1);
	CHECK_EQUAL(list[2], 2);
	end();
}

static void *thread_notes(void *context)
{
	unsigned long long *id = malloc(sizeof(*id));

	CU(cuCtxSetCurrent(context));
	note(CU_STREAM_PER_THREAD, 7);
	CU(cuStreamGetId(CU_STREAM_PER_THREAD, id));
	CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	return id;
}

static void every_thread_has_a_default_stream_of_its_own(void)
{
	unsigned long long mine, *other;
	CUcontext context;
	pthread_t thread;
	void *result;

	begin();
	CU(cuCtxGetCurrent(&context));
	CU(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
	CHECK(!pthread_create(&thread, NULL, thread_notes, context));
	CHECK(!pthread_join(thread, &result));
	other = result;
	CHECK(mine != *other);
	CHECK_EQUAL(list[1], 7);
	free(other);
	end();
}

static void a_destroyed_streams_work_goes_on_and_the_null_stream_waits_for_it(void)
{
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	hold(stream, 1);
	note(stream, 1);
	CU(cuStreamDestroy_v2(stream));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
	note(NULL, 2);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	open_gate(1);
	CU(cuStreamSynchronize(NULL));
	CHECK_EQUAL(list[1], 1);
	CHECK_EQUAL(list[2], 2);
	end();
}

/* ---- calls on the host */

static void on_host(void *value)
{
	list[++list[0]] = (uint32_t)(uintptr_t)value;
}

static void a_stream_goes_on_when_a_host_function_has_returned(void)
{
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t i = 0; i < 40; i += 2) {
		note(stream, i);
		CU(cuLaunchHostFunc(stream, on_host, (void *)(uintptr_t)(i + 1)));
	}
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(list[0], 40);
	for (uint32_t i = 0; i < 40; i++)
		CHECK_EQUAL(list[i + 1], i);
	CU(cuStreamDestroy_v2(stream));
	end();
}

static void open_on_host(void *value)
{
	open_gate((uint32_t)(uintptr_t)value);
}

static void a_later_host_function_may_free_an_earlier_one(void)
{
	CUstream one, other;

	begin();
	CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	hold(one, 1);
	CU(cuLaunchHostFunc(one, on_host, (void *)(uintptr_t)5));
	CU(cuLaunchHostFunc(other, open_on_host, (void *)(uintptr_t)1));
	CU(cuStreamSynchronize(one));
	CHECK_EQUAL(list[1], 5);
	CU(cuStreamDestroy_v2(one));
	CU(cuStreamDestroy_v2(other));
	end();
}

static CUresult told = CUDA_ERROR_UNKNOWN;
static CUstream told_stream;

static void call_back(CUstream stream, CUresult status, void *argument)
{
	told = status;
	told_stream = stream;
	*(int *)argument = 1;
}

static void callbacks_are_told_stream_and_status(void)
{
	CUstream stream;
	int was_called = 0;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(stream, call_back, &was_called, 1));
	CU(cuStreamAddCallback(stream, call_back, &was_called, 0));
	CU(cuStreamSynchronize(stream));
	CHECK(was_called);
	CHECK_EQUAL(told, CUDA_SUCCESS);
	CHECK(told_stream == stream);
	CU(cuStreamDestroy_v2(stream));
	end();
}

/* ---- values in memory */

static void streams_wait_for_and_write_values(void)
{
	static const struct {
		unsigned flags;
		uint32_t value, before, after;
	} waits[] = {
		{ CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6 },
		{ CU_STREAM_WAIT_VALUE_GEQ, 1, 0xfffffff0u, 2 }, /* around the end */
		{ CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5 },
		{ CU_STREAM_WAIT_VALUE_AND, 6, 1, 2 },
		{ CU_STREAM_WAIT_VALUE_NOR, 0xfffffff0u, 0xf, 0xe },
	};
	CUdeviceptr address;
	CUstream stream;

	begin();
	address = (CUdeviceptr)(uintptr_t)gate;
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		*gate = waits[i].before;
		CU(cuStreamWaitValue32_v2(stream, address, waits[i].value, waits[i].flags));
		CU(cuStreamWriteValue32_v2(stream, address + 64, i + 1, 0));
		usleep(1000);
		CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
		CHECK_EQUAL(gate[16], i);
		open_gate(waits[i].after);
		CU(cuStreamSynchronize(stream));
		CHECK_EQUAL(gate[16], i + 1);
	}
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(stream, address + 2, 0, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64_v2(stream, address + 4, 0, 0));
	CU(cuStreamDestroy_v2(stream));
	end();
}

static void values_come_in_batches_and_in_64_bits(void)
{
	CUstreamBatchMemOpParams ops[3] = { 0 };
	CUdeviceptr address;

	begin();
	address = (CUdeviceptr)(uintptr_t)gate;
	ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	ops[0].writeValue.address = address;
	ops[0].writeValue.value64 = 0x123456789abcull;
	ops[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
	ops[2].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	ops[2].waitValue.address = address;
	ops[2].waitValue.value64 = 0x123456789abcull;
	ops[2].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
	CU(cuStreamBatchMemOp_v2(NULL, 3, ops, 0));
	CU(cuStreamSynchronize(NULL));
	CHECK_EQUAL(*(volatile uint64_t *)(uintptr_t)gate, 0x123456789abcll);
	end();
}

/* ---- many at once */

static void *thread_appends(void *context)
{
	CUstream stream;

	CU(cuCtxSetCurrent(context));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t i = 0; i < 200; i++) {
		note(stream, i);
		if (i % 50 == 0)
			CU(cuStreamSynchronize(stream));
	}
	CU(cuStreamSynchronize(stream));
	CU(cuStreamDestroy_v2(stream));
	return NULL;
}

static void threads_do_not_disturb_each_other(void)
{
	enum { THREADS = 6 };
	pthread_t threads[THREADS];
	CUcontext context;

	begin();
	CU(cuCtxGetCurrent(&context));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, thread_appends, context));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK_EQUAL(list[0], THREADS * 200);
	end();
}

static void *thread_uses_own(void *context)
{
	CU(cuCtxSetCurrent(context));
	note(CU_STREAM_PER_THREAD, 1);
	return NULL; /* with its work under way */
}

static void the_streams_of_threads_that_end_are_used_again(void)
{
	CUcontext context;
	pthread_t thread;

	begin();
	CU(cuCtxGetCurrent(&context));
	for (int i = 0; i < 300; i++) {
		CHECK(!pthread_create(&thread, NULL, thread_uses_own, context));
		CHECK(!pthread_join(thread, NULL));
	}
	CU(cuCtxSynchronize());
	CHECK_EQUAL(list[0], 300);
	end();
}

static void do_nothing(void *unused)
{
	(void)unused;
}

static void *thread_never_ends(void *context)
{
	CUstream stream = CU_STREAM_PER_THREAD;

	CU(cuCtxSetCurrent(context));
	while (!cuMemsetD32Async((CUdeviceptr)(uintptr_t)list, 0, LIST_MAX, stream) &&
	       !cuLaunchHostFunc(stream, do_nothing, NULL) && !cuStreamSynchronize(stream))
		;
	pause();
	return NULL;
}

static void a_process_may_exit_while_threads_work(void)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		CUcontext context;
		pthread_t thread;

		begin();
		CU(cuCtxGetCurrent(&context));
		for (int i = 0; i < 3; i++)
			CHECK(!pthread_create(&thread, NULL, thread_never_ends, context));
		usleep(20000);
		exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQUAL(status, 0);
}

static void streams_say_what_they_are(void)
{
	CUstreamAttrValue value;
	CUstream stream;
	CUcontext context, current;
	unsigned flags;
	int priority, least, greatest;
	CUdevice device;

	begin();
	CU(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(greatest < least);
	CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1));
	CU(cuStreamGetFlags(stream, &flags));
	CHECK_EQUAL(flags, CU_STREAM_NON_BLOCKING);
	CU(cuStreamGetPriority(stream, &priority));
	CHECK_EQUAL(priority, -1);
	CU(cuStreamGetCtx(stream, &context));
	CU(cuCtxGetCurrent(&current));
	CHECK(context == current);
	CU(cuStreamGetDevice(stream, &device));
	CHECK_EQUAL(device, 0);
	value.syncPolicy = CU_SYNC_POLICY_YIELD;
	CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
	memset(&value, 0, sizeof(value));
	CU(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
	CHECK_EQUAL(value.syncPolicy, CU_SYNC_POLICY_YIELD);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 2));
	CU(cuStreamDestroy_v2(stream));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize((CUstream)&device));
	end();
}

/* The first one forks, which only a process that has not initialised yet may do. */
TESTS(TEST(a_process_may_exit_while_threads_work), TEST(work_is_done_in_order),
      TEST(more_than_a_ring_holds_can_be_submitted),
      TEST(the_null_stream_waits_for_blocking_streams_and_they_for_it),
      TEST(a_blocking_stream_is_not_ready_while_the_null_stream_works),
      TEST(non_blocking_streams_do_not_wait_for_the_null_stream),
      TEST(a_threads_own_default_stream_waits_for_the_null_stream),
      TEST(every_thread_has_a_default_stream_of_its_own),
      TEST(a_destroyed_streams_work_goes_on_and_the_null_stream_waits_for_it),
      TEST(a_stream_goes_on_when_a_host_function_has_returned),
      TEST(a_later_host_function_may_free_an_earlier_one), TEST(callbacks_are_told_stream_and_status),
      TEST(streams_wait_for_and_write_values), TEST(values_come_in_batches_and_in_64_bits),
      TEST(threads_do_not_disturb_each_other), TEST(the_streams_of_threads_that_end_are_used_again),
      TEST(streams_say_what_they_are))

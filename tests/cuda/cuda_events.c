/* Events: order between streams, contexts and GPUs, and times. */
#include <unistd.h>

#include "check.h"

/* About three instructions a round: at the test GPU's 20 million a second, 0.15 us. */
static const char ptx[] = PTX_HEAD ".visible .entry count(.param .u32 prounds)\n"
				   "{\n"
				   "	.reg .b32 %r<3>; .reg .pred %p<2>;\n"
				   "	ld.param.u32 %r1, [prounds];\n"
				   "	mov.u32 %r2, 0;\n"
				   "AGAIN:\n"
				   "	add.u32 %r2, %r2, 1;\n"
				   "	setp.lt.u32 %p1, %r2, %r1;\n"
				   "	@%p1 bra AGAIN;\n"
				   "	ret;\n"
				   "}\n";

static volatile uint32_t *gate;

static void begin(void)
{
	void *at;

	check_context();
	if (!gate) {
		CU(cuMemHostAlloc(&at, 4096, CU_MEMHOSTALLOC_PORTABLE));
		gate = at;
	}
	memset((void *)(uintptr_t)gate, 0, 4096);
}

static CUdeviceptr word(unsigned index)
{
	return (CUdeviceptr)(uintptr_t)(gate + index);
}

static void hold(CUstream stream)
{
	CU(cuStreamWaitValue32_v2(stream, word(0), 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void let_go(void)
{
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

static void an_event_never_recorded_is_done(void)
{
	CUevent event;

	begin();
	CU(cuEventCreate(&event, 0));
	CU(cuEventQuery(event));
	CU(cuEventSynchronize(event));
	CU(cuStreamWaitEvent(NULL, event, 0));
	CU(cuEventDestroy_v2(event));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, 0x80));
}

static void an_event_is_done_when_its_stream_has_got_there(void)
{
	static const unsigned flags[] = { CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING, CU_EVENT_BLOCKING_SYNC };

	for (unsigned i = 0; i < 3; i++) {
		CUstream stream;
		CUevent event;

		begin();
		CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CU(cuEventCreate(&event, flags[i]));
		hold(stream);
		CU(cuEventRecord(event, stream));
		CU_FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
		let_go();
		CU(cuEventSynchronize(event));
		CU(cuEventQuery(event));
		CU(cuEventDestroy_v2(event));
		CU(cuStreamDestroy_v2(stream));
	}
}

static void a_stream_waits_for_another_streams_event(void)
{
	CUstream one, other;
	CUevent event;

	begin();
	CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	hold(one);
	CU(cuStreamWriteValue32_v2(one, word(1), 7, 0));
	CU(cuEventRecord(event, one));
	CU(cuStreamWaitEvent(other, event, 0));
	CU(cuMemcpyDtoDAsync_v2(word(2), word(1), 4, other));
	CU(cuEventDestroy_v2(event)); /* the wait stands */
	usleep(2000);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
	let_go();
	CU(cuStreamSynchronize(other));
	CHECK_EQUAL(gate[2], 7);
	CU(cuStreamDestroy_v2(one));
	CU(cuStreamDestroy_v2(other));
}

static void a_stream_waits_for_an_event_of_another_gpu(void)
{
	CUcontext second;
	CUstream one, other;
	CUevent event;
	int count;

	begin();
	CU(cuDeviceGetCount(&count));
	if (count < 2) {
		check_skip("this program sees one GPU");
		return;
	}
	CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	hold(one);
	CU(cuStreamWriteValue32_v2(one, word(1), 9, 0));
	CU(cuEventRecord(event, one));
	CU(cuDevicePrimaryCtxRetain(&second, 1));
	CU(cuCtxPushCurrent_v2(second));
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, other));
	CU(cuStreamWaitEvent(other, event, 0));
	CU(cuMemcpyDtoDAsync_v2(word(2), word(1), 4, other));
	usleep(2000);
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
	let_go();
	CU(cuStreamSynchronize(other));
	CHECK_EQUAL(gate[2], 9);
	CU(cuStreamDestroy_v2(other));
	CU(cuCtxPopCurrent_v2(NULL));
	CU(cuDevicePrimaryCtxRelease_v2(1));
	CU(cuEventDestroy_v2(event));
	CU(cuStreamDestroy_v2(one));
}

static void the_time_between_events_is_the_gpus(void)
{
	CUfunction count;
	CUstream stream;
	CUevent start, end, timeless;
	uint32_t rounds = 20000;
	void *params[] = { &rounds };
	float ms;

	begin();
	count = check_function(ptx, "count");
	CU(cuEventCreate(&start, 0));
	CU(cuEventCreate(&end, 0));
	CU(cuEventCreate(&timeless, CU_EVENT_DISABLE_TIMING));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&ms, start, end));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	hold(stream); /* so that no time passes in which we have not submitted the next yet */
	CU(cuEventRecord(start, stream));
	CU(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	CU(cuEventRecord(end, stream));
	CU(cuEventRecord(timeless, stream));
	let_go();
	CU(cuEventSynchronize(end));
	CU(cuEventElapsedTime_v2(&ms, start, end));
	CHECK(ms >= 2.0f && ms < 5.0f); /* of the GPU's time, however busy the host is */
	CU(cuEventElapsedTime_v2(&ms, end, start));
	CHECK(ms <= -2.0f);
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&ms, start, timeless));
	CU(cuEventDestroy_v2(start));
	CU(cuEventDestroy_v2(end));
	CU(cuEventDestroy_v2(timeless));
	CU(cuStreamDestroy_v2(stream));
}

static void there_is_no_time_before_both_are_done(void)
{
	CUstream stream;
	CUevent start, end;
	float ms;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&start, 0));
	CU(cuEventCreate(&end, 0));
	CU(cuEventRecord(start, stream));
	hold(stream);
	CU(cuEventRecord(end, stream));
	CU_FAILS(CUDA_ERROR_NOT_READY, cuEventElapsedTime_v2(&ms, start, end));
	let_go();
	CU(cuStreamSynchronize(stream));
	CU(cuEventElapsedTime_v2(&ms, start, end));
	CU(cuEventDestroy_v2(start));
	CU(cuEventDestroy_v2(end));
	CU(cuStreamDestroy_v2(stream));
}

static void events_can_be_destroyed_while_they_are_to_come(void)
{
	CUstream stream;

	begin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	hold(stream);
	for (int i = 0; i < 600; i++) { /* more than a page of times */
		CUevent event;

		CU(cuEventCreate(&event, 0));
		CU(cuEventRecord(event, stream));
		CU(cuEventDestroy_v2(event));
	}
	let_go();
	CU(cuStreamSynchronize(stream));
	CU(cuStreamDestroy_v2(stream));
}

static void a_contexts_event_comes_after_all_its_streams(void)
{
	CUcontext context;
	CUstream one, other;
	CUevent event;

	begin();
	CU(cuCtxGetCurrent(&context));
	CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&event, 0));
	hold(one);
	CU(cuCtxRecordEvent(context, event));
	CU_FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
	CU(cuCtxWaitEvent(context, event));
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
	let_go();
	CU(cuEventSynchronize(event));
	CU(cuStreamSynchronize(other));
	CU(cuEventDestroy_v2(event));
	CU(cuStreamDestroy_v2(one));
	CU(cuStreamDestroy_v2(other));
}

TESTS(TEST(an_event_never_recorded_is_done), TEST(an_event_is_done_when_its_stream_has_got_there),
      TEST(a_stream_waits_for_another_streams_event), TEST(a_stream_waits_for_an_event_of_another_gpu),
      TEST(the_time_between_events_is_the_gpus), TEST(there_is_no_time_before_both_are_done),
      TEST(events_can_be_destroyed_while_they_are_to_come),
      TEST(a_contexts_event_comes_after_all_its_streams))

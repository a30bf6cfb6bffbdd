/* Initialisation, devices, and which context is current in which thread. */
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void nothing_works_before_cuinit(void)
{
	CUcontext context;
	int version, count;

	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
	CU_FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
	CU(cuDriverGetVersion(&version));
	CHECK_EQUAL(version, 13000);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
}

static int in_child(const char *visible)
{
	int status, count;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		setenv("CUDA_VISIBLE_DEVICES", visible, 1);
		if (cuInit(0) == CUDA_ERROR_NO_DEVICE)
			_exit(99);
		_exit(cuDeviceGetCount(&count) ? 98 : count);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void visible_devices_are_those_named(void) /* before this process has initialised */
{
	CHECK_EQUAL(in_child("0"), 1);
	CHECK_EQUAL(in_child("1,0"), 2);
	CHECK_EQUAL(in_child(""), 99);
	CHECK_EQUAL(in_child("1,7,0"), 1);
	CHECK_EQUAL(in_child("-1"), 99);
	CHECK_EQUAL(in_child("0,0"), 99);
	CHECK_EQUAL(in_child("GPU-62656C66"), 1); /* "belf": the first that begins so */
}

static void the_device_says_what_it_is(void)
{
	char name[64], bus[16];
	CUuuid one, other;
	CUdevice device;
	size_t bytes;
	int count, value;

	errno = 4711;
	CU(cuInit(0));
	CU(cuDeviceGetCount(&count));
	CHECK_EQUAL(errno, 4711);
	CHECK_EQUAL(count, 2);
	CU(cuDeviceGet(&device, 1));
	CU_FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
	CU_FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
	CU(cuDeviceGetName(name, sizeof(name), 0));
	CHECK(!strcmp(name, "Belfry Software GPU"));
	CU(cuDeviceTotalMem_v2(&bytes, 0));
	CHECK_EQUAL(bytes, 1ll << 30);
	CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	CHECK_EQUAL(value, 9);
	CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CHECK_EQUAL(value, 4);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0));
	CU(cuDeviceGetUuid_v2(&one, 0));
	CU(cuDeviceGetUuid_v2(&other, 1));
	CHECK(memcmp(&one, &other, sizeof(one)));
	CU(cuDeviceGetPCIBusId(bus, sizeof(bus), 1));
	CU(cuDeviceGetByPCIBusId(&device, bus));
	CHECK_EQUAL(device, 1);
}

static void contexts_form_a_stack(void)
{
	CUcontext one, other, found;
	CUdevice device;

	CU(cuInit(0));
	CU(cuCtxGetCurrent(&found));
	CHECK(!found);
	CU_FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
	CU_FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&found));
	CU(cuCtxCreate_v2(&one, 0, 0));
	CU(cuCtxCreate_v2(&other, 0, 1));
	CU(cuCtxGetDevice(&device));
	CHECK_EQUAL(device, 1);
	CU(cuCtxPopCurrent_v2(&found));
	CHECK(found == other);
	CU(cuCtxGetDevice(&device));
	CHECK_EQUAL(device, 0);
	CU(cuCtxPushCurrent_v2(other));
	CU(cuCtxDestroy_v2(other)); /* current: popped */
	CU(cuCtxGetCurrent(&found));
	CHECK(found == one);
	CU_FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(other));
	CU(cuCtxSetCurrent(NULL));
	CU(cuCtxGetCurrent(&found));
	CHECK(!found);
	CU(cuCtxDestroy_v2(one));
	CU_FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(one));
}

static void *destroy_elsewhere(void *context)
{
	CU(cuCtxDestroy_v2(context));
	return NULL;
}

static void a_context_destroyed_elsewhere_is_known_to_be(void)
{
	CUcontext context;
	pthread_t thread;
	CUdeviceptr at;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&context, 0, 0));
	CHECK(!pthread_create(&thread, NULL, destroy_elsewhere, context));
	pthread_join(thread, NULL);
	CU_FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&at, 16));
	CU_FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
	CU(cuCtxPopCurrent_v2(NULL));
}

static void the_primary_context_lives_while_it_is_retained(void)
{
	CUcontext one, two;
	unsigned flags;
	int is_active;

	CU(cuInit(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
	CHECK(!is_active);
	CU_FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
	CU(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
	CU(cuDevicePrimaryCtxRetain(&one, 0));
	CU(cuDevicePrimaryCtxRetain(&two, 0));
	CHECK(one == two);
	CU(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
	CHECK(is_active && flags & CU_CTX_SCHED_BLOCKING_SYNC);
	CU_FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(one));
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
	CHECK(is_active);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
	CHECK(!is_active);
	CU(cuDevicePrimaryCtxSetFlags_v2(0, 0));
}

static void a_reset_takes_everything_of_the_context(void)
{
	size_t before, after, total;
	CUcontext context;
	CUdeviceptr at;
	CUstream stream;

	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&context, 0));
	CU(cuCtxSetCurrent(context));
	CU(cuMemGetInfo_v2(&before, &total));
	CU(cuMemAlloc_v2(&at, 64 << 20));
	CU(cuStreamCreate(&stream, 0));
	CU(cuDevicePrimaryCtxReset_v2(0));
	CU_FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamCreate(&stream, 0));
	CU(cuDevicePrimaryCtxRetain(&context, 0));
	CU(cuCtxSetCurrent(context));
	CU(cuMemGetInfo_v2(&after, &total));
	CHECK_EQUAL(after, before);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuCtxSetCurrent(NULL));
}

static volatile uint32_t *gate;

static void *wait_for_gate(void *context)
{
	CUresult result;

	CU(cuCtxSetCurrent(context));
	CU(cuStreamWaitValue32_v2(NULL, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
	__atomic_store_n(gate + 1, 1, __ATOMIC_RELEASE);
	result = cuCtxSynchronize();
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_CONTEXT_IS_DESTROYED);
	return NULL;
}

static void a_context_can_be_destroyed_while_another_thread_waits_in_it(void)
{
	CUcontext context;
	pthread_t thread;
	void *at;

	check_context();
	CU(cuMemHostAlloc(&at, 4096, CU_MEMHOSTALLOC_PORTABLE));
	gate = at;
	for (int i = 0; i < 5; i++) {
		gate[0] = gate[1] = 0;
		CU(cuCtxCreate_v2(&context, 0, 0));
		CHECK(!pthread_create(&thread, NULL, wait_for_gate, context));
		while (!__atomic_load_n(gate + 1, __ATOMIC_ACQUIRE))
			usleep(100);
		usleep(1000);
		__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
		CU(cuCtxDestroy_v2(context));
		pthread_join(thread, NULL);
	}
	CU(cuMemFreeHost(at));
	CU(cuCtxSetCurrent(NULL));
	CU(cuDevicePrimaryCtxRelease_v2(0));
}

static void limits_are_told_back(void)
{
	CUcontext context;
	size_t value;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&context, 0, 0));
	CU(cuCtxGetLimit(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
	CHECK_EQUAL(value, 1 << 20);
	CU(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 4 << 20));
	CU(cuCtxGetLimit(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
	CHECK_EQUAL(value, 4 << 20);
	CU_FAILS(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&value, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(&value, CU_LIMIT_MAX));
	CU(cuCtxDestroy_v2(context));
}

static void a_forked_child_is_not_initialised(void)
{
	int status, count;
	pid_t pid;

	check_context();
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
				      cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
			      ? 0
			      : 1);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQUAL(status, 0);
	CU(cuCtxSynchronize());
	CU(cuCtxSetCurrent(NULL));
	CU(cuDevicePrimaryCtxRelease_v2(0));
}

static void many_contexts_come_and_go(void)
{
	CUcontext contexts[8];

	CU(cuInit(0));
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 8; i++) {
			unsigned long long id;

			CU(cuCtxCreate_v2(&contexts[i], 0, i % 2));
			CU(cuCtxGetId(contexts[i], &id));
			CU(cuCtxSynchronize());
		}
		for (int i = 0; i < 8; i++)
			CU(cuCtxDestroy_v2(contexts[i]));
		CU(cuCtxSetCurrent(NULL));
	}
}

TESTS(TEST(nothing_works_before_cuinit), TEST(visible_devices_are_those_named),
      TEST(the_device_says_what_it_is), TEST(contexts_form_a_stack),
      TEST(a_context_destroyed_elsewhere_is_known_to_be),
      TEST(the_primary_context_lives_while_it_is_retained), TEST(a_reset_takes_everything_of_the_context),
      TEST(a_context_can_be_destroyed_while_another_thread_waits_in_it), TEST(limits_are_told_back),
      TEST(a_forked_child_is_not_initialised), TEST(many_contexts_come_and_go))

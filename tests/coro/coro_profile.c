/* What a program sees is the whole device, whatever SMs it runs on; and what needs the whole device gets it. */
#include <dlfcn.h>

#include "server.h"

enum { PER_SM = 2 };

/* meet(count, blocks): each block adds 1, and waits until all blocks have. */
static const char meet_ptx[] = PTX_HEAD
	".visible .entry meet(.param .u64 count, .param .u32 blocks)\n"
	"{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<5>; .reg .pred %p<3>;\n"
	"	ld.param.u64 %rd1, [count]; ld.param.u32 %r1, [blocks];\n"
	"	mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0; @%p1 bra END;\n"
	"	atom.global.add.u32 %r3, [%rd1], 1;\n"
	"AGAIN:	ld.volatile.global.u32 %r4, [%rd1]; setp.lt.u32 %p2, %r4, %r1; @%p2 bra AGAIN;\n"
	"END:	ret;\n"
	"}\n";

struct profile {
	int sms, blocks, grid, block;
	unsigned device_sms, context_sms;
	CUcontext of_stream;
	CUgreenCtx green;
};

static struct profile profile_now(CUfunction function, CUstream stream)
{
	struct profile p = { 0 };
	CUdevResource resource;
	CUcontext context;

	CU(cuDeviceGetAttribute(&p.sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&p.blocks, function, 128, 0));
	CU(cuOccupancyMaxPotentialBlockSize(&p.grid, &p.block, function, NULL, 0, 0));
	CU(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	p.device_sms = resource.sm.smCount;
	CU(cuCtxGetCurrent(&context));
	CU(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
	p.context_sms = resource.sm.smCount;
	CU(cuStreamGetCtx(stream, &p.of_stream));
	CU(cuStreamGetGreenCtx(stream, &p.green));
	return p;
}

static void the_device_is_whole_on_every_partition(void)
{
	static const uint64_t leases[] = { 1, 6, 0x10, CORO_UNITS_ALL };
	struct profile first, now;
	CUfunction where;
	CUstream stream;

	start();
	where = check_function(ptx, "where");
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(launched(where, stream));
	first = profile_now(where, stream);
	CHECK_EQUAL(first.sms, SMS);
	CHECK_EQUAL(first.device_sms, SMS);
	CHECK_EQUAL(first.context_sms, SMS);
	CHECK(!first.green);
	for (unsigned i = 0; i < 4; i++) {
		lease_set(leases[i]);
		CHECK(launched(where, stream));
		now = profile_now(where, stream);
		CHECK(!memcmp(&now, &first, sizeof(now)));
	}
	CU(cuStreamDestroy_v2(stream));
}

/* Cooperative launches that fill the partition, on two streams: they run one after the other. */
static void cooperative_launches_on_a_partition_end(void)
{
	CUfunction meet;
	CUstream streams[2];
	uint32_t blocks;

	start();
	meet = check_function(meet_ptx, "meet");
	lease_set(1);
	blocks = page->unit_sms * PER_SM;
	CU(cuMemsetD32_v2(memory, 0, 2));
	CU(cuStreamSynchronize(NULL));
	for (unsigned i = 0; i < 2; i++)
		CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < 2; i++) {
		CUdeviceptr count = i ? memory + 4 : memory;
		void *params[] = { &count, &blocks };

		CU(cuLaunchCooperativeKernel(meet, blocks, 1, 1, 1024, 1, 1, 0, streams[i], params));
	}
	for (unsigned i = 0; i < 2; i++) {
		CHECK(is_done(streams[i]));
		CU(cuStreamDestroy_v2(streams[i]));
	}
	lease_set(CORO_UNITS_ALL);
}

/* A cooperative launch that needs more SMs than the partition has. */
static void a_cooperative_launch_beside_a_partition_ends(void)
{
	volatile uint32_t *flag;
	uint32_t blocks;
	void *params[] = { &memory, &blocks };
	CUstream busy, stream;

	start();
	blocks = page->unit_sms * PER_SM + 1;
	flag = flag_new();
	lease_set(1);
	CU(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemsetD32_v2(memory, 0, 1));
	CU(cuStreamSynchronize(NULL));
	launch_on(check_function(ptx, "until"), busy, &flag);
	CU(cuLaunchCooperativeKernel(check_function(meet_ptx, "meet"), blocks, 1, 1, 1024, 1, 1, 0, stream,
				     params));
	*flag = 1;
	CHECK(is_done(stream));
	CHECK(is_done(busy));
	CU(cuStreamDestroy_v2(busy));
	CU(cuStreamDestroy_v2(stream));
	lease_set(CORO_UNITS_ALL);
}

static void fills_stay_on_the_leased_units(void)
{
	CUfunction where;
	uint64_t moves;
	uint32_t *host;
	void *at;

	start();
	where = check_function(ptx, "where");
	CU(cuMemHostAlloc(&at, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	host = at;
	lease_set(1);
	launch_on(where, NULL, &memory);
	moves = page->moves;
	for (uint32_t i = 1; i < 20; i++) {
		CU(cuMemsetD32_v2(memory, i, 64));
		CU(cuMemsetD2D8_v2(memory, 64, (unsigned char)i, 32, 4));
		CU(cuMemsetD32_v2((CUdeviceptr)(uintptr_t)host, i, 1024));
		CHECK_EQUAL(host[1023], i); /* memory of the host is filled when the call returns */
		launch_on(where, NULL, &memory);
	}
	CHECK_EQUAL(page->moves, moves);
	CU(cuMemFreeHost(host));
	lease_set(CORO_UNITS_ALL);
}

static void called(CUstream stream, CUresult status, void *argument)
{
	CHECK(!status);
	*(CUstream *)argument = stream;
}

static void a_callback_is_told_the_programs_stream(void)
{
	CUstream stream, told = NULL;

	start();
	lease_set(1);
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemsetD32Async(memory, 1, 1, stream));
	CU(cuStreamAddCallback(stream, called, &told, 0));
	CU(cuStreamSynchronize(stream));
	CHECK(told == stream);
	CU(cuStreamDestroy_v2(stream));
	lease_set(CORO_UNITS_ALL);
}

static void attributes_stay_with_the_stream(void)
{
	CUstreamAttrValue set = { .syncPolicy = CU_SYNC_POLICY_YIELD }, got;
	CUstream stream;

	start();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < 3; i++) {
		lease_set(1 + i);
		CU(cuMemsetD32Async(memory, 1, 1, stream));
		CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &set));
		CU(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
		CHECK_EQUAL(got.syncPolicy, set.syncPolicy);
	}
	CU(cuStreamSynchronize(stream));
	CU(cuStreamDestroy_v2(stream));
	lease_set(CORO_UNITS_ALL);
}

/* The library has the symbols of the driver whose signatures it does not know. */
static void functions_without_a_signature_are_forwarded(void)
{
	CUresult (*init)(void) = (CUresult(*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "cuGLInit");
	CUresult (*begin)(void) = (CUresult(*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "cuProfilerStart");
	CUresult (*three)(const char *, const char *, int) = (CUresult(*)(const char *, const char *, int))(
		uintptr_t)dlsym(RTLD_DEFAULT, "cuProfilerInitialize");

	start();
	CHECK(init && begin && three);
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, init());
	CU(begin());
	CHECK(three("a", "b", 0) != CUDA_ERROR_INVALID_CONTEXT);
}

TESTS(TEST(the_device_is_whole_on_every_partition), TEST(cooperative_launches_on_a_partition_end),
      TEST(a_cooperative_launch_beside_a_partition_ends), TEST(fills_stay_on_the_leased_units),
      TEST(a_callback_is_told_the_programs_stream), TEST(attributes_stay_with_the_stream),
      TEST(functions_without_a_signature_are_forwarded))

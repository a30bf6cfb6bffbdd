/* Device memory: where it lies, how much there is, what happens when it is freed. */
#include <pthread.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static size_t free_bytes(void)
{
	size_t left, total;

	CU(cuMemGetInfo_v2(&left, &total));
	CHECK(left <= total);
	return left;
}

static void memory_is_aligned_and_does_not_overlap(void)
{
	enum { COUNT = 300 };
	static CUdeviceptr at[COUNT];
	static size_t bytes[COUNT];

	check_context();
	srand(1);
	for (unsigned i = 0; i < COUNT; i++) {
		bytes[i] = i % 20 ? 1 + (size_t)rand() % 5000 : MIB + (size_t)rand() % (2 * MIB);
		CU(cuMemAlloc_v2(&at[i], bytes[i]));
		CHECK(at[i] % 256 == 0);
		for (unsigned k = 0; k < i; k++)
			CHECK(at[i] >= at[k] + bytes[k] || at[k] >= at[i] + bytes[i]);
	}
	for (unsigned i = 0; i < COUNT; i++)
		CU(cuMemFree_v2(at[i]));
}

static void allocations_keep_their_contents(void)
{
	enum { COUNT = 64 };
	CUdeviceptr at[COUNT];
	unsigned char bytes[777];

	check_context();
	for (unsigned i = 0; i < COUNT; i++) {
		CU(cuMemAlloc_v2(&at[i], sizeof(bytes)));
		CU(cuMemsetD8_v2(at[i], (unsigned char)i, sizeof(bytes)));
	}
	for (unsigned i = 0; i < COUNT; i++) {
		CU(cuMemcpyDtoH_v2(bytes, at[i], sizeof(bytes)));
		for (size_t k = 0; k < sizeof(bytes); k++)
			CHECK_EQUAL(bytes[k], i);
		CU(cuMemFree_v2(at[i]));
	}
}

static void bad_requests_are_refused(void)
{
	CUdeviceptr at;
	size_t pitch;

	check_context();
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&at, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&at, &pitch, 100, 10, 3));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0x1234));
	CU(cuMemFree_v2(0));
	CU(cuMemAlloc_v2(&at, 4096));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at + 1));
	CU(cuMemFree_v2(at));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at));
}

static void too_much_is_out_of_memory_and_nothing_is_lost(void)
{
	size_t before, total;
	CUdeviceptr at;

	check_context();
	before = free_bytes();
	CU(cuMemGetInfo_v2(NULL, &total));
	CU_FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&at, total + 1));
	CU_FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&at, SIZE_MAX));
	CU_FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&at, SIZE_MAX / 2));
	CHECK_EQUAL(free_bytes(), before);
	CU(cuMemAlloc_v2(&at, before / 2));
	CU(cuMemFree_v2(at));
}

static void freed_memory_goes_back_to_the_driver(void)
{
	CUdeviceptr at;
	size_t before;

	check_context();
	before = free_bytes();
	CU(cuMemAlloc_v2(&at, 32 * MIB));
	CHECK(free_bytes() <= before - 32 * MIB);
	CU(cuMemFree_v2(at));
	CHECK_EQUAL(free_bytes(), before);
}

static void all_memory_can_be_had(void)
{
	enum { COUNT = 64 };
	CUdeviceptr at[COUNT];
	size_t left, total;
	unsigned count = 0;
	CUresult result = CUDA_SUCCESS;

	check_context();
	CU(cuMemGetInfo_v2(&left, &total));
	while (count < COUNT && !result) {
		result = cuMemAlloc_v2(&at[count], (64 * MIB));
		count += !result;
	}
	CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	/* Also what was merely kept for the next small allocation. */
	CHECK_EQUAL(count, total / (64 * MIB));
	while (count--)
		CU(cuMemFree_v2(at[count]));
	CHECK(free_bytes() >= left);
}

static void a_pitch_holds_a_line_and_is_aligned(void)
{
	CUdeviceptr at;
	size_t pitch, bytes;

	check_context();
	CU(cuMemAllocPitch_v2(&at, &pitch, 1001, 7, 4));
	CHECK(pitch >= 1001 && pitch % 512 == 0);
	CU(cuMemGetAddressRange_v2(NULL, &bytes, at));
	CHECK_EQUAL(bytes, pitch * 7);
	CU(cuMemFree_v2(at));
}

static void an_address_tells_its_allocation(void)
{
	CUdeviceptr at, base;
	size_t bytes;

	check_context();
	CU(cuMemAlloc_v2(&at, 1000));
	CU(cuMemGetAddressRange_v2(&base, &bytes, at + 999));
	CHECK_EQUAL(base, at);
	CHECK_EQUAL(bytes, 1000);
	CU(cuMemFree_v2(at));
	CU_FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &bytes, at));
}

/* Takes memory of all kinds and sizes, marks it, and finds its mark. */
static void *use_memory(void *argument)
{
	static unsigned next;
	unsigned mark = __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED), seed = mark;
	CUstream stream;

	CU(cuCtxSetCurrent(argument));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < 150; i++) {
		size_t count = 1 + (size_t)rand_r(&seed) % (i % 10 ? 2000 : 1000000);
		unsigned first = 0, last = 0;
		CUdeviceptr at;

		CU(i % 2 ? cuMemAlloc_v2(&at, count * 4) : cuMemAllocAsync(&at, count * 4, stream));
		CU(cuMemsetD32Async(at, mark + i, count, stream));
		CU(cuMemcpyDtoHAsync_v2(&first, at, 4, stream));
		CU(cuMemcpyDtoHAsync_v2(&last, at + (count - 1) * 4, 4, stream));
		CHECK_EQUAL(first, mark + i);
		CHECK_EQUAL(last, mark + i);
		CU(i % 3 ? cuMemFree_v2(at) : cuMemFreeAsync(at, stream));
	}
	CU(cuStreamDestroy_v2(stream));
	return NULL;
}

static void many_threads_allocate_and_free_at_once(void)
{
	CUcontext context = check_context();
	pthread_t threads[5];
	CUdeviceptr at;
	size_t before;

	CU(cuMemAlloc_v2(&at, 4)); /* one empty block is kept from now on */
	CU(cuMemFree_v2(at));
	before = free_bytes();
	for (int i = 0; i < 5; i++)
		CHECK(!pthread_create(&threads[i], NULL, use_memory, context));
	for (int i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	CU(cuCtxSynchronize());
	CHECK_EQUAL(free_bytes(), before);
}

/* The context is lost, and made anew. */
static void a_use_after_free_is_a_fault(void)
{
	static const char ptx[] = PTX_HEAD ".visible .entry store(.param .u64 to)\n"
					   "{\n"
					   ".reg .u64 %a;\n"
					   "ld.param.u64 %a, [to];\n"
					   "st.global.u32 [%a], 7;\n"
					   "ret;\n"
					   "}\n";
	CUfunction function;
	CUdeviceptr at;
	void *params[] = { &at };

	check_context();
	function = check_function(ptx, "store");
	CU(cuMemAlloc_v2(&at, 4 * MIB));
	CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	CU(cuMemFree_v2(at));
	CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&at, 4));
	CU(cuDevicePrimaryCtxReset_v2(0));
}

static void a_reset_gives_all_memory_back(void)
{
	CUdeviceptr at;
	size_t before;
	void *host;

	check_context();
	before = free_bytes();
	CU(cuMemAlloc_v2(&at, 10));
	CU(cuMemAlloc_v2(&at, 10 * MIB));
	CU(cuMemAllocHost_v2(&host, 10));
	CU(cuMemcpyHtoD_v2(at, &before, sizeof(before)));
	CHECK(free_bytes() < before);
	CU(cuDevicePrimaryCtxReset_v2(0));
	check_context();
	CHECK_EQUAL(free_bytes(), before);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
	CU(cuMemAlloc_v2(&at, 10));
	CU(cuMemFree_v2(at));
}

TESTS(TEST(memory_is_aligned_and_does_not_overlap), TEST(allocations_keep_their_contents),
      TEST(bad_requests_are_refused), TEST(too_much_is_out_of_memory_and_nothing_is_lost),
      TEST(freed_memory_goes_back_to_the_driver), TEST(all_memory_can_be_had),
      TEST(a_pitch_holds_a_line_and_is_aligned), TEST(an_address_tells_its_allocation),
      TEST(many_threads_allocate_and_free_at_once), TEST(a_use_after_free_is_a_fault),
      TEST(a_reset_gives_all_memory_back))

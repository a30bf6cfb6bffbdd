/* Host memory that the GPU sees: allocated, registered, managed. */
#include <sys/mman.h>

#include "check.h"

static const char add_one_ptx[] = PTX_HEAD ".visible .entry add_one(.param .u64 to)\n"
					   "{\n"
					   ".reg .u32 %t, %v;\n"
					   ".reg .u64 %a, %o;\n"
					   "ld.param.u64 %a, [to];\n"
					   "mov.u32 %t, %tid.x;\n"
					   "mul.wide.u32 %o, %t, 4;\n"
					   "add.u64 %a, %a, %o;\n"
					   "ld.global.u32 %v, [%a];\n"
					   "add.u32 %v, %v, 1;\n"
					   "st.global.u32 [%a], %v;\n"
					   "ret;\n"
					   "}\n";

/* A kernel adds one to each of 64 numbers, and the CPU sees it. */
static void add_one_to(uint32_t *numbers)
{
	CUfunction function = check_function(add_one_ptx, "add_one");
	CUdeviceptr at = (uintptr_t)numbers;
	void *params[] = { &at };

	for (uint32_t i = 0; i < 64; i++)
		numbers[i] = i;
	CU(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	for (uint32_t i = 0; i < 64; i++)
		CHECK_EQUAL(numbers[i], i + 1);
}

static void kernels_use_host_memory_at_its_own_address(void)
{
	unsigned flags;
	CUdeviceptr at;
	void *memory;

	check_context();
	CU(cuMemHostAlloc(&memory, 100000, CU_MEMHOSTALLOC_PORTABLE));
	add_one_to(memory);
	CU(cuMemHostGetDevicePointer_v2(&at, memory, 0));
	CHECK_EQUAL(at, (uintptr_t)memory);
	CU(cuMemHostGetFlags(&flags, memory));
	CHECK(flags & CU_MEMHOSTALLOC_PORTABLE && flags & CU_MEMHOSTALLOC_DEVICEMAP);
	CU(cuMemFreeHost(memory));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(memory));
}

static void wrong_uses_of_host_memory_are_refused(void)
{
	CUdeviceptr at;
	void *memory;
	int mine;

	check_context();
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&memory, 10, 0x100));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(NULL, 10, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(&mine));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&at, &mine, 0));
	CU(cuMemAllocHost_v2(&memory, 10));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2((uintptr_t)memory));
	CU(cuMemFreeHost(memory));
}

static void registered_memory_keeps_its_place_and_contents(void)
{
	const size_t bytes = 3 * 4096ul + 100, all = 8 * 4096ul;
	uint8_t *memory;
	uint32_t *numbers;

	check_context();
	memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	for (unsigned i = 0; i < all; i++)
		memory[i] = (uint8_t)(i * 7);
	CU(cuMemHostRegister_v2(memory + 200, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
	for (unsigned i = 0; i < all; i++)
		CHECK_EQUAL(memory[i], (uint8_t)(i * 7));
	numbers = (uint32_t *)(void *)(memory + 4096);
	add_one_to(numbers);
	memory[5000] = 99;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(memory + 204));
	CU(cuMemHostUnregister(memory + 200));
	CHECK_EQUAL(memory[5000], 99);
	for (uint32_t i = 0; i < 64; i++)
		CHECK_EQUAL(numbers[i], i + 1);
	CHECK_EQUAL(memory[all - 4096], (uint8_t)((all - 4096) * 7));
	CU_FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(memory + 200));
	munmap(memory, all);
}

static void heap_memory_can_be_registered_again_and_again(void)
{
	char *text = malloc(10000);

	check_context();
	for (int i = 0; i < 20; i++) {
		snprintf(text, 10000, "time %d", i);
		CU(cuMemHostRegister_v2(text, 10000, 0));
		CU_FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(text + 5000, 10, 0));
		CU(cuMemHostUnregister(text));
		CHECK_EQUAL(atoi(text + 5), i);
	}
	free(text);
}

static void what_cannot_be_registered_is_refused(void)
{
	void *read_only, *shared;
	int mine;

	(void)mine;
	check_context();
	read_only = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(read_only, 4096, 0));
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister_v2(shared, 4096, 0));
#ifndef __SANITIZE_ADDRESS__ /* with it, what looks like the stack is not */
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister_v2(&mine, sizeof(mine), 0));
#endif
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(read_only, 0, 0));
	munmap(read_only, 4096);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(read_only, 4096, 0));
}

static void managed_memory_is_seen_by_both(void)
{
	CUmemLocation here = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	size_t before, after;
	CUdeviceptr at;
	int answer, by[3];

	check_context();
	CU(cuMemGetInfo_v2(&before, NULL));
	CU(cuMemAllocManaged(&at, 8 << 20, CU_MEM_ATTACH_GLOBAL));
	CU(cuMemGetInfo_v2(&after, NULL));
	CHECK_EQUAL(before, after);
	add_one_to((uint32_t *)(uintptr_t)at);
	CU(cuMemPrefetchAsync_v2(at, 8 << 20, here, 0, NULL));
	CU(cuMemRangeGetAttribute(&answer, sizeof(answer), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at,
				  100));
	CHECK_EQUAL(answer, 0);
	CU(cuMemRangeGetAttribute(&answer, sizeof(answer), CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, at,
				  100));
	CHECK_EQUAL(answer, CU_DEVICE_INVALID);
	CU(cuMemAdvise(at, 100, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
	CU(cuMemAdvise(at, 100, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
	CU(cuMemRangeGetAttribute(by, sizeof(by), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, 100));
	CHECK(by[0] == 0 && by[1] == CU_DEVICE_CPU && by[2] == CU_DEVICE_INVALID);
	CU(cuMemFree_v2(at));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(at, 100, 0, NULL));
}

static void a_second_context_sees_host_memory_as_well(void)
{
	CUcontext first = check_context(), second;
	uint32_t *memory;
	void *later;

	CU(cuMemHostAlloc((void **)&memory, 4096, 0));
	CU(cuCtxCreate_v4(&second, NULL, 0, 1));
	add_one_to(memory);
	CU(cuMemHostAlloc(&later, 4096, 0));
	add_one_to(later);
	CU(cuCtxSetCurrent(first));
	add_one_to(later);
	CU(cuCtxDestroy_v2(second)); /* and what was made in it */
	CU(cuCtxSetCurrent(first));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(later));
	add_one_to(memory);
	CU(cuMemFreeHost(memory));
}

TESTS(TEST(kernels_use_host_memory_at_its_own_address), TEST(wrong_uses_of_host_memory_are_refused),
      TEST(registered_memory_keeps_its_place_and_contents),
      TEST(heap_memory_can_be_registered_again_and_again), TEST(what_cannot_be_registered_is_refused),
      TEST(managed_memory_is_seen_by_both), TEST(a_second_context_sees_host_memory_as_well))

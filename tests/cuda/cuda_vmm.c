/* Memory and addresses made apart: cuMemCreate, cuMemAddressReserve, cuMemMap, cuMemSetAccess. */
#include "check.h"

#define PIECE ((size_t)2 << 20)

static const CUmemAllocationProp props = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
static const CUmemAccessDesc all_access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
					    CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

static void granularity_is_two_megabytes(void)
{
	size_t bytes;

	check_context();
	CU(cuMemGetAllocationGranularity(&bytes, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK_EQUAL(bytes, PIECE);
	CU(cuMemGetAllocationGranularity(&bytes, &props, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	CHECK_EQUAL(bytes, PIECE);
}

/* As allocators with growing segments do it. */
static void a_segment_grows_and_is_used_as_one(void)
{
	CUmemGenericAllocationHandle pieces[4];
	uint8_t *here = malloc(4 * PIECE), *back = malloc(4 * PIECE);
	CUdeviceptr at;

	check_context();
	for (size_t i = 0; i < 4 * PIECE; i++)
		here[i] = (uint8_t)(i * 3 + (i >> 12));
	CU(cuMemAddressReserve(&at, 64 * PIECE, 0, 0, 0));
	CHECK_EQUAL(at % PIECE, 0);
	for (unsigned i = 0; i < 4; i++) {
		CU(cuMemCreate(&pieces[i], PIECE, &props, 0));
		CU(cuMemMap(at + i * PIECE, PIECE, 0, pieces[i], 0));
		CU(cuMemSetAccess(at + i * PIECE, PIECE, &all_access, 1));
		CU(cuMemcpyHtoD_v2(at, here, (i + 1) * PIECE));
	}
	CU(cuMemcpyDtoH_v2(back, at, 4 * PIECE));
	CHECK(!memcmp(here, back, 4 * PIECE));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(back, at + 1, 4 * PIECE));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 64 * PIECE));
	CU(cuMemUnmap(at, 4 * PIECE));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(back, at, PIECE));
	for (unsigned i = 0; i < 4; i++)
		CU(cuMemRelease(pieces[i]));
	CU(cuMemAddressFree(at, 64 * PIECE));
	free(here);
	free(back);
}

static void the_same_memory_can_lie_at_two_addresses(void)
{
	CUmemGenericAllocationHandle memory;
	CUdeviceptr a, b;
	uint32_t value = 0;

	check_context();
	CU(cuMemCreate(&memory, PIECE, &props, 0));
	CU(cuMemAddressReserve(&a, PIECE, 0, 0, 0));
	CU(cuMemAddressReserve(&b, PIECE, 0, 0, 0));
	CU(cuMemMap(a, PIECE, 0, memory, 0));
	CU(cuMemMap(b, PIECE, 0, memory, 0));
	CU(cuMemSetAccess(a, PIECE, &all_access, 1));
	CU(cuMemSetAccess(b, PIECE, &all_access, 1));
	CU(cuMemsetD32_v2(a + 400, 1234, 1));
	CU(cuMemcpyDtoH_v2(&value, b + 400, 4));
	CHECK_EQUAL(value, 1234);
	CU(cuMemUnmap(a, PIECE));
	CU(cuMemUnmap(b, PIECE));
	CU(cuMemRelease(memory));
	CU(cuMemAddressFree(a, PIECE));
	CU(cuMemAddressFree(b, PIECE));
}

static void memory_lives_as_long_as_it_is_mapped(void)
{
	CUmemGenericAllocationHandle memory, again;
	CUmemAllocationProp told;
	CUdeviceptr at;
	size_t before, left;

	check_context();
	CU(cuMemGetInfo_v2(&before, NULL));
	CU(cuMemCreate(&memory, 4 * PIECE, &props, 0));
	CU(cuMemAddressReserve(&at, 4 * PIECE, 0, 0, 0));
	CU(cuMemMap(at, 4 * PIECE, 0, memory, 0));
	CU(cuMemRelease(memory));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(memory));
	CU(cuMemGetInfo_v2(&left, NULL));
	CHECK_EQUAL(left, before - 4 * PIECE);
	CU(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 100)));
	CHECK_EQUAL(again, memory);
	CU(cuMemGetAllocationPropertiesFromHandle(&told, again));
	CHECK_EQUAL(told.location.id, 0);
	CU(cuMemUnmap(at, 4 * PIECE));
	CU(cuMemRelease(again));
	CU(cuMemGetInfo_v2(&left, NULL));
	CHECK_EQUAL(left, before);
	CU(cuMemAddressFree(at, 4 * PIECE));
}

static void access_is_as_set(void)
{
	CUmemAccessDesc access = all_access;
	CUmemGenericAllocationHandle memory;
	unsigned long long flags;
	CUdeviceptr at;

	check_context();
	CU(cuMemCreate(&memory, PIECE, &props, 0));
	CU(cuMemAddressReserve(&at, PIECE, 0, 0, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, PIECE, &access, 1));
	CU(cuMemMap(at, PIECE, 0, memory, 0));
	CU(cuMemGetAccess(&flags, &access.location, at));
	CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(at, 1, 1));
	CU(cuMemSetAccess(at, PIECE, &access, 1));
	CU(cuMemsetD8_v2(at, 1, 1));
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
	CU(cuMemSetAccess(at, PIECE, &access, 1));
	CU(cuMemGetAccess(&flags, &access.location, at));
	CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
	access.location.id = 1;
	CU_FAILS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuMemSetAccess(at, PIECE, &access, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at));
	CU(cuMemUnmap(at, PIECE));
	CU(cuMemRelease(memory));
	CU(cuMemAddressFree(at, PIECE));
}

static void wrong_maps_are_refused(void)
{
	CUmemAllocationProp shared = props;
	CUmemGenericAllocationHandle memory;
	CUdeviceptr at;

	check_context();
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&memory, 4096, &props, 0));
	CU_FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&memory, PIECE << 20, &props, 0));
	shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&memory, PIECE, &shared, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, 4096, 0, 0, 0));
	CU(cuMemCreate(&memory, PIECE, &props, 0));
	CU(cuMemAddressReserve(&at, 2 * PIECE, 0, 0, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, 2 * PIECE, 0, memory, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 4096, PIECE, 0, memory, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * PIECE, PIECE, 0, memory, 0));
	CU(cuMemMap(at, PIECE, 0, memory, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, PIECE, 0, memory, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, 2 * PIECE));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at + PIECE, PIECE));
	CU(cuMemUnmap(at, PIECE));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, PIECE));
	CU(cuMemAddressFree(at, 2 * PIECE));
	CU(cuMemRelease(memory));
}

/* Last: the context is lost. */
static void what_is_unmapped_is_a_fault(void)
{
	static const char ptx[] = PTX_HEAD ".visible .entry store(.param .u64 to)\n"
					   "{\n"
					   ".reg .u64 %a;\n"
					   "ld.param.u64 %a, [to];\n"
					   "st.global.u32 [%a], 7;\n"
					   "ret;\n"
					   "}\n";
	CUmemGenericAllocationHandle memory;
	CUfunction function;
	CUdeviceptr at;
	void *params[] = { &at };

	check_context();
	function = check_function(ptx, "store");
	CU(cuMemCreate(&memory, PIECE, &props, 0));
	CU(cuMemAddressReserve(&at, PIECE, 0, 0, 0));
	CU(cuMemMap(at, PIECE, 0, memory, 0));
	CU(cuMemSetAccess(at, PIECE, &all_access, 1));
	CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	CU(cuMemUnmap(at, PIECE));
	CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TESTS(TEST(granularity_is_two_megabytes), TEST(a_segment_grows_and_is_used_as_one),
      TEST(the_same_memory_can_lie_at_two_addresses), TEST(memory_lives_as_long_as_it_is_mapped),
      TEST(access_is_as_set), TEST(wrong_maps_are_refused), TEST(what_is_unmapped_is_a_fault))

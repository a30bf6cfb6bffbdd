/* Memory pools: allocation in the order of streams. */
#include "check.h"

#define MIB ((size_t)1 << 20)

static uint64_t number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	uint64_t value;

	CU(cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

static CUmemoryPool new_pool(size_t max_bytes)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				 .maxSize = max_bytes };
	CUmemoryPool pool;

	CU(cuMemPoolCreate(&pool, &props));
	return pool;
}

/* A stream that waits for `*gate` to become 1. */
static CUstream new_gated_stream(uint32_t **gate)
{
	CUstream stream;

	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc((void **)gate, 4, 0));
	**gate = 0;
	CU(cuStreamWaitValue32_v2(stream, (uintptr_t)*gate, 1, CU_STREAM_WAIT_VALUE_EQ));
	return stream;
}

static void open_gate(CUstream stream, uint32_t *gate)
{
	*(volatile uint32_t *)gate = 1;
	CU(cuStreamSynchronize(stream));
	CU(cuMemFreeHost(gate));
	CU(cuStreamDestroy_v2(stream));
}

static void memory_from_a_pool_is_memory(void)
{
	CUstream stream;
	CUdeviceptr at;
	uint32_t value = 0;

	check_context();
	CU(cuStreamCreate(&stream, 0));
	CU(cuMemAllocAsync(&at, 1000, stream));
	CHECK(at % 256 == 0);
	CU(cuMemsetD32Async(at, 42, 250, stream));
	CU(cuMemcpyDtoHAsync_v2(&value, at + 996, 4, stream));
	CU(cuMemFreeAsync(at, stream));
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(value, 42);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(at, stream));
	CU(cuMemAllocAsync(&at, 0, stream));
	CU(cuStreamDestroy_v2(stream));
}

static void statistics_add_up(void)
{
	CUmemoryPool pool;
	CUdeviceptr a, b;
	uint64_t zero = 0;

	check_context();
	pool = new_pool(0);
	CU(cuMemAllocFromPoolAsync(&a, 3 * MIB, pool, NULL));
	CU(cuMemAllocFromPoolAsync(&b, MIB, pool, NULL));
	CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4 * MIB);
	CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * MIB);
	CU(cuMemFreeAsync(a, NULL));
	CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
	CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 4 * MIB);
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), MIB);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero));
	CU(cuMemFreeAsync(b, NULL));
	CU(cuMemPoolDestroy(pool));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
}

static void a_stream_reuses_at_once_what_it_freed(void)
{
	CUmemoryPool pool;
	CUstream stream;
	CUdeviceptr first, second;
	uint32_t *gate;

	check_context();
	pool = new_pool(0);
	stream = new_gated_stream(&gate);
	CU(cuMemAllocFromPoolAsync(&first, MIB, pool, stream));
	CU(cuMemFreeAsync(first, stream));
	CU(cuMemAllocFromPoolAsync(&second, MIB, pool, stream));
	CHECK_EQUAL(second, first);
	CU(cuMemFreeAsync(second, stream));
	open_gate(stream, gate);
	CU(cuMemPoolDestroy(pool));
}

static void others_get_it_when_the_stream_got_there(void)
{
	CUmemoryPool pool;
	CUstream stream, other;
	CUdeviceptr first, second, third;
	uint64_t keep = 64 * MIB;
	uint32_t *gate;

	check_context();
	pool = new_pool(0);
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	stream = new_gated_stream(&gate);
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU(cuMemAllocFromPoolAsync(&first, 2 * MIB, pool, stream));
	CU(cuMemFreeAsync(first, stream));
	CU(cuMemAllocFromPoolAsync(&second, 2 * MIB, pool, other));
	CHECK(second != first);
	open_gate(stream, gate);
	CU(cuMemAllocFromPoolAsync(&third, 2 * MIB, pool, other));
	CHECK_EQUAL(third, first);
	CU(cuMemFreeAsync(second, other));
	CU(cuMemFreeAsync(third, other));
	CU(cuStreamDestroy_v2(other));
	CU(cuMemPoolDestroy(pool));
}

static void what_is_past_the_threshold_goes_back_at_synchronisation(void)
{
	CUmemoryPool pool;
	CUdeviceptr a;
	uint64_t keep = 16 * MIB;

	check_context();
	pool = new_pool(0);
	CU(cuMemAllocFromPoolAsync(&a, 8 * MIB, pool, NULL));
	CU(cuMemFreeAsync(a, NULL));
	CU(cuStreamSynchronize(NULL));
	CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	CU(cuMemAllocFromPoolAsync(&a, 8 * MIB, pool, NULL));
	CU(cuMemFreeAsync(a, NULL));
	CU(cuCtxSynchronize());
	CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * MIB);
	CU(cuMemPoolTrimTo(pool, 0));
	CHECK_EQUAL(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	CU(cuMemPoolDestroy(pool));
}

static void kept_memory_is_no_reason_to_be_out_of_memory(void)
{
	CUmemoryPool pool;
	CUdeviceptr a, b;
	uint64_t keep = UINT64_MAX;
	size_t left;

	check_context();
	CU(cuMemGetInfo_v2(&left, NULL));
	pool = new_pool(0);
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	CU(cuMemAllocFromPoolAsync(&a, left * 3 / 4, pool, NULL));
	CU(cuMemFreeAsync(a, NULL));
	CU(cuCtxSynchronize());
	CU(cuMemAlloc_v2(&b, left * 3 / 4));
	CU_FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, left / 2, pool, NULL));
	CU(cuMemFree_v2(b));
	CU(cuMemPoolDestroy(pool));
	pool = new_pool(4 * MIB);
	CU_FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, 5 * MIB, pool, NULL));
	CU(cuMemPoolDestroy(pool));
}

static void a_destroyed_pool_lives_as_long_as_its_memory(void)
{
	CUmemoryPool pool;
	CUdeviceptr at;
	uint32_t value = 0;
	size_t before, after;

	check_context();
	CU(cuMemGetInfo_v2(&before, NULL));
	pool = new_pool(0);
	CU(cuMemAllocFromPoolAsync(&at, MIB, pool, NULL));
	CU(cuMemPoolDestroy(pool));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&at, MIB, pool, NULL));
	CU(cuMemsetD32_v2(at, 5, 1));
	CU(cuMemcpyDtoH_v2(&value, at, 4));
	CHECK_EQUAL(value, 5);
	CU(cuMemFreeAsync(at, NULL));
	CU(cuCtxSynchronize());
	CU(cuMemGetInfo_v2(&after, NULL));
	CHECK_EQUAL(before, after);
}

static void a_device_has_a_default_and_a_current_pool(void)
{
	CUmemoryPool first, current, mine, of_memory;
	CUdeviceptr at;

	check_context();
	CU(cuDeviceGetDefaultMemPool(&first, 0));
	CU(cuDeviceGetMemPool(&current, 0));
	CHECK(first == current);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(first));
	mine = new_pool(0);
	CU(cuDeviceSetMemPool(0, mine));
	CU(cuDeviceGetMemPool(&current, 0));
	CHECK(current == mine);
	CU(cuMemAllocAsync(&at, 100, NULL));
	CU(cuPointerGetAttribute(&of_memory, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
	CHECK(of_memory == mine);
	CU(cuMemFreeAsync(at, NULL));
	CU(cuMemPoolDestroy(mine));
	CU(cuDeviceGetMemPool(&current, 0));
	CHECK(current == first);
	CU_FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetMemPool(&current, 77));
}

static void both_kinds_of_free_take_both_kinds_of_memory(void)
{
	CUdeviceptr at;

	check_context();
	CU(cuMemAllocAsync(&at, 5000, NULL));
	CU(cuMemFree_v2(at));
	CU(cuMemAlloc_v2(&at, 5000));
	CU(cuMemFreeAsync(at, NULL));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at));
}

static void only_its_own_gpu_may_use_a_pool(void)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemAccess_flags flags;
	CUmemoryPool pool;

	check_context();
	pool = new_pool(0);
	CU(cuMemPoolSetAccess(pool, &access, 1));
	CU(cuMemPoolGetAccess(&flags, pool, &access.location));
	CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	access.location.id = 1;
	CU_FAILS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuMemPoolSetAccess(pool, &access, 1));
	CU(cuMemPoolGetAccess(&flags, pool, &access.location));
	CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	CU(cuMemPoolDestroy(pool));
}

static void a_context_made_later_sees_the_pool(void)
{
	CUcontext first = check_context(), second;
	CUdeviceptr at;
	uint32_t value = 0;

	CU(cuMemAllocAsync(&at, 4, NULL));
	CU(cuMemsetD32Async(at, 17, 1, NULL));
	CU(cuCtxSynchronize());
	CU(cuCtxCreate_v4(&second, NULL, 0, 0));
	CU(cuMemcpyDtoH_v2(&value, at, 4));
	CHECK_EQUAL(value, 17);
	CU(cuMemsetD32_v2(at, 18, 1));
	CU(cuMemFreeAsync(at, NULL));
	CU(cuCtxDestroy_v2(second));
	CU(cuCtxSetCurrent(first));
	CU(cuMemAllocAsync(&at, 4, NULL));
	CU(cuMemFreeAsync(at, NULL));
}

static void a_captured_allocation_belongs_to_the_graph(void)
{
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;
	CUdeviceptr at;
	uint32_t *value;
	uint64_t reserved;

	check_context();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc((void **)&value, 4, 0));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemAllocAsync(&at, MIB, stream));
	CU(cuMemsetD32Async(at, 77, 1, stream));
	CU(cuMemcpyDtoHAsync_v2(value, at, 4, stream));
	CU(cuMemFreeAsync(at, stream));
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
	CHECK_EQUAL(reserved, 0);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 3; i++) {
		*value = 0;
		CU(cuGraphLaunch(exec, stream));
		CU(cuStreamSynchronize(stream));
		CHECK_EQUAL(*value, 77);
	}
	CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
	CHECK_EQUAL(reserved, MIB);
	CU(cuDeviceGraphMemTrim(0));
	CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
	CHECK_EQUAL(reserved, 0);
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU_FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(NULL, NULL, at));
	CU(cuMemFreeHost(value));
	CU(cuStreamDestroy_v2(stream));
}

TESTS(TEST(memory_from_a_pool_is_memory), TEST(statistics_add_up),
      TEST(a_stream_reuses_at_once_what_it_freed), TEST(others_get_it_when_the_stream_got_there),
      TEST(what_is_past_the_threshold_goes_back_at_synchronisation),
      TEST(kept_memory_is_no_reason_to_be_out_of_memory), TEST(a_destroyed_pool_lives_as_long_as_its_memory),
      TEST(a_device_has_a_default_and_a_current_pool), TEST(both_kinds_of_free_take_both_kinds_of_memory),
      TEST(only_its_own_gpu_may_use_a_pool), TEST(a_context_made_later_sees_the_pool),
      TEST(a_captured_allocation_belongs_to_the_graph))

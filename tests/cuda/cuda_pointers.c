/* What the library says about a pointer. */
#include "check.h"

static int number(CUpointer_attribute attribute, CUdeviceptr at)
{
	int value = 0x55555555;

	CU(cuPointerGetAttribute(&value, attribute, at));
	return value;
}

static uint64_t wide(CUpointer_attribute attribute, CUdeviceptr at)
{
	uint64_t value = 0x5555555555555555;

	CU(cuPointerGetAttribute(&value, attribute, at));
	return value;
}

static void device_memory_is_known(void)
{
	CUcontext context = check_context();
	CUdeviceptr at, other;
	void *host;

	CU(cuMemAlloc_v2(&at, 1000));
	CU(cuMemAlloc_v2(&other, 1000));
	CHECK_EQUAL(number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 999), CU_MEMORYTYPE_DEVICE);
	CHECK_EQUAL(number(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at), 0);
	CHECK_EQUAL(number(CU_POINTER_ATTRIBUTE_IS_MANAGED, at), 0);
	CHECK_EQUAL(number(CU_POINTER_ATTRIBUTE_MAPPED, at), 1);
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_CONTEXT, at), (uintptr_t)context);
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 10), at + 10);
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 10), at);
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at + 10), 1000);
	CHECK(wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, at) != wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at), 0);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
	CU(cuMemFree_v2(at));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_CONTEXT, at));
	CU(cuMemFree_v2(other));
}

static void host_memory_is_known(void)
{
	CUdeviceptr managed;
	void *memory;

	check_context();
	CU(cuMemHostAlloc(&memory, 100, 0));
	CHECK_EQUAL(number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)memory), CU_MEMORYTYPE_HOST);
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_HOST_POINTER, (uintptr_t)memory), (uintptr_t)memory);
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (uintptr_t)memory), (uintptr_t)memory);
	CU(cuMemFreeHost(memory));
	CU(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
	CHECK_EQUAL(number(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed), 1);
	CHECK_EQUAL(number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, managed), CU_MEMORYTYPE_DEVICE);
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_HOST_POINTER, managed), managed);
	CU(cuMemFree_v2(managed));
}

static void registered_memory_is_known_by_its_own_bounds(void)
{
	char *memory = malloc(50000);
	CUdeviceptr at = (uintptr_t)memory + 111;

	check_context();
	CU(cuMemHostRegister_v2(memory + 111, 20000, 0));
	CHECK_EQUAL(number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), CU_MEMORYTYPE_HOST);
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 19999), at);
	CHECK_EQUAL(wide(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at + 500), 20000);
	CU(cuMemHostUnregister(memory + 111));
	free(memory);
}

static void unknown_memory_is_nothing_and_no_error(void)
{
	CUpointer_attribute attributes[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
					     CU_POINTER_ATTRIBUTE_IS_MANAGED,
					     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	int type = 5, managed = 5, device = 5;
	CUcontext context = (CUcontext)&type;
	void *to[] = { &type, &context, &managed, &device };
	CUdeviceptr at;

	check_context();
	CU(cuPointerGetAttributes(4, attributes, to, (uintptr_t)&type));
	CHECK_EQUAL(type, 0);
	CHECK(!context);
	CHECK_EQUAL(managed, 0);
	CHECK_EQUAL(device, CU_DEVICE_INVALID);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&device, attributes[0], (uintptr_t)&type));
	CU(cuMemAlloc_v2(&at, 4));
	CU(cuPointerGetAttributes(4, attributes, to, at));
	CHECK_EQUAL(type, CU_MEMORYTYPE_DEVICE);
	CHECK(context);
	CHECK_EQUAL(device, 0);
	CU(cuMemFree_v2(at));
}

static void copies_can_be_asked_to_be_synchronous(void)
{
	unsigned yes = 1;
	CUdeviceptr at;

	check_context();
	CU(cuMemAlloc_v2(&at, 4));
	CU(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_CONTEXT, at));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)&yes));
	CU(cuMemFree_v2(at));
}

TESTS(TEST(device_memory_is_known), TEST(host_memory_is_known),
      TEST(registered_memory_is_known_by_its_own_bounds), TEST(unknown_memory_is_nothing_and_no_error),
      TEST(copies_can_be_asked_to_be_synchronous))

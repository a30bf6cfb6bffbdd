/* Attributes of pointers. */
#include <string.h>

#include "soft/cuda/heap.h"
#include "soft/cuda/memory.h"

static CUmemorytype memory_type(const struct range *range)
{
	return range_is_device(range) || range->kind == RANGE_MANAGED ? CU_MEMORYTYPE_DEVICE
								      : CU_MEMORYTYPE_HOST;
}

static CUresult tell_pointer(const struct range *range, CUdeviceptr address, CUpointer_attribute attribute,
			     void *to)
{
	bool is_host = attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER;

	if (is_host && range_is_device(range))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(to, &address, sizeof(address));
	return CUDA_SUCCESS;
}

static CUmemAccess_flags access_of(const struct range *range)
{
	if (range->kind == RANGE_RESERVED)
		return CU_MEM_ACCESS_FLAGS_PROT_NONE;
	if (range->kind == RANGE_DEVICE && range->flags == MEMORY_MAPPED)
		return vmm_access(range);
	return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* The block of a range, which is one mapping of the GPU. */
static void tell_mapping(const struct range *range, uint64_t *base, uint64_t *bytes)
{
	const struct heap_span *span = range->owner;
	bool is_cut = range->kind == RANGE_DEVICE &&
		      (range->flags == MEMORY_OF_CONTEXT || range->flags == MEMORY_OF_POOL);

	*base = is_cut ? span->block->base : range->base;
	*bytes = is_cut ? span->block->bytes : range->bytes;
}

/* Attributes with a 64-bit value or a pointer. */
static bool tell_long(const struct range *range, CUpointer_attribute attribute, void *to)
{
	uint64_t base, bytes;
	uint64_t answer;

	tell_mapping(range, &base, &bytes);
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		answer = (uintptr_t)range->context;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		answer = range->id;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		answer = range->base;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		answer = range->bytes;
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		answer = CU_MEM_HANDLE_TYPE_NONE;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		answer = (uintptr_t)range->pool;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		answer = bytes;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		answer = base;
		break;
	default:
		return false;
	}
	memcpy(to, &answer, sizeof(answer));
	return true;
}

/* Attributes of type int, including those the manual calls boolean: programs pass an int. */
static CUresult tell_int(const struct range *range, CUpointer_attribute attribute, int *to)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*to = (int)memory_type(range);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*to = range->gpu ? (int)range->gpu->index : CU_DEVICE_INVALID;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*to = (int)access_of(range);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*to = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*to = range->kind == RANGE_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*to = range->kind != RANGE_RESERVED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*to = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult pointer_tell(const struct range *range, CUdeviceptr address, CUpointer_attribute attribute,
			     void *to)
{
	if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
	    attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER)
		return tell_pointer(range, address, attribute, to);
	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (tell_long(range, attribute, to))
		return CUDA_SUCCESS;
	return tell_int(range, attribute, to);
}

EXPORT CUresult cuPointerGetAttribute(void *to, CUpointer_attribute attribute, CUdeviceptr address)
{
	const struct range *range;

	ENTER();
	range = range_find(address);
	if (!to || !range)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	LEAVE(pointer_tell(range, address, attribute, to));
}

/* The value for unknown memory: zero, or an invalid device. */
static void tell_nothing(CUpointer_attribute attribute, void *to)
{
	const struct range nothing = { .kind = RANGE_RESERVED };
	int none;

	if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
		*(int *)to = CU_DEVICE_INVALID;
	else if (!tell_int(&nothing, attribute, &none))
		*(int *)to = 0;
	else
		memset(to, 0, sizeof(uint64_t));
}

EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **to,
				       CUdeviceptr address)
{
	const struct range *range;

	ENTER();
	if (!count || !attributes || !to)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	range = range_find(address);
	for (unsigned i = 0; i < count; i++) {
		if (attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
		    attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE || !to[i])
			LEAVE(CUDA_ERROR_INVALID_VALUE);
		if (!range || pointer_tell(range, address, attributes[i], to[i]))
			tell_nothing(attributes[i], to[i]);
	}
	LEAVE(CUDA_SUCCESS);
}

/* Copies are in program order without it: the attribute has no effect. */
EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	const struct range *range;

	ENTER();
	range = range_find(address);
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !range || !range_is_device(range))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	LEAVE(CUDA_SUCCESS);
}

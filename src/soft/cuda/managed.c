/* Managed memory: host memory that every GPU can access. It never migrates, so prefetching does nothing.
 * Advice is stored and returned, always for the whole allocation. */
#include "soft/cuda/memory.h"

static CUresult managed_alloc(CUdeviceptr *address, size_t bytes, unsigned flags)
{
	struct context *context;
	struct range *range = NULL;
	CUresult result;

	if (!address || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	result = context_current(&context);
	if (!result)
		result = capture_forbids();
	if (!result)
		result = memory_new_host(context, bytes, RANGE_MANAGED, flags, &range);
	if (!result)
		*address = range->base;
	return result;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
	ENTER();
	LEAVE(managed_alloc(address, bytes, flags));
}

static CUresult managed_find(CUdeviceptr address, size_t bytes, struct host_memory **memory)
{
	struct range *range = range_find(address);

	if (!bytes || !range || range->kind != RANGE_MANAGED || bytes > range->base + range->bytes - address)
		return CUDA_ERROR_INVALID_VALUE;
	*memory = range->owner;
	return CUDA_SUCCESS;
}

static CUresult location_check(CUmemLocation location)
{
	if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return gpu_find(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	if (location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
	    location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		return CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUmemLocation location_of(CUdevice device)
{
	if (device == CU_DEVICE_CPU)
		return (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_HOST };
	return (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device };
}

static CUresult managed_prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, CUstream handle)
{
	struct host_memory *memory;
	struct stream *stream;
	CUresult result = stream_find(handle, &stream);

	if (!result)
		result = managed_find(address, bytes, &memory);
	if (!result)
		result = location_check(location);
	if (!result && stream->capture)
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!result)
		memory->last_prefetch = location;
	return result;
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
	ENTER();
	LEAVE(managed_prefetch(address, bytes, location_of(device), stream));
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
				      unsigned int flags, CUstream stream)
{
	ENTER();
	LEAVE(flags ? CUDA_ERROR_INVALID_VALUE : managed_prefetch(address, bytes, location, stream));
}

static void managed_set_accessed(struct host_memory *memory, CUmemLocation by, bool is_accessed)
{
	uint32_t bit = 1u << (by.id & 31);

	if (by.type != CU_MEM_LOCATION_TYPE_DEVICE)
		memory->is_accessed_by_host = is_accessed;
	else if (is_accessed)
		memory->accessed_by |= bit;
	else
		memory->accessed_by &= ~bit;
}

static CUresult managed_advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	struct host_memory *memory;
	CUresult result = managed_find(address, bytes, &memory);
	bool needs_location = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
			      advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
			      advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;

	if (!result && needs_location)
		result = location_check(location);
	if (result)
		return result;
	switch (advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		memory->is_read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
		return CUDA_SUCCESS;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		memory->preferred = location;
		return CUDA_SUCCESS;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		memory->preferred = (CUmemLocation){ 0 };
		return CUDA_SUCCESS;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		managed_set_accessed(memory, location, advice == CU_MEM_ADVISE_SET_ACCESSED_BY);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
	ENTER();
	LEAVE(managed_advise(address, bytes, advice, location_of(device)));
}

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	ENTER();
	LEAVE(managed_advise(address, bytes, advice, location));
}

/* As in the older attributes: a device, the CPU, or none. */
static int device_of(CUmemLocation location)
{
	if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return location.id;
	return location.type == CU_MEM_LOCATION_TYPE_NONE ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

static CUresult tell_accessed_by(const struct host_memory *memory, int *list, size_t bytes)
{
	size_t count = bytes / sizeof(*list), told = 0;

	if (!count || bytes % sizeof(*list))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < SOFT_GPUS_MAX && told < count; i++)
		if (memory->accessed_by & 1u << i)
			list[told++] = (int)i;
	if (memory->is_accessed_by_host && told < count)
		list[told++] = CU_DEVICE_CPU;
	while (told < count)
		list[told++] = CU_DEVICE_INVALID;
	return CUDA_SUCCESS;
}

static CUresult managed_tell(const struct host_memory *memory, CUmem_range_attribute attribute, void *to,
			     size_t bytes)
{
	int *answer = to;

	if (!to)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
		return tell_accessed_by(memory, to, bytes);
	if (bytes != sizeof(*answer))
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*answer = memory->is_read_mostly;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		*answer = device_of(memory->preferred);
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*answer = device_of(memory->last_prefetch);
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		*answer = (int)memory->preferred.type;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		*answer = memory->preferred.id;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		*answer = (int)memory->last_prefetch.type;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		*answer = memory->last_prefetch.id;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

EXPORT CUresult cuMemRangeGetAttribute(void *to, size_t to_bytes, CUmem_range_attribute attribute,
				       CUdeviceptr address, size_t bytes)
{
	struct host_memory *memory;
	CUresult result;

	ENTER();
	result = managed_find(address, bytes, &memory);
	LEAVE(result ? result : managed_tell(memory, attribute, to, to_bytes));
}

EXPORT CUresult cuMemRangeGetAttributes(void **to, size_t *to_bytes, CUmem_range_attribute *attributes,
					size_t count, CUdeviceptr address, size_t bytes)
{
	struct host_memory *memory;
	CUresult result;

	ENTER();
	result = to && to_bytes && attributes && count ? managed_find(address, bytes, &memory)
						       : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && !result; i++)
		result = managed_tell(memory, attributes[i], to[i], to_bytes[i]);
	LEAVE(result);
}

/* Host memory that the GPU accesses below 1 TiB: ring entries have 40-bit addresses. Addresses are unique in
 * the process, so that memory of one context can be mapped in another at the same address. */
#include "soft/cuda/core.h"

#define LOW_FIRST 0x1000000000ull
#define LOW_END 0xf000000000ull

static uint64_t low_next = LOW_FIRST;

/* Addresses are never reused: there is space for a million channels. */
static uint64_t take_address(uint64_t bytes)
{
	uint64_t address = low_next;

	if (bytes > LOW_END - low_next)
		return 0;
	low_next += bytes;
	return address;
}

CUresult low_new(struct context *context, uint64_t bytes, struct low *low)
{
	struct gpu *gpu = context->gpu;
	void *at = NULL;
	CUresult result;

	*low = (struct low){ .context = context };
	bytes = (bytes + SOFT_PAGE_BYTES - 1) / SOFT_PAGE_BYTES * SOFT_PAGE_BYTES;
	low->address = take_address(bytes);
	if (!low->address)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = port_memory(gpu, bytes, false, &low->memory);
	if (result)
		return result;
	result = port_map(gpu, low->memory, bytes, &at);
	if (!result) {
		low->at = at;
		low->bytes = bytes;
		result = port_map_gpu(gpu, context->space, low->memory, 0, bytes, low->address, true);
		if (result)
			low->address = 0;
	}
	if (result)
		low_free(low);
	return result;
}

void low_free(struct low *low)
{
	struct gpu *gpu;

	if (!low->memory)
		return;
	gpu = low->context->gpu;
	if (low->at) {
		if (low->address)
			port_unmap_gpu(gpu, low->context->space, low->memory, low->address);
		port_unmap(gpu, low->memory, low->bytes, low->at);
	}
	port_free(gpu->device, low->memory);
	*low = (struct low){ 0 };
}

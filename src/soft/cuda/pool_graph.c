/* Memory of allocation nodes. The address is assigned when the node is made, so that other nodes can use it.
 * Memory is mapped at the first launch, and stays for the next launch. */
#include <stdlib.h>

#include "soft/cuda/heap.h"
#include "soft/cuda/memory.h"

struct graph_memory {
	struct range *range;
	struct gpu *gpu;
	uint64_t address, bytes; /* bytes: rounded up */
	uint32_t memory;	 /* handle; 0: not yet allocated */
	unsigned uses;		 /* ops that refer to it */
	bool is_live;		 /* allocated and not freed */
	struct fence fence;	 /* not live: work that may still use it */
	struct graph_memory *next;
};
static struct graph_memory *all_graph_memory;
static struct usage {
	uint64_t used, used_high, reserved, reserved_high;
} usages[SOFT_GPUS_MAX];

static struct graph_memory *graph_memory_find(uint64_t address)
{
	struct graph_memory *found = all_graph_memory;

	while (found && found->address != address)
		found = found->next;
	return found;
}

static void usage_add(uint64_t *now, uint64_t *high, uint64_t bytes)
{
	*now += bytes;
	if (*high < *now)
		*high = *now;
}

CUresult graph_memory_new(struct context *context, uint64_t bytes, uint64_t *address)
{
	struct graph_memory *made = malloc(sizeof(*made));
	struct range range = { .bytes = bytes,
			       .kind = RANGE_DEVICE,
			       .flags = MEMORY_OF_GRAPH,
			       .gpu = context->gpu,
			       .owner = made };
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (!made)
		return result;
	*made = (struct graph_memory){ .gpu = context->gpu, .uses = 1, .next = all_graph_memory };
	made->bytes = (bytes + SOFT_VIDMEM_ROUND - 1) / SOFT_VIDMEM_ROUND * SOFT_VIDMEM_ROUND;
	if (bytes <= context->gpu->shape.mem_bytes)
		result = address_reserve(made->bytes, HEAP_BLOCK_BYTES, &made->address);
	if (result) {
		free(made);
		return result;
	}
	range.base = made->address;
	made->range = range_add(&range);
	if (!made->range) {
		address_release(made->address, made->bytes);
		free(made);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	all_graph_memory = made;
	*address = made->address;
	return CUDA_SUCCESS;
}

static CUresult graph_memory_back(struct graph_memory *memory)
{
	struct usage *usage = &usages[memory->gpu->index];
	CUresult result;

	if (memory->memory)
		return CUDA_SUCCESS;
	result = port_memory(memory->gpu, memory->bytes, true, &memory->memory);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		pool_trim_all(memory->gpu);
		result = port_memory(memory->gpu, memory->bytes, true, &memory->memory);
	}
	if (result) {
		memory->memory = 0;
		return result;
	}
	result = gpu_map_all(memory->gpu, NULL, memory->memory, memory->bytes, memory->address);
	if (result) {
		port_free(memory->gpu->device, memory->memory);
		memory->memory = 0;
		return result;
	}
	memory->range->memory = memory->memory;
	usage_add(&usage->reserved, &usage->reserved_high, memory->bytes);
	return CUDA_SUCCESS;
}

static bool graph_memory_is_idle(const struct graph_memory *memory)
{
	return !memory->is_live && fence_is_done(memory->fence);
}

static void graph_memory_unback(struct graph_memory *memory)
{
	if (!memory->memory)
		return;
	gpu_unmap_all(memory->gpu, NULL, memory->memory, memory->address);
	port_free(memory->gpu->device, memory->memory);
	memory->memory = memory->range->memory = 0;
	usages[memory->gpu->index].reserved -= memory->bytes;
}

/* Free it once no op refers to it and no work uses it. */
static void graph_memory_reap(struct graph_memory *memory)
{
	struct graph_memory **at = &all_graph_memory;

	if (memory->uses || !graph_memory_is_idle(memory))
		return;
	graph_memory_unback(memory);
	range_remove(memory->range);
	address_release(memory->address, memory->bytes);
	while (*at != memory)
		at = &(*at)->next;
	*at = memory->next;
	free(memory);
}

void graph_memory_keep(uint64_t address)
{
	struct graph_memory *memory = graph_memory_find(address);

	if (memory)
		memory->uses++;
}

void graph_memory_drop(uint64_t address)
{
	struct graph_memory *memory = graph_memory_find(address);

	if (!memory)
		return;
	memory->uses--;
	graph_memory_reap(memory);
}

bool graph_memory_is_live(uint64_t address)
{
	const struct graph_memory *memory = graph_memory_find(address);

	return memory && memory->is_live;
}

/* As in the real library, a graph cannot be launched again while its memory is allocated. */
CUresult op_submit_alloc(struct stream *stream, const struct op_alloc *alloc)
{
	struct graph_memory *memory = graph_memory_find(alloc->address);
	struct usage *usage;
	CUresult result;

	(void)stream; /* the memory can be mapped before the stream gets here */
	if (!memory || memory->is_live)
		return CUDA_ERROR_INVALID_VALUE;
	result = graph_memory_back(memory);
	if (result)
		return result;
	usage = &usages[memory->gpu->index];
	memory->is_live = true;
	usage_add(&usage->used, &usage->used_high, memory->bytes);
	return CUDA_SUCCESS;
}

CUresult graph_memory_free_after(struct range *range, struct fence fence)
{
	struct graph_memory *memory = range->owner;

	if (!memory->is_live)
		return CUDA_ERROR_INVALID_VALUE;
	memory->is_live = false;
	memory->fence = fence;
	usages[memory->gpu->index].used -= memory->bytes;
	graph_memory_reap(memory);
	return CUDA_SUCCESS;
}

CUresult graph_memory_free_now(struct range *range)
{
	return graph_memory_free_after(range, (struct fence){ 0 });
}

CUresult graph_memory_attach(struct context *context)
{
	CUresult result = CUDA_SUCCESS;

	for (struct graph_memory *memory = all_graph_memory; memory && !result; memory = memory->next)
		if (memory->gpu == context->gpu && memory->memory)
			result = port_map_gpu(context->gpu, context->space, memory->memory, 0, memory->bytes,
					      memory->address, true);
	return result;
}

void graph_memory_detach(struct context *context)
{
	for (struct graph_memory *memory = all_graph_memory; memory; memory = memory->next)
		if (memory->fence.channel && memory->fence.channel->context == context)
			memory->fence = (struct fence){ 0 };
	graph_memory_settle(context->gpu);
}

void graph_memory_settle(struct gpu *gpu)
{
	for (struct graph_memory *memory = all_graph_memory, *next; memory; memory = next) {
		next = memory->next;
		if (memory->gpu == gpu)
			graph_memory_reap(memory);
	}
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	struct gpu *gpu;

	ENTER();
	gpu = gpu_find(device);
	if (!gpu)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	for (struct graph_memory *memory = all_graph_memory; memory; memory = memory->next)
		if (memory->gpu == gpu && graph_memory_is_idle(memory))
			graph_memory_unback(memory);
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	struct gpu *gpu;
	uint64_t *answer = value;

	ENTER();
	gpu = gpu_find(device);
	if (!gpu)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	if (!answer || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	*answer = (const uint64_t[]){ usages[gpu->index].used, usages[gpu->index].used_high,
				      usages[gpu->index].reserved,
				      usages[gpu->index].reserved_high }[attribute];
	LEAVE(CUDA_SUCCESS);
}

/* The high-water marks can only be reset, by setting them to 0. */
EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	struct usage *usage;
	struct gpu *gpu;

	ENTER();
	gpu = gpu_find(device);
	if (!gpu)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	usage = &usages[gpu->index];
	if (!value || *(uint64_t *)value)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		usage->used_high = usage->used;
	else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		usage->reserved_high = usage->reserved;
	else
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	LEAVE(CUDA_SUCCESS);
}

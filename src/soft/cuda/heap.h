/* heap: device memory in blocks, each a memory object of the driver, split into spans. A context has a heap
 * for small allocations; each pool has one. Protected by the api lock; independent of ranges and handles. */
#ifndef BELFRY_SOFT_CUDA_HEAP_H
#define BELFRY_SOFT_CUDA_HEAP_H

#include "soft/cuda/core.h"

enum {
	HEAP_BLOCK_BYTES = 2 << 20,
	HEAP_ALIGN = 512, /* as in CUDA: programs rely on at least 256 */
};

struct heap_span {
	struct heap_block *block;
	uint64_t offset, bytes;
	bool is_used;
	struct fence fence;	/* of a free span: other channels can take it once this is done */
	struct heap_span *next; /* heap_block::spans, by offset, without gaps */
};
struct heap_block {
	struct heap *heap;
	uint64_t base, bytes;
	uint32_t memory; /* handle */
	bool is_whole;	 /* for one allocation, and freed with it */
	struct heap_span *spans;
	struct heap_block *next; /* heap::blocks */
};
struct heap {
	struct gpu *gpu;
	struct context *context; /* in which it is mapped; NULL: all contexts of the GPU */
	struct heap_block *blocks;
	uint64_t reserved_bytes, used_bytes;
};

static inline uint64_t heap_span_address(const struct heap_span *span)
{
	return span->block->base + span->offset;
}

/* Map memory in one context, or (only == NULL) in all contexts of the GPU. */
CUresult gpu_map_all(struct gpu *gpu, struct context *only, uint32_t memory, uint64_t bytes,
		     uint64_t address);
void gpu_unmap_all(struct gpu *gpu, struct context *only, uint32_t memory, uint64_t address);

/* Take a span of at least this many bytes: a free span, or one of a new block. A span freed on `channel` (or
 * NULL) can be taken at once for later work on that channel. */
CUresult heap_take(struct heap *heap, uint64_t bytes, struct channel *channel, struct heap_span **span);
CUresult heap_take_whole(struct heap *heap, uint64_t bytes, struct heap_span **span);
/* The span is free once the fence is done. */
void heap_give(struct heap_span *span, struct fence fence);
/* Return empty blocks to the driver while more than `keep_bytes` are held. */
void heap_trim(struct heap *heap, uint64_t keep_bytes);
void heap_wait(struct heap *heap);				  /* waits for all its fences */
void heap_forget(struct heap *heap, struct context *context);	  /* drops the fences of a context */
CUresult heap_attach(struct heap *heap, struct context *context); /* maps all blocks in a new context */
void heap_clear(struct heap *heap);				  /* frees all blocks, used or not */

#endif

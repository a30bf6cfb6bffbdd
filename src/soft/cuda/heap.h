/* heap: device memory in blocks, each one object of the driver's, cut into spans. A context has a heap for its small
 * allocations, every pool has one. Under the api lock; knows nothing of ranges and handles. */
#ifndef BELFRY_SOFT_CUDA_HEAP_H
#define BELFRY_SOFT_CUDA_HEAP_H

#include "soft/cuda/core.h"

enum {
	HEAP_BLOCK_BYTES = 2 << 20,
	HEAP_ALIGN = 512, /* as CUDA's: programs count on at least 256 */
};

struct heap_span {
	struct heap_block *block;
	uint64_t offset, bytes;
	bool is_used;
	struct fence fence;	/* not used: free for other channels once this is done */
	struct heap_span *next; /* heap_block::spans, by offset, without gaps */
};
struct heap_block {
	struct heap *heap;
	uint64_t base, bytes;
	uint32_t memory; /* handle */
	bool is_whole;	 /* of one allocation: nothing else is cut from it, and it goes when that goes */
	struct heap_span *spans;
	struct heap_block *next; /* heap::blocks */
};
struct heap {
	struct gpu *gpu;
	struct context *context; /* that sees it; NULL: all of the GPU's */
	struct heap_block *blocks;
	uint64_t reserved_bytes, used_bytes;
};

static inline uint64_t heap_span_address(const struct heap_span *span)
{
	return span->block->base + span->offset;
}

/* Memory in the address space of one context, or (NULL) of all of the GPU's. */
CUresult gpu_map_all(struct gpu *gpu, struct context *only, uint32_t memory, uint64_t bytes,
		     uint64_t address);
void gpu_unmap_all(struct gpu *gpu, struct context *only, uint32_t memory, uint64_t address);

/* A span of at least this many bytes: out of what is free, else of a new block. What was freed on `channel` (or NULL)
 * may be taken at once by what comes after on it. */
CUresult heap_take(struct heap *heap, uint64_t bytes, struct channel *channel, struct heap_span **span);
CUresult heap_take_whole(struct heap *heap, uint64_t bytes, struct heap_span **span);
/* Free once the fence is done. */
void heap_give(struct heap_span *span, struct fence fence);
/* Give empty blocks back to the driver as long as more than `keep_bytes` are held. */
void heap_trim(struct heap *heap, uint64_t keep_bytes);
void heap_wait(struct heap *heap);				  /* for every fence in it */
void heap_forget(struct heap *heap, struct context *context);	  /* fences of a context that goes */
CUresult heap_attach(struct heap *heap, struct context *context); /* map what there is, in one more context */
void heap_clear(struct heap *heap);				  /* free all blocks, used or not */

#endif

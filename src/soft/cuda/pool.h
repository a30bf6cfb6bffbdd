/* pool: memory pools of a GPU. CUmemoryPool is a struct pool; the handle is checked. */
#ifndef BELFRY_SOFT_CUDA_POOL_H
#define BELFRY_SOFT_CUDA_POOL_H

#include "soft/cuda/heap.h"

struct pool {
	struct heap heap;
	CUmemPoolProps props;
	bool is_default, is_destroyed; /* is_destroyed: freed with the last of its memory */
	int reuse[3]; /* CU_MEMPOOL_ATTR_REUSE_*: stored only; reuse is always opportunistic */
	uint64_t release_threshold, used_high, reserved_high;
	struct pool *next; /* list of all in pool.c */
};

CUresult pool_find(CUmemoryPool handle, struct pool **pool);
CUresult pool_default(struct gpu *gpu, struct pool **pool);
CUresult pool_current(struct gpu *gpu, struct pool **pool); /* used by cuMemAllocAsync */
void pool_set_current(struct gpu *gpu, struct pool *pool);
CUresult pool_new(struct gpu *gpu, const CUmemPoolProps *props, struct pool **pool);
void pool_destroy(struct pool *pool);

/* Allocate for later work of the stream. */
CUresult pool_alloc(struct pool *pool, uint64_t bytes, struct stream *stream, struct range **range);

#endif

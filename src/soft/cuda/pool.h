/* pool: memory pools of a GPU. CUmemoryPool is a struct pool, looked up before it is used. */
#ifndef BELFRY_SOFT_CUDA_POOL_H
#define BELFRY_SOFT_CUDA_POOL_H

#include "soft/cuda/heap.h"

struct pool {
	struct heap heap;
	CUmemPoolProps props;
	bool is_default, is_destroyed; /* destroyed: goes with the last of its memory */
	int reuse[3]; /* CU_MEMPOOL_ATTR_REUSE_*: remembered; opportunistic is what is done */
	uint64_t release_threshold, used_high, reserved_high;
	struct pool *next; /* pool.c's list of all */
};

CUresult pool_find(CUmemoryPool handle, struct pool **pool);
CUresult pool_default(struct gpu *gpu, struct pool **pool);
CUresult pool_current(struct gpu *gpu, struct pool **pool); /* that cuMemAllocAsync takes from */
void pool_set_current(struct gpu *gpu, struct pool *pool);
CUresult pool_new(struct gpu *gpu, const CUmemPoolProps *props, struct pool **pool);
void pool_destroy(struct pool *pool);

/* For what comes next in the stream. */
CUresult pool_alloc(struct pool *pool, uint64_t bytes, struct stream *stream, struct range **range);

#endif

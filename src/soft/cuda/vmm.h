/* vmm: memory, addresses and mappings, which the program makes separately. */
#ifndef BELFRY_SOFT_CUDA_VMM_H
#define BELFRY_SOFT_CUDA_VMM_H

#include "soft/cuda/core.h"

struct vmm_memory { /* CUmemGenericAllocationHandle; the handle is checked */
	struct gpu *gpu;
	uint64_t bytes;
	uint32_t memory; /* handle */
	CUmemAllocationProp props;
	unsigned handles, maps; /* references */
	struct vmm_memory *next;
};
struct vmm_map {
	struct range *range;
	struct vmm_memory *memory;
	uint64_t offset; /* in the memory */
	CUmemAccess_flags access;
	struct vmm_map *next; /* sorted by address */
};

/* vmm_memory.c */
CUresult vmm_find(CUmemGenericAllocationHandle handle, struct vmm_memory **memory);
void vmm_put(struct vmm_memory *memory); /* frees it if there are no references */
bool vmm_is_aligned(uint64_t value);

#endif

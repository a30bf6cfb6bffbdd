/* vmm: memory, addresses and which of the one lies at which of the other, each made by the program by itself. */
#ifndef BELFRY_SOFT_CUDA_VMM_H
#define BELFRY_SOFT_CUDA_VMM_H

#include "soft/cuda/core.h"

struct vmm_memory { /* CUmemGenericAllocationHandle; looked up before it is used */
	struct gpu *gpu;
	uint64_t bytes;
	uint32_t memory; /* handle */
	CUmemAllocationProp props;
	unsigned handles, maps; /* that keep it */
	struct vmm_memory *next;
};
struct vmm_map {
	struct range *range;
	struct vmm_memory *memory;
	uint64_t offset; /* in it */
	CUmemAccess_flags access;
	struct vmm_map *next; /* by address */
};

/* vmm_memory.c */
CUresult vmm_find(CUmemGenericAllocationHandle handle, struct vmm_memory **memory);
void vmm_put(struct vmm_memory *memory); /* frees it if nothing keeps it */
bool vmm_is_aligned(uint64_t value);

#endif

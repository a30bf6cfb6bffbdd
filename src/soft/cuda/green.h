/* green: parts of a GPU's SMs (device resources), and contexts beside the primary one whose streams run on those only.
 * Like on Hopper, a part has at least 8 SMs and a multiple of 8; on a GPU of fewer than 32 SMs, 2 and 2, so that there
 * is something to split. CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING makes it 2 anywhere. */
#ifndef BELFRY_SOFT_CUDA_GREEN_H
#define BELFRY_SOFT_CUDA_GREEN_H

#include "soft/cuda/core.h"

enum { GREEN_WORDS = SOFT_SMS_MAX / 64 };

struct sm_part {
	uint32_t gpu;  /* its index */
	bool is_split; /* came out of a split: not to be split again */
	uint64_t mask[GREEN_WORDS];
};
void sm_part_whole(const struct gpu *gpu, struct sm_part *part);
unsigned sm_part_count(const struct sm_part *part);
/* What the program holds: it carries the part in its private bytes. */
void resource_put(const struct sm_part *part, CUdevResource *resource);
CUresult resource_get(const CUdevResource *resource, struct sm_part *part);

/* A CUdevResourceDesc. The API has no way to give one back, so equal ones are the same. */
CUresult desc_make(const struct sm_part *part, CUdevResourceDesc *handle);
CUresult desc_find(CUdevResourceDesc handle, struct sm_part *part);

#endif

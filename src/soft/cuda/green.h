/* green: sets of SMs (device resources), and contexts whose streams run only on such a set. As on Hopper, a
 * part has at least 8 SMs, and a multiple of 8. On a GPU with fewer than 32 SMs the unit is 2, so that it can
 * be split. With CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING the unit is always 2. */
#ifndef BELFRY_SOFT_CUDA_GREEN_H
#define BELFRY_SOFT_CUDA_GREEN_H

#include "soft/cuda/core.h"

enum { GREEN_WORDS = SOFT_SMS_MAX / 64 };

struct sm_part {
	uint32_t gpu;  /* index */
	bool is_split; /* the result of a split: cannot be split again */
	uint64_t mask[GREEN_WORDS];
};
void sm_part_whole(const struct gpu *gpu, struct sm_part *part);
unsigned sm_part_count(const struct sm_part *part);
/* Convert to and from the program's structure, whose private bytes hold the part. */
void resource_put(const struct sm_part *part, CUdevResource *resource);
CUresult resource_get(const CUdevResource *resource, struct sm_part *part);

/* Make a CUdevResourceDesc. The API cannot free one, so equal parts share one. */
CUresult desc_make(const struct sm_part *part, CUdevResourceDesc *handle);
CUresult desc_find(CUdevResourceDesc handle, struct sm_part *part);

#endif

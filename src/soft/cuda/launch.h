/* Checks and parameters of launches, for files that make kernel ops without launching them. */
#ifndef BELFRY_SOFT_CUDA_LAUNCH_H
#define BELFRY_SOFT_CUDA_LAUNCH_H

#include "soft/cuda/core.h"

/* Check whether the kernel can run, on `stream` if that is not NULL; fills in a required block size. */
CUresult launch_check(struct op_kernel *kernel, const struct stream *stream);
/* Pack kernelParams or extra into param_bytes bytes. */
CUresult launch_gather(const struct ptx_kernel *kernel, void **list, void **extra, uint8_t *to);
CUresult launch_attribute(const CUlaunchAttribute *attribute, struct op_kernel *kernel, CUevent *event);

#endif

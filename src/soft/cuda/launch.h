/* Launches, for whoever makes kernel ops without launching them. */
#ifndef BELFRY_SOFT_CUDA_LAUNCH_H
#define BELFRY_SOFT_CUDA_LAUNCH_H

#include "soft/cuda/core.h"

/* Whether it can run, there if a stream is given; a required block size is filled in. */
CUresult launch_check(struct op_kernel *kernel, const struct stream *stream);
/* kernelParams or extra, packed into param_bytes bytes. */
CUresult launch_gather(const struct ptx_kernel *kernel, void **list, void **extra, uint8_t *to);
CUresult launch_attribute(const CUlaunchAttribute *attribute, struct op_kernel *kernel, CUevent *event);

#endif

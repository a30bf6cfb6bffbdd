/* Shared by device.c, device_attribute.c and primary.c. */
#ifndef BELFRY_SOFT_CUDA_DEVICE_H
#define BELFRY_SOFT_CUDA_DEVICE_H

#include "soft/cuda/core.h"

CUresult device_find(CUdevice device, struct gpu **gpu);
CUresult device_attribute(const struct gpu *gpu, CUdevice_attribute attribute, int *value);

static inline unsigned device_bus(const struct gpu *gpu)
{
	return gpu->minor + 1; /* as in the driver's CARD_INFO */
}

#endif

/* How busy the GPU is, by NVIDIA's own library, where it is installed. Private to the room. */
#ifndef BELFRY_WARDEN_NVML_H
#define BELFRY_WARDEN_NVML_H

#include "warden/device.h"

struct nvml;

/* minor: N of nvidiaN. NULL: no library, or one that cannot tell (before Hopper, or too old). */
struct nvml *nvml_open(unsigned minor);
void nvml_close(struct nvml *nvml);
/* See device_ops::load. */
int nvml_load(struct nvml *nvml, struct device_load *load);

#endif

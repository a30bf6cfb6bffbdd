/* The load and the sensors of the GPU, read from NVIDIA's own library if it is installed. Private to the module. */
#ifndef BELFRY_WARDEN_NVML_H
#define BELFRY_WARDEN_NVML_H

#include "warden/device.h"

struct nvml;

/* minor: N of nvidiaN. NULL: there is no library, or it does not know the GPU. */
struct nvml *nvml_open(unsigned minor);
void nvml_close(struct nvml *nvml);
/* See device_ops::load. -ENOTSUP: it cannot tell (before Hopper, or too old). */
int nvml_load(struct nvml *nvml, struct device_load *load);
/* See device_ops::sense. */
void nvml_sense(const struct nvml *nvml, struct device_sensors *sensors);

#endif

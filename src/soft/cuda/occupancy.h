/* How many blocks an SM holds. Values in, values out: the same rule as the hardware's (soft/hw/place.c). */
#ifndef BELFRY_SOFT_CUDA_OCCUPANCY_H
#define BELFRY_SOFT_CUDA_OCCUPANCY_H

#include <stdint.h>

struct occupancy { /* what a kernel needs, and what was set for it */
	uint32_t registers, shared_bytes, max_threads, max_dynamic_shared_bytes;
};
uint32_t occupancy_blocks(const struct occupancy *kernel, uint64_t threads, uint64_t dynamic_shared_bytes);
/* The most dynamic shared memory, of what it may have, with which this many blocks fit; UINT64_MAX: they never do. */
uint64_t occupancy_shared(const struct occupancy *kernel, uint64_t blocks, uint64_t threads);

#endif

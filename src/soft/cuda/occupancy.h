/* The number of blocks per SM. Pure functions, with the rules of the hardware (soft/hw/place.c). */
#ifndef BELFRY_SOFT_CUDA_OCCUPANCY_H
#define BELFRY_SOFT_CUDA_OCCUPANCY_H

#include <stdint.h>

struct occupancy { /* resources and attributes of a kernel */
	uint32_t registers, shared_bytes, max_threads, max_dynamic_shared_bytes;
};
uint32_t occupancy_blocks(const struct occupancy *kernel, uint64_t threads, uint64_t dynamic_shared_bytes);
/* The largest dynamic shared memory with which this many blocks fit; UINT64_MAX: they do not fit. */
uint64_t occupancy_shared(const struct occupancy *kernel, uint64_t blocks, uint64_t threads);

#endif

/* array: CUDA arrays. An array is plain device memory: its lines are contiguous. Protected by the api
 * lock. */
#ifndef BELFRY_SOFT_CUDA_ARRAY_H
#define BELFRY_SOFT_CUDA_ARRAY_H

#include "soft/cuda/core.h"
#include "soft/ptx/texture.h"

struct array { /* CUarray */
	CUDA_ARRAY3D_DESCRIPTOR shape;
	struct context *context;
	struct range *range;
	uint64_t base, pitch, slice;   /* bytes per line, bytes per plane */
	uint64_t width, height, depth; /* bytes, lines, planes; none is 0 */
	struct array *next;	       /* list of all arrays in array.c */
};
CUresult array_find(CUarray handle, struct array **array); /* checks the handle */

/* The bytes of a texel, and the format for kernels; 0: not a supported texture format. */
unsigned array_texel_bytes(CUarray_format format, unsigned channels, enum ptx_texture_format *to);

/* Device memory that the program cannot free or access by address. */
CUresult array_memory_new(struct context *context, uint64_t bytes, struct range **range);
/* Wait until the context is idle, then free. Releases the lock while waiting. The caller has removed the
 * object from its lists. */
void array_memory_free(struct range *range);

/* Called by memory_detach: free the arrays of a context; their memory is freed with the heap. */
void arrays_detach(struct context *context);
void textures_detach(struct context *context);

#endif

/* array: CUDA arrays, which are plain device memory here: lines one after the other, without gaps. Under the api lock. */
#ifndef BELFRY_SOFT_CUDA_ARRAY_H
#define BELFRY_SOFT_CUDA_ARRAY_H

#include "soft/cuda/core.h"
#include "soft/ptx/texture.h"

struct array { /* CUarray */
	CUDA_ARRAY3D_DESCRIPTOR shape;
	struct context *context;
	struct range *range;
	uint64_t base, pitch, slice;   /* bytes from line to line, from plane to plane */
	uint64_t width, height, depth; /* bytes, lines, planes; none is 0 */
	struct array *next;	       /* array.c's list of all */
};
CUresult array_find(CUarray handle, struct array **array); /* looked up, never trusted */

/* The bytes of a texel and how kernels name the format; 0: not a format of textures here. */
unsigned array_texel_bytes(CUarray_format format, unsigned channels, enum ptx_texture_format *to);

/* Device memory that the program can neither free nor name. */
CUresult array_memory_new(struct context *context, uint64_t bytes, struct range **range);
/* Until nothing uses the context any more, then freed; gives the lock up. The caller has made it impossible to find. */
void array_memory_free(struct range *range);

/* For memory_detach: those of the context go, their memory goes with its heap. */
void arrays_detach(struct context *context);
void textures_detach(struct context *context);

#endif

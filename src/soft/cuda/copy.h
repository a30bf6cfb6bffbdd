/* copy: how bytes get from one place to another. Lines and walks are plain data; the rest under the api lock. */
#ifndef BELFRY_SOFT_CUDA_COPY_H
#define BELFRY_SOFT_CUDA_COPY_H

#include "soft/cuda/core.h"

/* Part of a copy in two dimensions: lines of `width` bytes. */
struct lines {
	uint64_t src, dst, src_pitch, dst_pitch, width, height;
};
/* The parts of a copy that are no larger than this, in order. */
struct walk {
	struct op_copy copy;
	uint64_t x, y, z, bytes_max;
};
void walk_start(struct walk *walk, const struct op_copy *copy, uint64_t bytes_max);
bool walk_next(struct walk *walk, struct lines *lines);
void lines_copy_here(const struct lines *lines); /* by the CPU */

/* Where an end of a copy lies. */
enum place {
	PLACE_SEEN,	/* by the GPU of the context that asks */
	PLACE_PAGEABLE, /* by the CPU alone */
	PLACE_FOREIGN,	/* by the GPU of another context */
};
struct plan {
	enum place src, dst;
	bool has_host_end;		     /* what a synchronous copy must wait for */
	struct context *src_home, *dst_home; /* in which each can be copied; NULL: not by a GPU */
};
/* CUDA_ERROR_INVALID_VALUE if there is no such memory. */
CUresult copy_plan(struct context *context, const struct op_copy *copy, struct plan *plan);

/* On a channel, between begin and end: CHANNEL_COPY_WORDS. */
void lines_put(struct channel *channel, const struct lines *lines);

/* copy_stage.c: chunks of host memory between pageable memory and the GPU. */
enum { STAGE_BYTES = 1 << 20, STAGE_CHUNKS = 4, STAGE_INLINE_BYTES = 16 << 10 };
struct chunk {
	struct range *range;
	bool is_taken;
	struct fence fence;
	struct chunk *next; /* staging::chunks */
};
struct staging {
	struct chunk *chunks;
	unsigned chunk_count;
	struct channel *side; /* for copies of this library's own, beside all streams */
};
CUresult stage_in(struct stream *stream, const struct op_copy *copy);  /* returns when all is read */
CUresult stage_out(struct stream *stream, const struct op_copy *copy); /* returns when all is there */
/* Between any two places, beside all streams: returns when it is done. */
CUresult copy_beside(struct context *context, const struct op_copy *copy);

/* copy.c: at once if it can be, and with the same order and effects as in a stream. */
CUresult copy_run(struct stream *stream, const struct op_copy *copy, bool is_sync);

#endif

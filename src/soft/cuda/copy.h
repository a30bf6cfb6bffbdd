/* copy: transfers between memories. `lines` and `walk` are plain data; the rest is protected by the api
 * lock. */
#ifndef BELFRY_SOFT_CUDA_COPY_H
#define BELFRY_SOFT_CUDA_COPY_H

#include "soft/cuda/core.h"

/* A part of a copy in two dimensions: lines of `width` bytes. */
struct lines {
	uint64_t src, dst, src_pitch, dst_pitch, width, height;
};
/* Iterates over the parts of a copy, each at most `bytes_max` bytes, in order. */
struct walk {
	struct op_copy copy;
	uint64_t x, y, z, bytes_max;
};
void walk_start(struct walk *walk, const struct op_copy *copy, uint64_t bytes_max);
bool walk_next(struct walk *walk, struct lines *lines);
void lines_copy_here(const struct lines *lines); /* by the CPU */

/* The location of one end of a copy. */
enum place {
	PLACE_SEEN,	/* accessible to the GPU in this context */
	PLACE_PAGEABLE, /* accessible only to the CPU */
	PLACE_FOREIGN,	/* accessible to the GPU in another context */
};
struct plan {
	enum place src, dst;
	bool has_host_end; /* a synchronous copy must wait */
	/* The contexts in which each end can be copied; NULL: not by a GPU. */
	struct context *src_home, *dst_home;
};
/* Returns CUDA_ERROR_INVALID_VALUE if there is no such memory. */
CUresult copy_plan(struct context *context, const struct op_copy *copy, struct plan *plan);

/* Write to a channel between begin and end; takes CHANNEL_COPY_WORDS words. */
void lines_put(struct channel *channel, const struct lines *lines);

/* copy_stage.c: chunks of host memory for transfers between pageable memory and the GPU. */
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
	struct channel *side; /* for internal copies, independent of all streams */
};
CUresult stage_in(struct stream *stream, const struct op_copy *copy);  /* until the source is read */
CUresult stage_out(struct stream *stream, const struct op_copy *copy); /* until it is complete */
/* Copy between any two locations, independent of all streams. Returns when the copy is complete. */
CUresult copy_beside(struct context *context, const struct op_copy *copy);

/* copy.c: copy directly if possible, with the same order and effects as in a stream. */
CUresult copy_run(struct stream *stream, const struct op_copy *copy, bool is_sync);

#endif

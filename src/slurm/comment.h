/* The administrator's comment of a job: one part for each node of the job, in addition to
 * what other programs have written there. Pure. */
#ifndef BELFRY_SLURM_COMMENT_H
#define BELFRY_SLURM_COMMENT_H

#include <stdint.h>

/* What a job has used on a node: GPU time and the most memory at a time. */
struct comment_use {
	uint64_t gpu_ns, most_bytes;
};

/* Adds the part of this node to the comment, or replaces it. `old` may be NULL. The caller frees the result. NULL: out of
 * memory. */
char *comment_merge(const char *old, const char *node, const struct comment_use *use);

#endif

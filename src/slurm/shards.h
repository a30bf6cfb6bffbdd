/* What Slurm has granted a job on a node, in shards, and what that is in memory and time of a GPU. Pure. */
#ifndef BELFRY_SLURM_SHARDS_H
#define BELFRY_SLURM_SHARDS_H

#include <stdint.h>

#include "base/error.h"
#include "client/spec.h"

struct shards_grant {
	uint32_t shards, gpus; /* gpus: whole ones */
	uint32_t spread;       /* over how many GPUs; 0: not known */
	int gpu;	       /* the first of them, as Slurm counts; -1: not known */
};

struct shards_rule {
	uint32_t per_gpu;   /* shards of one GPU */
	uint64_t mem_bytes; /* of one shard */
};

/* Reads the generic resources of a job on a node, or of a node, as Slurm writes them: "gpu:a100:1(IDX:2),shard:8(IDX:0)",
 * "shard:8(0/16,8/16)". Other resources are ignored. */
int shards_read(const char *gres, struct shards_grant *grant, struct bf_error *err);
/* The grant in shards. A whole GPU counts as rule->per_gpu shards. */
uint64_t shards_count(const struct shards_rule *rule, const struct shards_grant *grant);
/* Checks the parts of *spec that the user has given against the grant, and sets memory and time where they were not given.
 * The message of a refusal has the arithmetic. */
int shards_fill(const struct shards_rule *rule, const struct shards_grant *grant, struct spec *spec,
		uint32_t *parts, struct bf_error *err);

#endif

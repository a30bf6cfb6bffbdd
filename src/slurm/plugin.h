/* slurm: jobs of Slurm on vGPUs. A SPANK plugin that Slurm's programs load: it makes a vGPU for a job from the shards that
 * Slurm has granted, attaches the tasks of the job to it, and removes it with the job. It never prints, except through Slurm's
 * own functions, and exports no names but SPANK's. */
#ifndef BELFRY_SLURM_PLUGIN_H
#define BELFRY_SLURM_PLUGIN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/protocol.h"
#include "client/talk.h"
#include "slurm/comment.h"
#include "slurm/shards.h"

/* The arguments of the plugin in plugstack.conf. */
struct config {
	const char *socket, *library; /* of belfryd; the folder of the software GPU's libcuda.so.1 */
	struct shards_rule rule; /* zeros: from the node's generic resources, and from the GPU's memory */
	bool writes_comment;
};
int config_read(struct config *config, int count, char *const words[], struct bf_error *err);

/* What the user has asked for. */
struct wish {
	struct spec spec;
	uint32_t parts;
	char name[SPEC_NAME_MAX + 1]; /* --vgpu; empty: one for the job */
};

/* job.c: what slurmctld knows of a job. */
struct job {
	uint32_t id;
	uid_t uid;
	/* The name of the host. For a job on one node: the name of the node, after slurmctld was asked. */
	char node[256];
};
int job_read_grant(struct job *job, struct shards_grant *grant, struct bf_error *err);
/* The shards of one GPU of the node. */
int job_read_node(const char *node, uint32_t *per_gpu, struct bf_error *err);
/* Whether the job has ended, or is not known any more. False if slurmctld does not answer. */
bool job_has_ended(uint32_t id);
int job_write_use(struct job *job, const struct comment_use *use, struct bf_error *err);

/* grant.c: the vGPU of a job at belfryd. */
/* Finds or makes the vGPU and writes its name. */
int grant_take(const struct config *config, const struct wish *wish, struct job *job, char *name,
	       struct bf_error *err);
/* Attaches this process, which is still root and becomes the user later, and all its descendants. *gpu: the GPU of the vGPU. */
int grant_attach(const struct config *config, const char *name, uid_t user, const char *id,
		 struct protocol_gpu *gpu, struct bf_error *err);
int grant_read_use(const struct config *config, const char *name, struct comment_use *use,
		   struct bf_error *err);
/* Removes the vGPU that an earlier start of the job, or an earlier job with this number, has left. */
int grant_clear(const struct config *config, uint32_t job, struct bf_error *err);
/* Removes the vGPU of the job, and those of jobs that have ended while belfryd did not run. */
int grant_remove(const struct config *config, uint32_t job, struct bf_error *err);

#endif

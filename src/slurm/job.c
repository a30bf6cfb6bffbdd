/* What slurmctld knows of a job. The functions of libslurm are those of the program that has loaded the plugin. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "slurm/plugin.h"

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
typedef hostlist_t *job_hosts;
#else
typedef hostlist_t job_hosts;
#endif

static void free_answer(job_info_msg_t **answer)
{
	if (*answer)
		slurm_free_job_info_msg(*answer);
}
#define cleanup_answer __attribute__((cleanup(free_answer)))

/* The job, in an answer that the caller frees. NULL: err has the reason, with the code ESRCH if slurmctld does not know the
 * job, or no longer knows it. */
static const job_info_t *load(uint32_t id, job_info_msg_t **answer, struct bf_error *err)
{
	*answer = NULL;
	if (slurm_load_job(answer, id, SHOW_DETAIL) || !*answer) {
		int code = slurm_get_errno();

		*answer = NULL;
		bf_fail(err, code == ESLURM_INVALID_JOB_ID ? ESRCH : EIO,
			"job %u: slurmctld does not tell of it: %s", id, slurm_strerror(code));
		return NULL;
	}
	for (uint32_t i = 0; i < (*answer)->record_count; i++)
		if ((*answer)->job_array[i].job_id == id)
			return &(*answer)->job_array[i];
	bf_fail(err, ESRCH, "job %u: slurmctld does not know it", id);
	return NULL;
}

/* The index of the node among the nodes of the job. Negative: it is not one of them. */
static int place_of(const job_info_t *info, const char *node)
{
	job_hosts hosts;
	int place;

	if (info->gres_detail_cnt == 1)
		return 0;
	hosts = slurm_hostlist_create(info->nodes ? info->nodes : "");
	if (!hosts)
		return -1;
	place = slurm_hostlist_find(hosts, node);
	slurm_hostlist_destroy(hosts);
	return place;
}

/* A plugin in slurmstepd cannot ask for the name of its node, which can differ from the name of the host. A job on one node
 * has it. */
static void name_node(const job_info_t *info, char *node, size_t room)
{
	if (info->num_nodes == 1 && info->nodes)
		snprintf(node, room, "%s", info->nodes);
}

int job_read_grant(struct job *job, struct shards_grant *grant, struct bf_error *err)
{
	cleanup_answer job_info_msg_t *answer = NULL;
	const job_info_t *info = load(job->id, &answer, err);
	int place;

	*grant = (struct shards_grant){ .gpu = -1 };
	if (!info)
		return -err->code;
	name_node(info, job->node, sizeof(job->node));
	place = place_of(info, job->node);
	if (place < 0 || (uint32_t)place >= info->gres_detail_cnt || !info->gres_detail_str[place])
		return 0;
	return shards_read(info->gres_detail_str[place], grant, err);
}

int job_read_node(const char *node, uint32_t *per_gpu, struct bf_error *err)
{
	cleanup_free char *name = strdup(node);
	node_info_msg_t *answer = NULL;
	struct shards_grant all = { 0 };
	int rc;

	if (!name)
		return bf_fail(err, ENOMEM, "out of memory");
	if (slurm_load_node_single(&answer, name, SHOW_ALL))
		return bf_fail(err, EIO, "node %s: slurmctld does not tell of it: %s", node,
			       slurm_strerror(slurm_get_errno()));
	if (answer->record_count != 1 || !answer->node_array[0].gres)
		rc = bf_fail(err, ENOENT, "node %s: it has no generic resources in slurm.conf", node);
	else
		rc = shards_read(answer->node_array[0].gres, &all, err);
	slurm_free_node_info_msg(answer);
	if (rc)
		return rc;
	if (!all.gpus || !all.shards || all.shards % all.gpus)
		return bf_fail(
			err, EINVAL,
			"node %s: %u shards of %u GPUs; set shards= in plugstack.conf to the shards of one "
			"GPU",
			node, all.shards, all.gpus);
	*per_gpu = all.shards / all.gpus;
	return 0;
}

/* A job that waits again, after a requeue, has not ended: its next start uses the same name. */
bool job_has_ended(uint32_t id)
{
	cleanup_answer job_info_msg_t *answer = NULL;
	struct bf_error err = { 0 };
	const job_info_t *info = load(id, &answer, &err);

	if (!info)
		return err.code == ESRCH;
	return (info->job_state & JOB_STATE_BASE) >= JOB_COMPLETE && !(info->job_state & JOB_COMPLETING);
}

int job_write_use(struct job *job, const struct comment_use *use, struct bf_error *err)
{
	cleanup_answer job_info_msg_t *answer = NULL;
	cleanup_free char *comment = NULL;
	const job_info_t *info = load(job->id, &answer, err);
	job_desc_msg_t change;

	if (!info)
		return -err->code;
	name_node(info, job->node, sizeof(job->node));
	comment = comment_merge(info->admin_comment, job->node, use);
	if (!comment)
		return bf_fail(err, ENOMEM, "out of memory");
	if (info->admin_comment && !strcmp(info->admin_comment, comment))
		return 0;
	slurm_init_job_desc_msg(&change);
	change.job_id = job->id;
	change.admin_comment = comment;
	if (slurm_update_job(&change))
		return bf_fail(err, EIO, "job %u: its comment cannot be written: %s", job->id,
			       slurm_strerror(slurm_get_errno()));
	return 0;
}

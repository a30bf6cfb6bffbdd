/* SPANK's functions. Slurm calls them in srun, sbatch and salloc (options), in slurmstepd (steps and tasks), and in the
 * process that runs the epilog. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "slurm/plugin.h"

SPANK_PLUGIN(belfry, 1)

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(20, 11, 0)
#error "Slurm 20.11 or later is needed"
#endif

enum { NUMBER_ROOM = 24, VALUE_ROOM = 65536 };

/* Of this process: srun, or one step of one job on this node. */
static struct {
	struct config config;
	struct wish wish;
	struct job job;
	uint32_t step;
	char name[SPEC_NAME_MAX + 1]; /* of the step's vGPU; empty: it has none */
	struct bf_error failure;      /* a text: the tasks must not start */
} plugin;

/* srun refuses a wrong option. slurmstepd can receive one that srun has not checked. An error there would count as an error of
 * the node, so the tasks fail instead. */
static int refuse(bool is_remote, const char *option, const char *value, const char *why)
{
	struct bf_error err;

	bf_fail(&err, EINVAL, "%s=%.100s: %s", option, value, why);
	if (is_remote)
		plugin.failure = err;
	else
		slurm_error("belfry: %s", err.text);
	return is_remote ? 0 : -1;
}

static int take_mem(int val, const char *value, int remote)
{
	struct bf_error err;

	(void)val;
	return spec_parse(&plugin.wish.spec, &plugin.wish.parts, "mem", value, &err)
		       ? refuse(remote, "--vgpu-mem", value, err.text)
		       : 0;
}

static int take_time(int val, const char *value, int remote)
{
	struct bf_error err;

	(void)val;
	return spec_parse(&plugin.wish.spec, &plugin.wish.parts, "time", value, &err)
		       ? refuse(remote, "--vgpu-time", value, err.text)
		       : 0;
}

static int take_name(int val, const char *value, int remote)
{
	struct bf_error err;

	(void)val;
	if (spec_check_name(value, &err))
		return refuse(remote, "--vgpu", value, err.text);
	snprintf(plugin.wish.name, sizeof(plugin.wish.name), "%s", value);
	return 0;
}

static struct spank_option options[] = {
	{ (char *)"vgpu-mem", (char *)"SIZE",
	  (char *)"memory of the job's vGPU, such as 8G (default: by its shards)", 1, 0, take_mem },
	{ (char *)"vgpu-time", (char *)"REQUEST[:LIMIT]",
	  (char *)"share of the GPU's time in percent (default: by its shards)", 1, 1, take_time },
	{ (char *)"vgpu", (char *)"NAME", (char *)"use this existing vGPU instead of one for the job", 1, 2,
	  take_name },
};

int slurm_spank_init(spank_t spank, int count, char **words)
{
	struct bf_error err;

	plugin.wish.spec = spec_default;
	if (config_read(&plugin.config, count, words, &err)) {
		slurm_error("belfry: %s", err.text);
		return -1;
	}
	if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_ALLOCATOR && !spank_remote(spank))
		return 0;
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

static void read_job(spank_t spank)
{
	struct job *job = &plugin.job;

	spank_get_item(spank, S_JOB_ID, &job->id);
	spank_get_item(spank, S_JOB_UID, &job->uid);
	spank_get_item(spank, S_JOB_STEPID, &plugin.step);
	gethostname(job->node, sizeof(job->node) - 1);
	job->node[strcspn(job->node, ".")] = 0;
}

/* Slurm sets the variable for the tasks of a job with shards. The user can set it, too: then slurmctld reports no shards, and
 * the step has no vGPU. */
static bool has_shards(spank_t spank)
{
	char number[NUMBER_ROOM];

	return spank_getenv(spank, "SLURM_SHARDS_ON_NODE", number, sizeof(number)) == ESPANK_SUCCESS &&
	       strcmp(number, "0") != 0;
}

/* An error here would count as an error of the node, and drain it. So the tasks fail instead, with the reason on their
 * standard error. */
static void take_vgpu(spank_t spank)
{
	const struct wish *wish = &plugin.wish;
	struct bf_error err = { 0 };
	int rc;

	read_job(spank);
	if (plugin.step == SLURM_EXTERN_CONT || (!wish->parts && !wish->name[0] && !has_shards(spank)))
		return;
	rc = grant_take(&plugin.config, wish, &plugin.job, plugin.name, &err);
	if (!rc)
		return;
	plugin.name[0] = 0;
	if (rc != -ENODATA)
		plugin.failure = err;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **words)
{
	bool is_remote = spank_remote(spank) == 1;

	(void)count, (void)words;
	if (plugin.wish.name[0] && plugin.wish.parts)
		return refuse(is_remote, "--vgpu", plugin.wish.name,
			      "this vGPU has memory and time already; leave out --vgpu-mem and --vgpu-time");
	if (is_remote && !plugin.failure.text[0])
		take_vgpu(spank);
	return 0;
}

static void name_task(spank_t spank, char *to, size_t room)
{
	uint32_t task = 0;
	char step[NUMBER_ROOM];

	spank_get_item(spank, S_TASK_GLOBAL_ID, &task);
	if (plugin.step == SLURM_BATCH_SCRIPT)
		snprintf(step, sizeof(step), "batch");
	else if (plugin.step == SLURM_INTERACTIVE_STEP)
		snprintf(step, sizeof(step), "interactive");
	else
		snprintf(step, sizeof(step), "%u", plugin.step);
	snprintf(to, room, "%u.%s.%u", plugin.job.id, step, task);
}

/* The software GPU: its library, and its socket for programs that belfry has not started. */
static int use_soft(spank_t spank, const struct protocol_gpu *gpu, struct bf_error *err)
{
	static char old[VALUE_ROOM], both[2 * VALUE_ROOM];
	char guest[sizeof(gpu->folder) + 8];
	const char *library = plugin.config.library;
	bool has_old = spank_getenv(spank, "LD_LIBRARY_PATH", old, sizeof(old)) == ESPANK_SUCCESS && old[0];

	snprintf(guest, sizeof(guest), "%s/guest", gpu->folder);
	/* A step inherits the environment of the batch script. */
	if (has_old && !strncmp(old, library, strlen(library)) && strchr(":", old[strlen(library)]))
		snprintf(both, sizeof(both), "%s", old);
	else
		snprintf(both, sizeof(both), "%s%s%s", library, has_old ? ":" : "", has_old ? old : "");
	if (spank_setenv(spank, "BELFRY_SOFT_DIR", guest, 1) != ESPANK_SUCCESS ||
	    spank_setenv(spank, "LD_LIBRARY_PATH", both, 1) != ESPANK_SUCCESS)
		return bf_fail(err, ENOMEM, "the environment of the task cannot be set");
	return 0;
}

/* Called in the process of the task, which is still root. */
int slurm_spank_task_init_privileged(spank_t spank, int count, char **words)
{
	char id[PROTOCOL_ID_MAX + 1];
	struct bf_error err = { 0 };
	struct protocol_gpu gpu;
	int rc;

	(void)count, (void)words;
	if (!plugin.name[0] || plugin.failure.text[0])
		return 0;
	name_task(spank, id, sizeof(id));
	rc = grant_attach(&plugin.config, plugin.name, plugin.job.uid, id, &gpu, &err);
	if (!rc && gpu.kind == PROTOCOL_GPU_SOFT)
		rc = use_soft(spank, &gpu, &err);
	if (rc)
		bf_fail(&plugin.failure, -rc, "vGPU %s: %s", plugin.name,
			err.text[0] ? err.text : strerror(-rc));
	return 0;
}

/* Called in the process of the task, as the user. Its standard error is the task's. */
int slurm_spank_task_init(spank_t spank, int count, char **words)
{
	int task = 0;

	(void)count, (void)words;
	if (!plugin.failure.text[0])
		return 0;
	spank_get_item(spank, S_TASK_ID, &task);
	if (!task)
		slurm_error("belfry: %s", plugin.failure.text);
	return -1;
}

static bool is_last_task(spank_t spank)
{
	static uint32_t ended;
	uint32_t count = 0;

	return spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &count) == ESPANK_SUCCESS && ++ended >= count;
}

/* slurmctld refuses changes of a job that has ended. So the use is written before srun learns that the tasks have ended. */
int slurm_spank_task_exit(spank_t spank, int count, char **words)
{
	struct comment_use use = { 0 };
	struct bf_error err = { 0 };
	int rc;

	(void)count, (void)words;
	if (!plugin.name[0] || plugin.wish.name[0] || !plugin.config.writes_comment || !is_last_task(spank))
		return 0;
	rc = grant_read_use(&plugin.config, plugin.name, &use, &err);
	if (!rc)
		rc = job_write_use(&plugin.job, &use, &err);
	if (rc)
		slurm_info("belfry: %s", err.text);
	return 0;
}

/* Slurm does not call slurm_spank_init() in the processes of prolog and epilog. An error would drain the node, so there is
 * none. */
static void at_job(spank_t spank, int count, char **words,
		   int (*do_it)(const struct config *config, uint32_t job, struct bf_error *err))
{
	struct config config;
	struct bf_error err = { 0 };
	uint32_t id = 0;

	if (spank_get_item(spank, S_JOB_ID, &id) != ESPANK_SUCCESS)
		return;
	if (config_read(&config, count, words, &err) || do_it(&config, id, &err))
		slurm_info("belfry: job %u: %s", id, err.text);
}

/* Called on the node before the first step of the job. A vGPU of its name is left over: the epilog of an earlier start did
 * not reach belfryd. The job must not get its limits. */
int slurm_spank_job_prolog(spank_t spank, int count, char **words)
{
	at_job(spank, count, words, grant_clear);
	return 0;
}

/* If belfryd does not run, the next job on the node removes the vGPU. */
int slurm_spank_job_epilog(spank_t spank, int count, char **words)
{
	at_job(spank, count, words, grant_remove);
	return 0;
}

/* The vGPU of a job at belfryd. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/own.h"
#include "base/units.h"
#include "client/gather.h"
#include "slurm/plugin.h"
#include "warden/filter.h"

/* PATIENCE_S: how long a step waits for belfryd, which may be restarting. END_MS: the limit of one request at the end of a
 * job, which must not take long. */
enum { PATIENCE_S = 10, AGAIN_MS = 100, END_MS = 5000, SIZE_ROOM = 32, TIMES = 3 };

/* Whether a later attempt may succeed. -ENOENT does not count: the vGPU does not exist. */
static bool may_come_back(int rc)
{
	return rc == -ECONNREFUSED || rc == -EAGAIN || rc == -ECONNRESET;
}

/* Waits before the next attempt. False: the time is over. */
static bool waits_again(uint64_t until_ns)
{
	return bf_now_ns() < until_ns && poll(NULL, 0, AGAIN_MS) <= 0;
}

static uint64_t in_seconds(unsigned seconds)
{
	return bf_now_ns() + seconds * 1000000000ull;
}

static void put_json(struct json_object **object)
{
	json_object_put(*object);
}
#define cleanup_json __attribute__((cleanup(put_json)))

/* -ENOENT: there is no such vGPU. */
static int report(const struct config *config, const char *name, struct json_object **top,
		  struct bf_error *err)
{
	const struct talk_way way = { .socket = config->socket };
	uint64_t until_ns = in_seconds(PATIENCE_S);
	int rc = gather_report(&way, name, top, err);

	while (may_come_back(rc) && waits_again(until_ns)) {
		json_object_put(*top);
		rc = gather_report(&way, name, top, err);
	}
	return rc;
}

static struct json_object *first_of(struct json_object *top, const char *list)
{
	struct json_object *at = gather_at(top, list);

	return json_object_is_type(at, json_type_array) && json_object_array_length(at)
		       ? json_object_array_get_idx(at, 0)
		       : NULL;
}

static uint64_t number_of(struct json_object *from, const char *path)
{
	return json_object_get_uint64(gather_at(from, path));
}

static uint32_t ppm_of(struct json_object *from, const char *path)
{
	return (uint32_t)(json_object_get_double(gather_at(from, path)) * SPEC_WHOLE_PPM + 0.5);
}

/* The first step of the job has made the vGPU. A later step cannot have other limits. */
static int check_wish(struct json_object *vgpu, const struct wish *wish, const char *name,
		      struct bf_error *err)
{
	uint64_t mem_bytes = number_of(vgpu, "mem.limit");
	struct spec there = { .request_ppm = ppm_of(vgpu, "time.request"),
			      .limit_ppm = ppm_of(vgpu, "time.limit") };
	char wanted[SIZE_ROOM], has[SIZE_ROOM];

	if (wish->parts & SPEC_MEM && wish->spec.mem_bytes != mem_bytes)
		return bf_fail(
			err, EINVAL,
			"--vgpu-mem: a step cannot have %s: the job's vGPU %s has %s; give the option to "
			"sbatch or salloc, or to the first srun",
			bf_format_size(wish->spec.mem_bytes, wanted, sizeof(wanted)), name,
			bf_format_size(mem_bytes, has, sizeof(has)));
	if (wish->parts & SPEC_TIME &&
	    (wish->spec.request_ppm != there.request_ppm || wish->spec.limit_ppm != there.limit_ppm))
		return bf_fail(
			err, EINVAL,
			"--vgpu-time: a step cannot have %s: the job's vGPU %s has %s; give the option to "
			"sbatch or salloc, or to the first srun",
			spec_format_time(&wish->spec, wanted, sizeof(wanted)), name,
			spec_format_time(&there, has, sizeof(has)));
	return 0;
}

static int remove_one(const struct config *config, const char *name, unsigned limit_ms, struct bf_error *err)
{
	const struct talk_way way = { .socket = config->socket, .limit_ms = limit_ms };
	struct protocol_request request = talk_request(PROTOCOL_REMOVE, name);
	struct protocol_reply reply;

	request.flags |= PROTOCOL_FORCE;
	return talk_by(&way, &request, &reply, NULL, err);
}

/* belfryd takes this request from root, so the rights of the user are checked here. -ENOENT: there is no such vGPU. */
static int use_existing(const struct config *config, const struct wish *wish, const struct job *job,
			const char *name, struct bf_error *err)
{
	cleanup_json struct json_object *top = NULL;
	int rc = report(config, name, &top, err);
	struct json_object *vgpu = rc ? NULL : first_of(top, "vgpus");
	uint64_t owner;

	if (rc)
		return rc;
	if (!vgpu)
		return bf_fail(err, ENOENT, "%s: no vGPU of this name", name);
	owner = number_of(vgpu, "owner");
	/* Only root creates vGPUs with such a name. This one is left over from a job of another user with the same number:
	 * Slurm has started to count its jobs from 1 again. */
	if (!wish->name[0] && owner != job->uid) {
		rc = remove_one(config, name, END_MS, err);
		return rc ? rc : -ENOENT;
	}
	if (owner != job->uid && !json_object_get_boolean(gather_at(vgpu, "public")))
		return bf_fail(err, EPERM, "%s: belongs to user %" PRIu64 ", and the job to user %u", name,
			       owner, job->uid);
	return check_wish(vgpu, wish, name, err);
}

/* The GPU that Slurm has chosen. If belfryd serves one GPU only, it is that one. */
static int choose_gpu(struct json_object *top, const struct shards_grant *grant, struct json_object **gpu,
		      struct bf_error *err)
{
	struct json_object *gpus = gather_at(top, "gpus");
	size_t count = json_object_is_type(gpus, json_type_array) ? json_object_array_length(gpus) : 0;

	for (size_t i = 0; i < count; i++) {
		*gpu = json_object_array_get_idx(gpus, i);
		if (count == 1 || number_of(*gpu, "index") == (uint64_t)grant->gpu)
			return 0;
	}
	return bf_fail(err, ENODEV, "Slurm has granted GPU %d of this node; belfryd serves %zu others",
		       grant->gpu, count);
}

static int fill_rule(const struct config *config, const struct job *job, struct json_object *gpu,
		     struct shards_rule *rule, struct bf_error *err)
{
	int rc = 0;

	*rule = config->rule;
	if (!rule->per_gpu)
		rc = job_read_node(job->node, &rule->per_gpu, err);
	if (!rc && !rule->mem_bytes)
		rule->mem_bytes = number_of(gpu, "mem.total") / rule->per_gpu;
	return rc;
}

/* Removes the vGPUs of jobs that ended while belfryd or this node did not run. */
static void sweep(const struct config *config, struct json_object *top, uint32_t but)
{
	struct json_object *vgpus = gather_at(top, "vgpus");
	size_t count = json_object_is_type(vgpus, json_type_array) ? json_object_array_length(vgpus) : 0;

	for (size_t i = 0; i < count; i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);
		const char *name = gather_text(vgpu, "name", "");
		long id;

		if (!spec_is_of_job(name) ||
		    bf_parse_number("job", name + strlen(SPEC_JOB_PREFIX), 1, UINT32_MAX, &id, NULL) ||
		    (uint32_t)id == but || !job_has_ended((uint32_t)id))
			continue;
		remove_one(config, name, END_MS, NULL);
	}
}

static int create(const struct config *config, const struct job *job, const char *name,
		  struct json_object *gpu, const struct spec *spec, uint32_t parts, struct bf_error *err)
{
	const struct talk_way way = { .socket = config->socket };
	struct protocol_request request = talk_request(PROTOCOL_CREATE, name);
	uint64_t until_ns = in_seconds(PATIENCE_S);
	struct protocol_reply reply;
	int rc;

	request.flags |= PROTOCOL_OWNER;
	request.owner = job->uid;
	request.gpu = gather_gpu(gpu);
	request.spec = *spec;
	request.parts = parts;
	/* If belfryd ended after it had made the vGPU, the answer is -EEXIST. */
	do
		rc = talk_by(&way, &request, &reply, NULL, err);
	while (may_come_back(rc) && waits_again(until_ns));
	return rc;
}

static int make(const struct config *config, const struct wish *wish, struct job *job, const char *name,
		struct bf_error *err)
{
	cleanup_json struct json_object *top = NULL;
	struct json_object *gpu = NULL;
	struct spec spec = wish->spec;
	uint32_t parts = wish->parts;
	struct shards_grant grant;
	struct shards_rule rule;
	int rc = job_read_grant(job, &grant, err);

	if (rc)
		return rc;
	if (!grant.shards && !wish->parts) /* only the environment has shards */
		return bf_fail(err, ENODATA, "the job has no shards on this node");
	rc = report(config, NULL, &top, err);
	if (rc)
		return rc;
	sweep(config, top, job->id);
	rc = choose_gpu(top, &grant, &gpu, err);
	if (!rc)
		rc = fill_rule(config, job, gpu, &rule, err);
	if (!rc)
		rc = shards_fill(&rule, &grant, &spec, &parts, err);
	return rc ? rc : create(config, job, name, gpu, &spec, parts, err);
}

int grant_take(const struct config *config, const struct wish *wish, struct job *job, char *name,
	       struct bf_error *err)
{
	int rc;

	if (wish->name[0]) {
		snprintf(name, SPEC_NAME_MAX + 1, "%s", wish->name);
		return use_existing(config, wish, job, name, err);
	}
	snprintf(name, SPEC_NAME_MAX + 1, SPEC_JOB_PREFIX "%u", job->id);
	/* Two steps may begin at the same time. */
	for (int i = 0; i < TIMES; i++) {
		rc = use_existing(config, wish, job, name, err);
		if (rc != -ENOENT)
			return rc;
		rc = make(config, wish, job, name, err);
		if (rc != -EEXIST)
			return rc;
	}
	return rc;
}

/* *listener: -1 until there is one. The filter is installed once: it cannot be removed. */
static int attach_once(const struct config *config, const char *name, uid_t user,
		       const struct protocol_attached *attached, int *listener, struct protocol_gpu *gpu,
		       struct bf_error *err)
{
	const struct talk_way way = { .socket = config->socket };
	struct protocol_request request = talk_request(PROTOCOL_ATTACH, name);
	struct protocol_reply reply;
	struct talk_place place;
	int rc = talk_find_way(&way, &place, err);

	if (rc)
		return rc;
	/* The vGPU that the step has found may be another user's by now. */
	request.flags |= PROTOCOL_OWNER;
	request.owner = user;
	cleanup_close int sock = talk_connect(&place, err);
	if (sock < 0)
		return sock == -ENOENT ? -ECONNREFUSED : sock;
	rc = talk_ask(sock, &request, &reply, NULL, err);
	if (rc)
		return rc;
	*gpu = reply.gpu;
	if (*listener < 0)
		*listener = filter_install_as_root(err);
	if (*listener < 0)
		return *listener;
	return talk_give_listener(sock, attached, *listener, &reply, err);
}

int grant_attach(const struct config *config, const char *name, uid_t user, const char *id,
		 struct protocol_gpu *gpu, struct bf_error *err)
{
	struct protocol_attached attached = {
		.magic = PROTOCOL_MAGIC, .version = PROTOCOL_VERSION, .kind = PROTOCOL_JOB, .pid = getpid()
	};
	uint64_t until_ns = in_seconds(PATIENCE_S);
	cleanup_close int listener = -1;
	int rc;

	snprintf(attached.id, sizeof(attached.id), "%s", id);
	do
		rc = attach_once(config, name, user, &attached, &listener, gpu, err);
	while (may_come_back(rc) && waits_again(until_ns));
	return rc;
}

int grant_read_use(const struct config *config, const char *name, struct comment_use *use,
		   struct bf_error *err)
{
	const struct talk_way way = { .socket = config->socket, .limit_ms = END_MS };
	cleanup_json struct json_object *top = NULL;
	int rc = gather_report(&way, name, &top, err);
	struct json_object *vgpu = rc ? NULL : first_of(top, "vgpus");

	if (rc)
		return rc;
	*use = (struct comment_use){ .gpu_ns = number_of(vgpu, "time.gpu_ns"),
				     .most_bytes = number_of(vgpu, "mem.most") };
	return 0;
}

int grant_clear(const struct config *config, uint32_t job, struct bf_error *err)
{
	char name[SPEC_NAME_MAX + 1];
	int rc;

	snprintf(name, sizeof(name), SPEC_JOB_PREFIX "%u", job);
	rc = remove_one(config, name, END_MS, err);
	return rc == -ENOENT ? 0 : rc;
}

int grant_remove(const struct config *config, uint32_t job, struct bf_error *err)
{
	const struct talk_way way = { .socket = config->socket, .limit_ms = END_MS };
	cleanup_json struct json_object *top = NULL;
	int rc = grant_clear(config, job, err);

	if (rc)
		return rc;
	rc = gather_report(&way, NULL, &top, err);
	if (!rc)
		sweep(config, top, job);
	return rc;
}

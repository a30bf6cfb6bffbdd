/* The vGPU of a device of a claim, its mark, and the CDI devices of the claim. belfry-oci attaches containers with these
 * devices to the vGPU, as for every container (docs/containers.md). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/json.h"
#include "base/log.h"
#include "base/own.h"
#include "client/gather.h"
#include "dra/dra.h"

enum { LIMIT_MS = 5000 };
static const struct talk_way way = { .limit_ms = LIMIT_MS };

static size_t length_of(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

/* An entry of a list of the report, by the value of a key. */
static struct json_object *find(struct json_object *report, const char *list, const char *key,
				const char *value)
{
	struct json_object *all = gather_at(report, list);

	for (size_t i = 0; i < length_of(all); i++) {
		struct json_object *one = json_object_array_get_idx(all, i);

		if (!strcmp(gather_text(one, key, ""), value))
			return one;
	}
	return NULL;
}

static struct protocol_request request_for(const struct dra *dra, const struct dra_device *device,
					   enum protocol_op op)
{
	struct protocol_request request = talk_request(op, device->vgpu);

	request.spec = spec_default;
	if (device->mem_bytes) {
		request.spec.mem_bytes = device->mem_bytes;
		request.spec.request_ppm = device->time_ppm;
		if (dra->options.has_time_limit && device->time_ppm)
			request.spec.limit_ppm = device->time_ppm;
		request.parts = SPEC_MEM | SPEC_TIME;
	}
	return request;
}

/* A vGPU that exists is of an earlier call, or of another user: then the claim does not get it. */
static int make_vgpu(const struct dra *dra, struct json_object *report, const struct dra_device *device,
		     struct bf_error *err)
{
	struct protocol_request request = request_for(dra, device, PROTOCOL_CREATE);
	struct json_object *gpu = find(report, "gpus", "gpu", device->gpu),
			   *vgpu = find(report, "vgpus", "name", device->vgpu);
	struct protocol_reply reply;

	if (!gpu)
		return bf_fail(err, ENODEV, "GPU %s: belfryd has no such GPU", device->gpu);
	request.gpu = gather_gpu(gpu);
	if (!vgpu)
		return talk_by(&way, &request, &reply, NULL, err);
	if (json_object_get_int64(gather_at(vgpu, "owner")) != geteuid() ||
	    strcmp(gather_text(vgpu, "gpu", ""), device->gpu) != 0)
		return bf_fail(err, EEXIST,
			       "%s: a vGPU of this name exists, of another user or on another GPU",
			       device->vgpu);
	if (!request.parts)
		return 0;
	request = request_for(dra, device, PROTOCOL_SET);
	return talk_by(&way, &request, &reply, NULL, err);
}

static int remove_vgpu(const char *name, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_REMOVE, name);
	struct protocol_reply reply;
	int rc = talk_by(&way, &request, &reply, NULL, err);

	return rc == -ENOENT ? 0 : rc;
}

static void cdi_path(const struct dra *dra, const char *uid, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.3000s/belfry-claim-%s.json", dra->options.cdi, uid);
}

static int write_files(const struct dra *dra, const struct dra_claim *claim, struct bf_error *err)
{
	const char *names[DRA_DEVICES_MAX];
	struct json_object *spec;
	char path[PATH_MAX];
	int rc = attach_make_folder(dra->options.marks, err);

	if (rc)
		return rc;
	cleanup_close int marks = open(dra->options.marks, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (marks < 0)
		return bf_fail(err, errno, "%s: %s", dra->options.marks, strerror(errno));
	for (size_t i = 0; !rc && i < claim->count; i++) {
		names[i] = claim->devices[i].vgpu;
		rc = attach_write_mark(marks, names[i], err);
	}
	if (rc)
		return rc;
	mkdir(dra->options.cdi, 0755);
	cdi_path(dra, claim->uid, path);
	spec = attach_cdi(DRA_KIND, dra->options.marks, names, claim->count);
	rc = dra_write_file(path, spec, err);
	json_object_put(spec);
	return rc;
}

static void remove_files(const struct dra *dra, const struct dra_claim *claim)
{
	char path[PATH_MAX];

	cdi_path(dra, claim->uid, path);
	unlink(path);
	for (size_t i = 0; i < claim->count; i++) {
		snprintf(path, sizeof(path), "%.3000s/%s", dra->options.marks, claim->devices[i].vgpu);
		unlink(path);
	}
}

/* Remove everything of a claim. If a vGPU cannot be removed, the claim stays, so that the kubelet can try again. */
static int drop(struct dra *dra, struct dra_claim *claim, struct bf_error *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < claim->count; i++)
		rc = remove_vgpu(claim->devices[i].vgpu, err);
	if (rc)
		return rc;
	remove_files(dra, claim);
	dra_state_remove(dra, claim->uid);
	LIST_REMOVE(claim, entry);
	free(claim);
	return 0;
}

static int make_all(struct dra *dra, const struct dra_claim *claim, struct json_object *report,
		    struct bf_error *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < claim->count; i++)
		rc = make_vgpu(dra, report, &claim->devices[i], err);
	return rc ? rc : write_files(dra, claim, err);
}

/* What the scheduler has allocated, from the API server. */
static int fetch(const struct dra *dra, struct dra_claim *claim, struct bf_error *err)
{
	struct json_object *object = NULL;
	char path[512];
	long status;
	int rc;

	snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s", claim->space,
		 claim->name);
	rc = dra_server_ask(&dra->options.server, "GET", path, NULL, &status, &object, err);
	if (!rc)
		rc = dra_server_check("the claim", status, object, err);
	if (!rc)
		rc = dra_read_claim(object, claim, err);
	json_object_put(object);
	return rc;
}

/* A claim that is not prepared yet. It is saved before its vGPUs are made: after a crash they can be removed. NULL: it
 * failed. */
static struct dra_claim *add_claim(struct dra *dra, const struct dra_claim *asked, struct json_object *report,
				   struct bf_error *err)
{
	struct dra_claim *claim = calloc(1, sizeof(*claim));
	int rc;

	if (!claim) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	memcpy(claim->uid, asked->uid, sizeof(claim->uid));
	memcpy(claim->space, asked->space, sizeof(claim->space));
	memcpy(claim->name, asked->name, sizeof(claim->name));
	rc = fetch(dra, claim, err);
	for (size_t i = 0; !rc && i < claim->count; i++)
		rc = dra_find_gpu(report, &claim->devices[i], err);
	if (!rc)
		rc = dra_state_save(dra, claim, err);
	if (rc) {
		free(claim);
		return NULL;
	}
	LIST_INSERT_HEAD(&dra->claims, claim, entry);
	return claim;
}

int dra_prepare(struct dra *dra, const struct dra_claim *asked, const struct dra_claim **prepared,
		struct bf_error *err)
{
	struct dra_claim *claim = dra_state_find(dra, asked->uid);
	struct json_object *report = NULL;
	bool is_new = !claim;
	int rc = gather_report(&way, NULL, &report, err);

	if (gather_at(report, "daemon"))
		rc = 0; /* the server of another GPU may not answer */
	else if (!rc)
		rc = bf_fail(err, EHOSTUNREACH, "belfryd does not run");
	if (!rc && is_new)
		claim = add_claim(dra, asked, report, err);
	if (!rc && claim) {
		rc = make_all(dra, claim, report, err);
		if (rc && is_new)
			drop(dra, claim, NULL);
	}
	json_object_put(report);
	if (rc || !claim)
		return rc ? rc : -err->code;
	*prepared = claim;
	if (is_new)
		bf_log(BF_LOG_INFO, "claim %s/%s is prepared: %zu devices, %s", claim->space, claim->name,
		       claim->count, claim->devices[0].vgpu);
	return 0;
}

int dra_unprepare(struct dra *dra, const char *uid, struct bf_error *err)
{
	struct dra_claim *claim = dra_state_find(dra, uid);
	int rc;

	if (!claim)
		return 0;
	rc = drop(dra, claim, err);
	if (!rc)
		bf_log(BF_LOG_INFO, "claim %s is not prepared any more", uid);
	return rc;
}

void dra_restore(struct dra *dra, struct json_object *report)
{
	struct dra_claim *claim;

	LIST_FOREACH(claim, &dra->claims, entry)
		for (size_t i = 0; i < claim->count; i++) {
			const struct dra_device *device = &claim->devices[i];
			struct json_object *gpu = find(report, "gpus", "gpu", device->gpu);
			struct bf_error err = { 0 };

			/* The vGPUs of a GPU server that does not answer may still exist. */
			if (find(report, "vgpus", "name", device->vgpu) ||
			    json_object_get_double(gather_at(gpu, "mem.total")) <= 0)
				continue;
			if (make_all(dra, claim, report, &err))
				bf_log(BF_LOG_WARN, "%s: %s", device->vgpu, err.text);
			else
				bf_log(BF_LOG_INFO, "%s: made again", device->vgpu);
			break; /* the next report has what was made */
		}
}

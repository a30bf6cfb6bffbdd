/* The vGPU of a container that has parts of a GPU: made before the container, and removed with it. */
#include <errno.h>
#include <string.h>

#include "attach/attach.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/oci.h"
#include "client/gather.h"

/* The GPU of that name, as belfryd knows it. */
static int find_gpu(const char *name, struct protocol_gpu *gpu, struct bf_error *err)
{
	struct talk_way usual = { .socket = NULL };
	struct json_object *hello = NULL, *gpus = NULL;
	int rc = gather_hello(&usual, &hello, err);

	if (rc)
		return rc;
	gpus = gather_at(hello, "gpus");
	rc = bf_fail(err, ENODEV, "GPU %s: belfryd has no such GPU", name);
	for (size_t i = 0; json_object_is_type(gpus, json_type_array) && i < json_object_array_length(gpus);
	     i++) {
		struct json_object *one = json_object_array_get_idx(gpus, i);

		if (strcmp(gather_text(one, "gpu", ""), name) != 0)
			continue;
		*gpu = gather_gpu(one);
		rc = 0;
	}
	json_object_put(hello);
	return rc;
}

static int request_vgpu(const struct attach_share *share, const struct protocol_gpu *gpu, const char *name,
			struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_CREATE, name);
	struct protocol_reply reply;

	request.flags = PROTOCOL_EPHEMERAL;
	request.parts = share->parts;
	request.spec = share->spec;
	request.gpu = *gpu;
	return talk_once(&request, &reply, NULL, err);
}

static int remove_vgpu(const char *name, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_REMOVE, name);
	struct protocol_reply reply;

	return talk_once(&request, &reply, NULL, err);
}

int oci_make_vgpu(struct json_object *config, const struct attach_share *share, const char *id,
		  char name[SPEC_NAME_MAX + 1], struct bf_error *err)
{
	struct protocol_gpu gpu;
	int rc;

	if (!id || !*id)
		return bf_fail(err, ENOTSUP,
			       "a container with belfry.dev/memory-gib must be started by belfry-oci");
	rc = find_gpu(share->gpu, &gpu, err);
	if (rc)
		return rc;
	attach_share_name(config, id, name);
	rc = request_vgpu(share, &gpu, name, err);
	/* Of an attempt to create the same container that failed. One with programs is not removed. */
	if (rc == -EEXIST && !remove_vgpu(name, NULL))
		rc = request_vgpu(share, &gpu, name, err);
	return rc;
}

void oci_drop_vgpu(const char *id)
{
	struct talk_way usual = { .socket = NULL };
	struct json_object *report = NULL, *vgpus;

	gather_report(&usual, NULL, &report, NULL);
	vgpus = gather_at(report, "vgpus");
	for (size_t i = 0; json_object_is_type(vgpus, json_type_array) && i < json_object_array_length(vgpus);
	     i++) {
		const char *name = gather_text(json_object_array_get_idx(vgpus, i), "name", "");

		if (attach_is_share_name(name, id))
			remove_vgpu(name, NULL);
	}
	json_object_put(report);
}

/* The ResourceSlice of the node. It is written when the GPUs have changed, and looked at every 10 s: the kubelet removes slices
 * of drivers when it starts. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "client/gather.h"
#include "dra/dra.h"

#define NS 1000000000ull
/* A change must last: memory of a program that runs for a second changes no slice. */
enum { SETTLE_S = 2, EVERY_S = 10, ABSENT_S = 30 };
#define SLICES "/apis/resource.k8s.io/v1/resourceslices"

static int ask(const struct dra *dra, const char *method, const char *path, struct json_object *body,
	       struct json_object **answer, struct bf_error *err)
{
	long status;
	int rc = dra_server_ask(&dra->options.server, method, path, body, &status, answer, err);

	return rc ? rc : dra_server_check(path, status, *answer, err);
}

/* A missing UID is no error: then the slice has no owner. */
static void find_node(struct dra *dra)
{
	struct json_object *node = NULL;
	char path[300];

	if (dra->node_uid[0])
		return;
	snprintf(path, sizeof(path), "/api/v1/nodes/%.253s", dra->options.node);
	if (!ask(dra, "GET", path, NULL, &node, NULL))
		snprintf(dra->node_uid, sizeof(dra->node_uid), "%s", gather_text(node, "metadata.uid", ""));
	json_object_put(node);
}

static const char *annotation_of(struct json_object *slice)
{
	struct json_object *annotations = gather_at(slice, "metadata.annotations"), *hash = NULL;

	if (!json_object_is_type(annotations, json_type_object) ||
	    !json_object_object_get_ex(annotations, DRA_HASH_KEY, &hash))
		return "";
	return json_object_get_string(hash);
}

/* `devices` belongs to the caller. */
static int write_slice(struct dra *dra, struct json_object *devices, struct bf_error *err)
{
	struct json_object *old = NULL, *new = NULL, *answer = NULL;
	uint64_t generation = 1;
	char path[400];
	int rc;

	snprintf(path, sizeof(path), SLICES "/%.200s-" DRA_DRIVER, dra->options.node);
	rc = ask(dra, "GET", path, NULL, &old, err);
	if (rc && rc != -ENOENT) {
		json_object_put(old);
		return rc;
	}
	if (!rc && !strcmp(annotation_of(old), dra->hash)) {
		json_object_put(old);
		return 0;
	}
	if (!rc)
		generation = json_object_get_uint64(gather_at(old, "spec.pool.generation")) + 1;
	find_node(dra);
	new = dra_slice(dra->options.node, dra->node_uid, generation, json_object_get(devices));
	if (rc) {
		rc = ask(dra, "POST", SLICES, new, &answer, err);
	} else {
		json_add_text(gather_at(new, "metadata"), "resourceVersion",
			      gather_text(old, "metadata.resourceVersion", NULL));
		rc = ask(dra, "PUT", path, new, &answer, err);
	}
	if (!rc)
		bf_log(BF_LOG_INFO, "the resource slice is published: %zu devices, generation %llu",
		       json_object_array_length(devices), (unsigned long long)generation);
	json_object_put(old);
	json_object_put(new);
	json_object_put(answer);
	return rc;
}

/* Whether the slice must be compared with these devices now. */
static bool is_due(struct dra *dra, struct json_object *devices, uint64_t now_ns)
{
	char hash[17];

	dra_slice_hash(devices, hash);
	if (strcmp(hash, dra->hash) != 0) {
		memcpy(dra->hash, hash, sizeof(hash));
		dra->seen_ns = now_ns;
		dra->is_published = false;
	}
	if (dra->is_published || dra->is_failing)
		return now_ns - dra->published_ns >= EVERY_S * NS;
	return now_ns - dra->seen_ns >= SETTLE_S * NS || !dra->published_ns;
}

void dra_publish(struct dra *dra, struct json_object *report, uint64_t now_ns)
{
	struct json_object *devices;
	struct bf_error err = { 0 };

	if (gather_at(report, "daemon"))
		dra->report_ns = now_ns;
	else if (now_ns - dra->report_ns < ABSENT_S * NS)
		return; /* belfryd may be restarted */
	devices = dra_slice_devices(report);
	if (is_due(dra, devices, now_ns)) {
		bool was_failing = dra->is_failing;

		dra->is_failing = write_slice(dra, devices, &err) != 0;
		dra->is_published = !dra->is_failing;
		dra->published_ns = now_ns;
		if (dra->is_failing && !was_failing)
			bf_log(BF_LOG_WARN, "the resource slice cannot be published: %s", err.text);
	}
	json_object_put(devices);
}

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attach/attach.h"
#include "base/hash.h"
#include "base/json.h"
#include "client/gather.h"
#include "dra/dra.h"

enum { GPUS_MAX = 64 };
#define MIB 1048576.0

static size_t length_of(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

static void add(struct json_object *list, struct json_object *value)
{
	if (list)
		json_object_array_add(list, value);
	else
		json_object_put(value);
}

void dra_device_name(const char *gpu, char to[DRA_LABEL_MAX + 1])
{
	snprintf(to, DRA_LABEL_MAX + 1, "%s%.40s", strchr(gpu, ':') ? "" : "gpu-", gpu);
	for (; *to; to++)
		if (*to == ':')
			*to = '-';
}

int dra_find_gpu(struct json_object *report, struct dra_device *device, struct bf_error *err)
{
	struct json_object *gpus = gather_at(report, "gpus");
	char name[DRA_LABEL_MAX + 1];

	for (size_t i = 0; i < length_of(gpus); i++) {
		const char *gpu = gather_text(json_object_array_get_idx(gpus, i), "gpu", "");

		dra_device_name(gpu, name);
		if (strcmp(name, device->device) != 0 || strlen(gpu) >= sizeof(device->gpu))
			continue;
		snprintf(device->gpu, sizeof(device->gpu), "%s", gpu);
		return 0;
	}
	return bf_fail(err, ENODEV, "%s: belfryd has no such GPU", device->device);
}

/* The memory and the time of a GPU that belong to vGPUs of no claim. */
static void subtract_others(struct json_object *report, const char *gpu, double *bytes, double *percent)
{
	struct json_object *vgpus = gather_at(report, "vgpus");

	for (size_t i = 0; i < length_of(vgpus); i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);

		if (strcmp(gather_text(vgpu, "gpu", ""), gpu) != 0 ||
		    attach_is_claim_name(gather_text(vgpu, "name", "")))
			continue;
		*bytes -= json_object_get_double(gather_at(vgpu, "mem.limit"));
		*percent -= json_object_get_double(gather_at(vgpu, "time.request")) * 100;
	}
}

/* An amount that claims consume in steps. */
static struct json_object *capacity_json(double value, double usual, double step, const char *unit)
{
	struct json_object *capacity = json_object_new_object(), *policy = json_object_new_object(),
			   *range = json_object_new_object();
	char text[48];

	snprintf(text, sizeof(text), "%.0f%s", step, unit);
	json_add_text(range, "min", usual > 0 ? text : "0");
	json_add_text(range, "step", text);
	snprintf(text, sizeof(text), "%.0f%s", usual < value ? usual : value, unit);
	json_add_text(policy, "default", text);
	json_add(policy, "validRange", range);
	snprintf(text, sizeof(text), "%.0f%s", value, unit);
	json_add_text(capacity, "value", text);
	json_add(capacity, "requestPolicy", policy);
	return capacity;
}

static void add_attribute(struct json_object *attributes, const char *key, const char *value)
{
	struct json_object *one = json_object_new_object();
	char text[64];

	snprintf(text, sizeof(text), "%.63s", value); /* the most that the API allows is 64 */
	json_add_text(one, "string", text);
	json_add(attributes, key, one);
}

/* NULL: the GPU has nothing to offer. A GPU whose server does not answer has no figures. */
static struct json_object *device_json(struct json_object *report, struct json_object *gpu)
{
	const char *name = gather_text(gpu, "gpu", "");
	double bytes = json_object_get_double(gather_at(gpu, "mem.total")), percent = 100;
	struct json_object *device, *attributes, *capacity;
	char text[DRA_LABEL_MAX + 1];

	if (!name[0] || bytes < MIB)
		return NULL;
	subtract_others(report, name, &bytes, &percent);
	if (bytes < MIB)
		return NULL;
	device = json_object_new_object();
	attributes = json_object_new_object();
	capacity = json_object_new_object();
	dra_device_name(name, text);
	json_add_text(device, "name", text);
	add_attribute(attributes, "gpu", name);
	add_attribute(attributes, "model", gather_text(gpu, "model", "unknown"));
	add_attribute(attributes, "uuid", gather_text(gpu, "uuid", "unknown"));
	json_add(device, "attributes", attributes);
	json_add(capacity, "memory", capacity_json(floor(bytes / MIB), 1024, 1, "Mi"));
	json_add(capacity, "time", capacity_json(percent < 0 ? 0 : floor(percent + 1e-6), 0, 1, ""));
	json_add(device, "capacity", capacity);
	json_add_bool(device, "allowMultipleAllocations", true);
	return device;
}

struct json_object *dra_slice_devices(struct json_object *report)
{
	struct json_object *devices = json_object_new_array(), *gpus = gather_at(report, "gpus");

	for (size_t i = 0; i < length_of(gpus) && i < GPUS_MAX; i++) {
		struct json_object *device = device_json(report, json_object_array_get_idx(gpus, i));

		if (device)
			add(devices, device);
	}
	return devices;
}

void dra_slice_hash(struct json_object *devices, char to[17])
{
	const char *text = json_object_to_json_string_ext(devices, JSON_C_TO_STRING_PLAIN);

	snprintf(to, 17, "%016llx", (unsigned long long)(text ? bf_hash_bytes(0, text, strlen(text)) : 0));
}

/* The API server removes the slice with the node that owns it. */
static struct json_object *owners_json(const char *node, const char *node_uid)
{
	struct json_object *owners = json_object_new_array(), *owner = json_object_new_object();

	json_add_text(owner, "apiVersion", "v1");
	json_add_text(owner, "kind", "Node");
	json_add_text(owner, "name", node);
	json_add_text(owner, "uid", node_uid);
	json_add_bool(owner, "controller", true);
	add(owners, owner);
	return owners;
}

struct json_object *dra_slice(const char *node, const char *node_uid, uint64_t generation,
			      struct json_object *devices)
{
	struct json_object *top = json_object_new_object(), *metadata = json_object_new_object(),
			   *spec = json_object_new_object(), *pool = json_object_new_object(),
			   *annotations = json_object_new_object();
	char name[DRA_NAME_MAX + 1], hash[17];

	snprintf(name, sizeof(name), "%.200s-" DRA_DRIVER, node);
	dra_slice_hash(devices, hash);
	json_add_text(annotations, DRA_HASH_KEY, hash);
	json_add_text(metadata, "name", name);
	json_add(metadata, "annotations", annotations);
	if (node_uid[0])
		json_add(metadata, "ownerReferences", owners_json(node, node_uid));
	json_add_text(pool, "name", node);
	json_add_number(pool, "generation", generation);
	json_add_number(pool, "resourceSliceCount", 1);
	json_add_text(spec, "driver", DRA_DRIVER);
	json_add_text(spec, "nodeName", node);
	json_add(spec, "pool", pool);
	json_add(spec, "devices", devices);
	json_add_text(top, "apiVersion", "resource.k8s.io/v1");
	json_add_text(top, "kind", "ResourceSlice");
	json_add(top, "metadata", metadata);
	json_add(top, "spec", spec);
	return top;
}

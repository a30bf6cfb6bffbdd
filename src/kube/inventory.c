#include "kube/inventory.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "base/json.h"
#include "client/gather.h"

enum { GIB_MAX = 4096, GPUS_MAX = 64, RESOURCES_MAX = 4096 };

static size_t length_of(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

static struct inventory_resource *add_resource(struct inventory *inventory, enum inventory_kind kind,
					       const char *name)
{
	struct inventory_resource *at;

	if (inventory->count == RESOURCES_MAX)
		return NULL;
	at = realloc(inventory->resources, (inventory->count + 1) * sizeof(*at));
	if (!at)
		return NULL;
	inventory->resources = at;
	at += inventory->count++;
	*at = (struct inventory_resource){ .kind = kind };
	snprintf(at->name, sizeof(at->name), "%s", name);
	return at;
}

static int add_devices(struct inventory_resource *resource, const char *gpu, size_t count, size_t healthy)
{
	struct inventory_device *at = realloc(resource->devices, (resource->count + count + 1) * sizeof(*at));

	if (!at)
		return -ENOMEM;
	resource->devices = at;
	for (size_t i = 0; i < count; i++) {
		struct inventory_device *device = &at[resource->count++];

		*device = (struct inventory_device){ .is_healthy = i < healthy };
		snprintf(device->gpu, sizeof(device->gpu), "%s", gpu);
		snprintf(device->id, sizeof(device->id), "%.23s/%zu", gpu, i);
	}
	return 0;
}

/* The memory and the time of a GPU that vGPUs have which do not belong to pods. */
struct taken {
	double bytes, request;
};

static bool is_of_pod(struct json_object *vgpu)
{
	return json_object_get_boolean(gather_at(vgpu, "ephemeral")) &&
	       attach_is_share_name(gather_text(vgpu, "name", ""), NULL);
}

static struct taken taken_of(struct json_object *report, const char *gpu)
{
	struct json_object *vgpus = gather_at(report, "vgpus");
	struct taken taken = { 0, 0 };

	for (size_t i = 0; i < length_of(vgpus); i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);

		if (strcmp(gather_text(vgpu, "gpu", ""), gpu) != 0 || is_of_pod(vgpu))
			continue;
		taken.bytes += json_object_get_double(gather_at(vgpu, "mem.limit"));
		taken.request += json_object_get_double(gather_at(vgpu, "time.request"));
	}
	return taken;
}

static size_t whole(double value, size_t most)
{
	return value <= 0 ? 0 : value >= (double)most ? most : (size_t)value;
}

/* A GPU whose server does not answer has no figures. */
static int add_gpu(struct inventory_resource *memory, struct inventory_resource *time,
		   struct json_object *report, struct json_object *gpu)
{
	const char *name = gather_text(gpu, "gpu", "");
	double bytes = json_object_get_double(gather_at(gpu, "mem.total"));
	struct taken taken = taken_of(report, name);
	const double gib = 1 << 30, slack = 1e-6;

	if (!name[0] || strlen(name) >= sizeof(memory->devices->gpu) || bytes <= 0)
		return 0;
	if (add_devices(memory, name, whole(bytes / gib, GIB_MAX),
			whole((bytes - taken.bytes) / gib, GIB_MAX)))
		return -ENOMEM;
	return add_devices(time, name, 100, whole(floor(100 - taken.request * 100 + slack), 100));
}

static int add_shares(struct inventory *inventory, struct json_object *report)
{
	struct json_object *gpus = gather_at(report, "gpus");
	int rc = 0;

	if (!add_resource(inventory, INVENTORY_MEMORY, "memory-gib") ||
	    !add_resource(inventory, INVENTORY_TIME, "time-percent"))
		return -ENOMEM;
	for (size_t i = 0; !rc && i < length_of(gpus) && i < GPUS_MAX; i++)
		rc = add_gpu(&inventory->resources[0], &inventory->resources[1], report,
			     json_object_array_get_idx(gpus, i));
	return rc;
}

/* Names of resources end with a letter or a digit. vGPUs of shared domains cannot have containers. vGPUs of claims are
 * those of belfry-dra. */
static bool is_offered(struct json_object *vgpu, const struct inventory_options *options)
{
	const char *name = gather_text(vgpu, "name", "");
	size_t length = strlen(name);

	return length && length + strlen("vgpu-") <= INVENTORY_NAME_MAX &&
	       isalnum((unsigned char)name[length - 1]) && !attach_is_claim_name(name) &&
	       !json_object_get_boolean(gather_at(vgpu, "ephemeral")) && !gather_at(vgpu, "mps_server") &&
	       !gather_at(vgpu, "sm") && json_object_get_int64(gather_at(vgpu, "owner")) == options->owner;
}

static int add_vgpus(struct inventory *inventory, struct json_object *report,
		     const struct inventory_options *options)
{
	struct json_object *vgpus = gather_at(report, "vgpus");

	for (size_t i = 0; i < length_of(vgpus); i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);
		struct inventory_resource *resource;
		char name[INVENTORY_NAME_MAX + 1];

		if (!is_offered(vgpu, options))
			continue;
		snprintf(name, sizeof(name), "vgpu-%.58s", gather_text(vgpu, "name", ""));
		resource = add_resource(inventory, INVENTORY_VGPU, name);
		if (!resource ||
		    add_devices(resource, gather_text(vgpu, "gpu", "?"), options->slots, options->slots))
			return -ENOMEM;
		snprintf(resource->vgpu, sizeof(resource->vgpu), "%s", name + strlen("vgpu-"));
	}
	return 0;
}

static bool has_gpu(const struct inventory_resource *resource, const char *gpu)
{
	for (size_t i = 0; i < resource->count; i++)
		if (!strcmp(resource->devices[i].gpu, gpu))
			return true;
	return false;
}

/* Keeps the devices of GPUs that the report does not have, as unhealthy. */
static int keep_devices(struct inventory_resource *resource, const struct inventory_resource *before)
{
	struct inventory_device *at;
	size_t known = resource->count;
	struct inventory_resource now = *resource;

	for (size_t i = 0; i < before->count; i++) {
		if (has_gpu(&now, before->devices[i].gpu))
			continue;
		at = realloc(resource->devices, (resource->count + 1) * sizeof(*at));
		if (!at)
			return -ENOMEM;
		resource->devices = at;
		at[resource->count] = before->devices[i];
		at[resource->count++].is_healthy = false;
		now = (struct inventory_resource){ .devices = at, .count = known };
	}
	return 0;
}

/* The vGPUs of a GPU server that does not answer may still exist. */
static bool is_removed(struct json_object *report, const struct inventory_resource *vgpu)
{
	struct json_object *gpus = gather_at(report, "gpus");

	for (size_t i = 0; vgpu->count && i < length_of(gpus); i++) {
		struct json_object *gpu = json_object_array_get_idx(gpus, i);

		if (!strcmp(gather_text(gpu, "gpu", ""), vgpu->devices[0].gpu))
			return json_object_get_double(gather_at(gpu, "mem.total")) > 0;
	}
	return !vgpu->count;
}

static int keep(struct inventory *inventory, const struct inventory *before, struct json_object *report)
{
	for (size_t i = 0; before && i < before->count; i++) {
		const struct inventory_resource *was = &before->resources[i];
		struct inventory_resource *now =
			(struct inventory_resource *)(uintptr_t)inventory_find(inventory, was->name);
		bool is_new = !now;

		if (is_new && was->kind == INVENTORY_VGPU && !was->count)
			continue; /* the kubelet has received that it has no devices */
		if (is_new)
			now = add_resource(inventory, was->kind, was->name);
		if (!now)
			return -ENOMEM;
		if (is_new)
			memcpy(now->vgpu, was->vgpu, sizeof(now->vgpu));
		if ((was->kind != INVENTORY_VGPU || (is_new && !is_removed(report, was))) &&
		    keep_devices(now, was))
			return -ENOMEM;
	}
	return 0;
}

struct inventory *inventory_new(struct json_object *report, const struct inventory *before,
				const struct inventory_options *options)
{
	struct inventory *inventory = calloc(1, sizeof(*inventory));

	if (inventory && !add_shares(inventory, report) && !add_vgpus(inventory, report, options) &&
	    !keep(inventory, before, report))
		return inventory;
	inventory_free(inventory);
	return NULL;
}

void inventory_free(struct inventory *inventory)
{
	if (!inventory)
		return;
	for (size_t i = 0; i < inventory->count; i++)
		free(inventory->resources[i].devices);
	free(inventory->resources);
	free(inventory);
}

const struct inventory_resource *inventory_find(const struct inventory *inventory, const char *name)
{
	for (size_t i = 0; inventory && i < inventory->count; i++)
		if (!strcmp(inventory->resources[i].name, name))
			return &inventory->resources[i];
	return NULL;
}

bool inventory_is_same(const struct inventory_resource *a, const struct inventory_resource *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (strcmp(a->devices[i].id, b->devices[i].id) != 0 ||
		    a->devices[i].is_healthy != b->devices[i].is_healthy)
			return false;
	return true;
}

size_t inventory_gib(const struct inventory *inventory, const char *gpu)
{
	const struct inventory_resource *memory = inventory_find(inventory, "memory-gib");
	size_t count = 0;

	for (size_t i = 0; memory && i < memory->count; i++)
		count += !strcmp(memory->devices[i].gpu, gpu);
	return count;
}

/* Which devices a container gets, and what it gets for them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach/attach.h"
#include "kube/inventory.h"

static const struct inventory_device *find_device(const struct inventory_resource *resource, const char *id)
{
	for (size_t i = 0; i < resource->count; i++)
		if (!strcmp(resource->devices[i].id, id))
			return &resource->devices[i];
	return NULL;
}

static bool has_twice(const struct api_ids *ids)
{
	for (size_t i = 0; i < ids->count; i++)
		for (size_t j = 0; j < i; j++)
			if (!strcmp(ids->at[i], ids->at[j]))
				return true;
	return false;
}

/* The GPU of the devices; "": they are of several GPUs. */
static int find_gpu(const struct inventory_resource *resource, const struct api_ids *ids, const char **gpu,
		    struct bf_error *err)
{
	bool is_mixed = false;

	*gpu = "";
	if (!ids->count || ids->count > resource->count || has_twice(ids))
		return bf_fail(err, EINVAL, "belfry.dev/%s: %zu devices of %zu, or a device twice",
			       resource->name, ids->count, resource->count);
	for (size_t i = 0; i < ids->count; i++) {
		const struct inventory_device *device = find_device(resource, ids->at[i]);

		if (!device)
			return bf_fail(err, ENODEV, "belfry.dev/%s: no device %s", resource->name,
				       ids->at[i]);
		if (i && strcmp(*gpu, device->gpu) != 0)
			is_mixed = true;
		*gpu = device->gpu;
	}
	if (is_mixed)
		*gpu = "";
	return 0;
}

int inventory_allocate(const struct inventory_resource *resource, const struct inventory_options *options,
		       const struct api_ids *ids, char *mark, size_t room, const char **at, const char **gpu,
		       struct bf_error *err)
{
	int rc = find_gpu(resource, ids, gpu, err);

	if (rc)
		return rc;
	switch (resource->kind) {
	case INVENTORY_MEMORY:
		if (!**gpu)
			return bf_fail(
				err, ENOSPC,
				"no GPU of this node has %zu GiB free: the memory of a container must be on one GPU",
				ids->count);
		*at = ATTACH_MEMORY;
		attach_memory_mark(*gpu, (unsigned)ids->count, mark, room);
		return 0;
	case INVENTORY_TIME:
		if (ids->count > 100)
			return bf_fail(err, ERANGE,
				       "belfry.dev/time-percent: %zu; a container has one vGPU, at most 100",
				       ids->count);
		*at = ATTACH_TIME;
		attach_time_mark((unsigned)ids->count, options->has_time_limit, mark, room);
		return 0;
	case INVENTORY_VGPU:
		break;
	}
	if (ids->count != 1)
		return bf_fail(err, ERANGE, "belfry.dev/%s: %zu; a container can have 1", resource->name,
			       ids->count);
	*at = ATTACH_MARK;
	snprintf(mark, room, "%s", resource->vgpu);
	return 0;
}

/* The ID of a device is "GPU/NUMBER". A GPU by itself, as in a hint, has no slash. */
static size_t gpu_length(const char *id)
{
	return strcspn(id, "/");
}

static bool is_same_gpu(const char *id, const char *other)
{
	return gpu_length(id) == gpu_length(other) && !strncmp(id, other, gpu_length(id));
}

static size_t count_on(const struct api_ids *ids, const char *gpu)
{
	size_t count = 0;

	for (size_t i = 0; i < ids->count; i++)
		count += is_same_gpu(ids->at[i], gpu);
	return count;
}

/* The hint, if it has enough devices; otherwise the GPU with enough devices on which the fewest would be left. NULL: none. */
static const char *fitting_gpu(const struct api_ids *ids, size_t size, const char *hint)
{
	const char *best = NULL;
	size_t least = 0;

	if (hint && count_on(ids, hint) >= size)
		return hint;
	for (size_t i = 0; i < ids->count; i++) {
		size_t count;

		if (best && is_same_gpu(ids->at[i], best))
			continue;
		count = count_on(ids, ids->at[i]);
		if (count >= size && (!best || count < least)) {
			best = ids->at[i];
			least = count;
		}
	}
	return best;
}

static bool is_in(const char *id, const char *const *ids, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(ids[i], id))
			return true;
	return false;
}

size_t inventory_prefer(const struct api_container *container, const char *hint, const char **ids,
			size_t room)
{
	size_t size = container->size > 0 ? (size_t)container->size : 0, count = 0;
	const char *gpu;

	if (size > room)
		size = room;
	for (size_t i = 0; i < container->musts.count && count < size; i++)
		if (!is_in(container->musts.at[i], ids, count))
			ids[count++] = container->musts.at[i];
	gpu = fitting_gpu(&container->ids, size, count ? ids[0] : hint);
	for (unsigned pass = gpu ? 0 : 1; pass < 2; pass++)
		for (size_t i = 0; i < container->ids.count && count < size; i++)
			if ((pass || is_same_gpu(container->ids.at[i], gpu)) &&
			    !is_in(container->ids.at[i], ids, count))
				ids[count++] = container->ids.at[i];
	return count;
}

#include "kube/plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/json.h"
#include "base/log.h"
#include "base/own.h"
#include "client/gather.h"

/* Marks of other vGPUs stay: belfry cdi has written them. */
static int write_marks(const struct plugin *plugin, const struct inventory *inventory, struct bf_error *err)
{
	cleanup_close int fd = -1;
	int rc = attach_make_folder(plugin->options.marks, err);

	if (rc)
		return rc;
	fd = open(plugin->options.marks, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return bf_fail(err, errno, "%s: %s", plugin->options.marks, strerror(errno));
	for (size_t i = 0; !rc && i < inventory->count; i++)
		if (inventory->resources[i].kind == INVENTORY_VGPU && inventory->resources[i].count)
			rc = attach_write_mark(fd, inventory->resources[i].vgpu, err);
	return rc;
}

static int write_shares(const struct plugin *plugin, const struct inventory *inventory, struct bf_error *err)
{
	const struct inventory_resource *memory = inventory_find(inventory, "memory-gib");
	const char *last = "";
	int rc = 0;

	for (size_t i = 0; !rc && memory && i < memory->count; i++) {
		const char *gpu = memory->devices[i].gpu;

		if (strcmp(gpu, last) != 0)
			rc = attach_write_shares(plugin->options.marks, gpu,
						 (unsigned)inventory_gib(inventory, gpu), err);
		last = gpu;
	}
	return rc;
}

static struct endpoint *find_endpoint(const struct plugin *plugin, const char *resource)
{
	struct endpoint *endpoint;

	LIST_FOREACH(endpoint, &plugin->endpoints, entry)
		if (!strcmp(endpoint->resource, resource))
			return endpoint;
	return NULL;
}

/* The kubelet knows already that a resource without an entry has no devices. Without its endpoint, the kubelet forgets the
 * resource. */
static void withdraw(struct plugin *plugin)
{
	struct endpoint *endpoint, *after;

	LIST_FOREACH_SAFE(endpoint, &plugin->endpoints, entry, after)
		if (!inventory_find(plugin->inventory, endpoint->resource)) {
			bf_log(BF_LOG_INFO, "belfry.dev/%s: not offered any more: the vGPU was removed",
			       endpoint->resource);
			endpoint_free(endpoint);
		}
}

/* An endpoint for each resource, and the devices of those that have changed. */
static void publish(struct plugin *plugin, const struct inventory *before)
{
	for (size_t i = 0; i < plugin->inventory->count; i++) {
		const struct inventory_resource *now = &plugin->inventory->resources[i],
						*was = inventory_find(before, now->name);
		struct endpoint *endpoint = find_endpoint(plugin, now->name);

		if (!endpoint)
			endpoint_new(plugin, now->name); /* tried again with the next report */
		else if (!was || !inventory_is_same(was, now))
			endpoint_changed(endpoint);
	}
}

static bool is_same(const struct inventory *a, const struct inventory *b)
{
	if (!a || a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (strcmp(a->resources[i].name, b->resources[i].name) != 0 ||
		    !inventory_is_same(&a->resources[i], &b->resources[i]))
			return false;
	return true;
}

static void note_absence(struct plugin *plugin, bool is_absent)
{
	if (is_absent && !plugin->is_absent)
		bf_log(BF_LOG_WARN, "belfryd does not answer: all devices are unhealthy");
	else if (!is_absent && plugin->is_absent)
		bf_log(BF_LOG_INFO, "belfryd answers");
	plugin->is_absent = is_absent;
}

/* Two plugins of a node, such as a service and a pod, would remove each other's sockets. The second waits. */
static bool has_lock(struct plugin *plugin)
{
	const char *marks = plugin->options.marks;
	struct bf_error err = { 0 };
	int fd;

	if (plugin->lock)
		return true;
	if (attach_make_folder(marks, &err)) {
		bf_log(BF_LOG_ERROR, "%s", err.text);
		return false;
	}
	fd = open(marks, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB)) {
		plugin->lock = fd;
		return true;
	}
	if (fd >= 0)
		close(fd);
	if (!plugin->is_waiting)
		bf_log(BF_LOG_WARN,
		       "%s is in use: another belfry-device-plugin serves this node; this one waits", marks);
	plugin->is_waiting = true;
	return false;
}

void plugin_take(struct plugin *plugin, struct json_object *report)
{
	struct inventory *before = plugin->inventory, *now;
	struct bf_error err = { 0 };

	note_absence(plugin, !gather_at(report, "daemon"));
	if ((!before && plugin->is_absent) || !has_lock(plugin))
		return;
	now = inventory_new(report, before, &plugin->options.offer);
	if (!now || is_same(before, now)) {
		inventory_free(now);
		return;
	}
	/* The files first: a container may ask for them as soon as a device is known. */
	if (write_marks(plugin, now, &err) || write_shares(plugin, now, &err)) {
		bf_log(BF_LOG_ERROR, "%s", err.text);
		inventory_free(now);
		return;
	}
	plugin->inventory = now;
	withdraw(plugin);
	publish(plugin, before);
	inventory_free(before);
}

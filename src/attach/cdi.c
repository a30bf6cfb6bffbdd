/* The Container Device Interface: a file by which podman, containerd and CRI-O know devices by name. A device of Belfry is
 * the mark of a vGPU. belfry oci edit and belfry-oci add the rest, so without them the container has no GPU. */
#include <stdio.h>

#include "attach/attach.h"
#include "base/json.h"

static void add(struct json_object *list, struct json_object *value)
{
	if (list)
		json_object_array_add(list, value);
	else
		json_object_put(value);
}

static struct json_object *mount_json(const char *folder, const char *name)
{
	struct json_object *mount = json_object_new_object(), *options = json_object_new_array();
	char source[4096];

	snprintf(source, sizeof(source), "%s/%s", folder, name);
	add(options, json_object_new_string("bind"));
	add(options, json_object_new_string("ro"));
	add(options, json_object_new_string("nosuid"));
	add(options, json_object_new_string("nodev"));
	add(options, json_object_new_string("noexec"));
	json_add_text(mount, "hostPath", source);
	json_add_text(mount, "containerPath", ATTACH_MARK);
	json_add(mount, "options", options);
	return mount;
}

static struct json_object *device_json(const char *folder, const char *name)
{
	struct json_object *device = json_object_new_object(), *edits = json_object_new_object(),
			   *mounts = json_object_new_array();

	add(mounts, mount_json(folder, name));
	json_add(edits, "mounts", mounts);
	json_add_text(device, "name", name);
	json_add(device, "containerEdits", edits);
	return device;
}

struct json_object *attach_cdi(const char *kind, const char *folder, const char *const *names, size_t count)
{
	struct json_object *top = json_object_new_object(), *devices = json_object_new_array();

	for (size_t i = 0; i < count; i++)
		add(devices, device_json(folder, names[i]));
	json_add_text(top, "cdiVersion", "0.3.0");
	json_add_text(top, "kind", kind);
	json_add(top, "devices", devices);
	return top;
}

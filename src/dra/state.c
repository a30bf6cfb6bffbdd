#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/own.h"
#include "client/gather.h"
#include "dra/dra.h"

static void path_of(const struct dra *dra, const char *uid, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.3000s/claims/%s.json", dra->options.folder, uid);
}

int dra_write_file(const char *path, struct json_object *object, struct bf_error *err)
{
	const char *text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY |
									  JSON_C_TO_STRING_NOSLASHESCAPE);
	char new[PATH_MAX];

	if (!text || snprintf(new, sizeof(new), "%s.new", path) >= (int)sizeof(new))
		return bf_fail(err, text ? ENAMETOOLONG : ENOMEM, "%.200s cannot be written", path);
	unlink(new);
	cleanup_close int fd = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd >= 0 && dprintf(fd, "%s\n", text) >= 0 && !fsync(fd) && !rename(new, path))
		return 0;
	bf_fail(err, errno, "%.200s: %s", path, strerror(errno));
	unlink(new);
	return -err->code;
}

static struct json_object *device_json(const struct dra_device *device)
{
	struct json_object *one = json_object_new_object();

	json_add_text(one, "request", device->request);
	json_add_text(one, "pool", device->pool);
	json_add_text(one, "device", device->device);
	json_add_text(one, "gpu", device->gpu);
	json_add_number(one, "mem_bytes", device->mem_bytes);
	json_add_number(one, "time_ppm", device->time_ppm);
	return one;
}

int dra_state_save(const struct dra *dra, const struct dra_claim *claim, struct bf_error *err)
{
	struct json_object *top = json_object_new_object(), *devices = json_object_new_array();
	char path[PATH_MAX];
	int rc;

	json_add_text(top, "uid", claim->uid);
	json_add_text(top, "namespace", claim->space);
	json_add_text(top, "name", claim->name);
	for (size_t i = 0; i < claim->count; i++)
		json_object_array_add(devices, device_json(&claim->devices[i]));
	json_add(top, "devices", devices);
	path_of(dra, claim->uid, path);
	rc = dra_write_file(path, top, err);
	json_object_put(top);
	return rc;
}

void dra_state_remove(const struct dra *dra, const char *uid)
{
	char path[PATH_MAX];

	path_of(dra, uid, path);
	unlink(path);
}

struct dra_claim *dra_state_find(const struct dra *dra, const char *uid)
{
	struct dra_claim *claim;

	LIST_FOREACH(claim, &dra->claims, entry)
		if (!strcmp(claim->uid, uid))
			return claim;
	return NULL;
}

static void read_device(struct json_object *from, struct dra_claim *claim)
{
	struct dra_device *device = &claim->devices[claim->count];

	snprintf(device->request, sizeof(device->request), "%s", gather_text(from, "request", ""));
	snprintf(device->pool, sizeof(device->pool), "%s", gather_text(from, "pool", ""));
	snprintf(device->device, sizeof(device->device), "%s", gather_text(from, "device", ""));
	snprintf(device->gpu, sizeof(device->gpu), "%s", gather_text(from, "gpu", ""));
	dra_name_vgpu(claim, claim->count);
	device->mem_bytes = json_object_get_uint64(gather_at(from, "mem_bytes"));
	device->time_ppm = (uint32_t)json_object_get_uint64(gather_at(from, "time_ppm"));
	claim->count++;
}

static struct dra_claim *read_claim(const char *path)
{
	struct json_object *top = json_object_from_file(path), *devices = gather_at(top, "devices");
	struct dra_claim *claim = calloc(1, sizeof(*claim));

	if (claim) {
		snprintf(claim->uid, sizeof(claim->uid), "%s", gather_text(top, "uid", ""));
		snprintf(claim->space, sizeof(claim->space), "%s", gather_text(top, "namespace", ""));
		snprintf(claim->name, sizeof(claim->name), "%s", gather_text(top, "name", ""));
	}
	for (size_t i = 0; claim && json_object_is_type(devices, json_type_array) &&
			   i < json_object_array_length(devices) && i < DRA_DEVICES_MAX;
	     i++)
		read_device(json_object_array_get_idx(devices, i), claim);
	json_object_put(top);
	if (claim && !dra_check_claim(claim, NULL) && claim->count)
		return claim;
	free(claim);
	return NULL;
}

int dra_state_load(struct dra *dra, struct bf_error *err)
{
	char folder[PATH_MAX], path[PATH_MAX + 256];
	struct dirent *entry;
	DIR *dir;

	snprintf(folder, sizeof(folder), "%.3000s/claims", dra->options.folder);
	mkdir(dra->options.folder, 0755);
	if (mkdir(folder, 0700) && errno != EEXIST)
		return bf_fail(err, errno, "%.200s: %s", folder, strerror(errno));
	dir = opendir(folder);
	if (!dir)
		return bf_fail(err, errno, "%.200s: %s", folder, strerror(errno));
	while ((entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');
		struct dra_claim *claim = NULL;

		if (!dot || strcmp(dot, ".json") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		claim = read_claim(path);
		if (claim)
			LIST_INSERT_HEAD(&dra->claims, claim, entry);
		else
			bf_log(BF_LOG_ERROR, "%s: not a claim; it is ignored", path);
	}
	closedir(dir);
	return 0;
}

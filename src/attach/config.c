/* config.json of a container: what a container on a vGPU has besides what its runtime gives it. All of it is added by one
 * edit: a container that was not edited has no device. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "attach/attach.h"
#include "base/json.h"

/* In the container. */
#define SOFT_FOLDER "/run/belfry/soft"
#define LIBRARY_FOLDER "/run/belfry/lib"

enum { TEXT_MAX = 4096 };

struct json_object *attach_parse(const char *text, size_t bytes, struct bf_error *err)
{
	struct json_tokener *tokener = json_tokener_new_ex(ATTACH_DEPTH_MAX);
	struct json_object *config = NULL;

	if (bytes > ATTACH_CONFIG_MAX) {
		bf_fail(err, EFBIG, "the configuration has more than %d bytes", ATTACH_CONFIG_MAX);
	} else if (!tokener) {
		bf_fail(err, ENOMEM, "out of memory");
	} else {
		config = json_tokener_parse_ex(tokener, text, (int)bytes);
		if (!json_object_is_type(config, json_type_object)) {
			bf_fail(err, EINVAL, "the configuration is not a JSON object: %s",
				json_tokener_error_desc(json_tokener_get_error(tokener)));
			json_object_put(config);
			config = NULL;
		}
	}
	if (tokener)
		json_tokener_free(tokener);
	return config;
}

/* A member of that type, made if it does not exist. NULL: it has another type, or there is no memory. */
static struct json_object *member(struct json_object *of, const char *key, enum json_type type)
{
	struct json_object *value = NULL;

	if (!of)
		return NULL;
	if (!json_object_object_get_ex(of, key, &value) || !value) {
		value = type == json_type_array ? json_object_new_array() : json_object_new_object();
		json_add(of, key, value);
	}
	return json_object_is_type(value, type) ? value : NULL;
}

static const char *text_of(struct json_object *object, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(object, key, &value) ? json_object_get_string(value) : NULL;
}

static void add_mount(struct json_object *mounts, const char *from, const char *to)
{
	static const char *const words[] = { "bind", "ro", "nosuid", "nodev" };
	struct json_object *mount = json_object_new_object(), *options = json_object_new_array();

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		json_object_array_add(options, json_object_new_string(words[i]));
	json_add_text(mount, "destination", to);
	json_add_text(mount, "type", "bind");
	json_add_text(mount, "source", from);
	json_add(mount, "options", options);
	json_object_array_add(mounts, mount);
}

/* Set a variable: what the container had is put behind it, or dropped. */
static void set_variable(struct json_object *env, const char *name, const char *value, bool keeps_old)
{
	size_t length = strlen(name);
	char text[2 * TEXT_MAX];

	snprintf(text, sizeof(text), "%s=%s", name, value);
	for (size_t i = json_object_array_length(env); i-- > 0;) {
		const char *one = json_object_get_string(json_object_array_get_idx(env, i));

		if (!one || strncmp(one, name, length) != 0 || one[length] != '=')
			continue;
		if (keeps_old && one[length + 1] && strlen(one) < TEXT_MAX)
			snprintf(text, sizeof(text), "%s=%s:%s", name, value, one + length + 1);
		json_object_array_del_idx(env, i, 1);
	}
	json_object_array_add(env, json_object_new_string(text));
}

/* The software GPU: its library, and its socket for containers. */
static int add_soft(struct json_object *config, struct json_object *process, const struct attach_edit *edit,
		    struct bf_error *err)
{
	struct json_object *mounts = member(config, "mounts", json_type_array),
			   *env = member(process, "env", json_type_array);
	char guest[sizeof(edit->gpu.folder) + 8];
	struct stat st;

	if (!mounts || !env)
		return bf_fail(err, EINVAL, "mounts or process.env of the configuration is not a list");
	snprintf(guest, sizeof(guest), "%s/guest", edit->gpu.folder);
	if (stat(guest, &st))
		return bf_fail(err, errno, "%s: the software GPU has no socket for containers: %s", guest,
			       strerror(errno));
	add_mount(mounts, guest, SOFT_FOLDER);
	add_mount(mounts, edit->library, LIBRARY_FOLDER);
	set_variable(env, "BELFRY_SOFT_DIR", SOFT_FOLDER, false);
	set_variable(env, "LD_LIBRARY_PATH", LIBRARY_FOLDER, true);
	return 0;
}

static void add_device(struct json_object *devices, struct json_object *rules, const char *path,
		       const struct stat *st)
{
	struct json_object *device = json_object_new_object(), *rule = json_object_new_object();

	json_add_text(device, "path", path);
	json_add_text(device, "type", "c");
	json_add_number(device, "major", major(st->st_rdev));
	json_add_number(device, "minor", minor(st->st_rdev));
	json_add_number(device, "fileMode", 0666);
	json_add_number(device, "uid", 0);
	json_add_number(device, "gid", 0);
	json_object_array_add(devices, device);
	json_add_bool(rule, "allow", true);
	json_add_text(rule, "type", "c");
	json_add_number(rule, "major", major(st->st_rdev));
	json_add_number(rule, "minor", minor(st->st_rdev));
	json_add_text(rule, "access", "rw");
	json_object_array_add(rules, rule);
}

/* The files of the driver. Without the filter's listener they would give the container the whole GPU, so they are added by
 * the same edit. */
static int add_nv(struct json_object *linux_part, const struct attach_edit *edit, struct bf_error *err)
{
	struct json_object *devices = member(linux_part, "devices", json_type_array),
			   *rules = member(member(linux_part, "resources", json_type_object), "devices",
					   json_type_array);
	char gpu[32];
	const char *const paths[] = { "/dev/nvidiactl", "/dev/nvidia-uvm", gpu };

	if (!devices || !rules)
		return bf_fail(err, EINVAL, "linux.devices or linux.resources.devices is not a list");
	snprintf(gpu, sizeof(gpu), "/dev/nvidia%u", edit->gpu.index);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct stat st;

		if (stat(paths[i], &st) || !S_ISCHR(st.st_mode))
			return bf_fail(err, ENODEV, "%s: not a device file; is the NVIDIA driver loaded?",
				       paths[i]);
		add_device(devices, rules, paths[i], &st);
	}
	return 0;
}

/* "path": the container joins an existing namespace, which can be that of the host. */
static bool is_of_host(const char *path)
{
	struct stat own, other;

	return stat("/proc/self/ns/pid", &own) || stat(path, &other) ||
	       (own.st_dev == other.st_dev && own.st_ino == other.st_ino);
}

/* Programs of a run may change no vGPU. belfryd knows those of a container by its PID namespace: no_new_privs does not hold
 * for processes that join the container later. */
static int check_namespace(struct json_object *linux_part, struct bf_error *err)
{
	struct json_object *list = member(linux_part, "namespaces", json_type_array);

	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		struct json_object *namespace = json_object_array_get_idx(list, i);
		const char *type = text_of(namespace, "type"), *path = text_of(namespace, "path");

		if (type && !strcmp(type, "pid") && !(path && *path && is_of_host(path)))
			return 0;
	}
	return bf_fail(err, ENOTSUP,
		       "a container on a vGPU must have a PID namespace of its own, not that of the host");
}

static bool is_edited(struct json_object *linux_part, const struct attach_listener *listener)
{
	struct json_object *profile = NULL;
	const char *path, *metadata;

	if (!json_object_object_get_ex(linux_part, "seccomp", &profile))
		return false;
	path = text_of(profile, "listenerPath");
	metadata = text_of(profile, "listenerMetadata");
	return path && metadata && !strcmp(path, listener->path) && !strcmp(metadata, listener->metadata);
}

int attach_refuse_listener(struct json_object *config, struct bf_error *err)
{
	struct json_object *linux_part = NULL, *profile = NULL;
	const char *metadata = NULL;

	if (json_object_object_get_ex(config, "linux", &linux_part) &&
	    json_object_object_get_ex(linux_part, "seccomp", &profile))
		metadata = text_of(profile, "listenerMetadata");
	if (!metadata || strncmp(metadata, ATTACH_METADATA, sizeof(ATTACH_METADATA) - 1) != 0)
		return 0;
	return bf_fail(
		err, EPERM,
		"its seccomp profile names a vGPU (listenerMetadata), which only Belfry may do; use the device " ATTACH_KIND
		"=NAME");
}

static int edit_seccomp(struct json_object *linux_part, const struct attach_listener *listener,
			struct bf_error *err)
{
	struct json_object *profile = NULL;
	bool is_there = json_object_object_get_ex(linux_part, "seccomp", &profile) && profile;
	int rc = attach_edit_profile(&profile, listener, err);

	if (!is_there)
		json_add(linux_part, "seccomp", profile);
	return rc;
}

int attach_edit_config(struct json_object *config, const struct attach_edit *edit, struct bf_error *err)
{
	struct json_object *linux_part = member(config, "linux", json_type_object),
			   *process = member(config, "process", json_type_object);
	char metadata[sizeof(ATTACH_METADATA) + SPEC_NAME_MAX];
	struct attach_listener listener = { edit->socket, metadata, edit->waits_killable };
	int rc;

	snprintf(metadata, sizeof(metadata), ATTACH_METADATA "%s", edit->vgpu);
	if (!linux_part || !process)
		return bf_fail(err, EINVAL, "linux or process of the configuration is not an object");
	if (is_edited(linux_part, &listener))
		return 0;
	rc = check_namespace(linux_part, err);
	if (!rc)
		rc = edit_seccomp(linux_part, &listener, err);
	if (rc)
		return rc;
	/* By this and the filter belfryd knows that a program is inside a run. */
	json_add_bool(process, "noNewPrivileges", true);
	return edit->gpu.kind == PROTOCOL_GPU_SOFT ? add_soft(config, process, edit, err)
						   : add_nv(linux_part, edit, err);
}

#include <dirent.h>
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
#include "base/own.h"

/* The folder must be as hard to write as belfryd's own files. */
static int check_folder(const char *folder, struct bf_error *err)
{
	struct stat st;

	if (lstat(folder, &st))
		return bf_fail(err, errno, "%s: %s; belfry cdi makes it", folder, strerror(errno));
	if (!S_ISDIR(st.st_mode) || (st.st_uid && st.st_uid != geteuid()) || st.st_mode & 022)
		return bf_fail(err, EPERM, "%s: not a folder that only its owner, root or you, can write",
			       folder);
	return 0;
}

/* containerd makes an empty folder where the source of a mount is missing, as after a reboot. */
int attach_write_mark(int folder, const char *name, struct bf_error *err)
{
	unlinkat(folder, name, AT_REMOVEDIR);
	cleanup_close int fd =
		openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0 || fchmod(fd, 0644) || dprintf(fd, "%s\n", name) < 0)
		return bf_fail(err, errno, "the mark of %s cannot be written: %s", name, strerror(errno));
	return 0;
}

static bool is_listed(const char *name, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* A container that runs keeps its mark, which is mounted. */
static void remove_others(DIR *folder, const char *const *names, size_t count)
{
	struct dirent *entry;

	while ((entry = readdir(folder)))
		if (!spec_check_name(entry->d_name, NULL) && !is_listed(entry->d_name, names, count))
			unlinkat(dirfd(folder), entry->d_name, 0);
}

int attach_make_folder(const char *folder, struct bf_error *err)
{
	if (mkdir(folder, 0755) && errno != EEXIST)
		return bf_fail(err, errno, "%s: %s", folder, strerror(errno));
	return check_folder(folder, err);
}

int attach_write_marks(const char *folder, const char *const *names, size_t count, struct bf_error *err)
{
	DIR *dir;
	int rc = attach_make_folder(folder, err);

	if (rc)
		return rc;
	dir = opendir(folder);
	if (!dir)
		return bf_fail(err, errno, "%s: %s", folder, strerror(errno));
	for (size_t i = 0; !rc && i < count; i++)
		rc = attach_write_mark(dirfd(dir), names[i], err);
	if (!rc)
		remove_others(dir, names, count);
	closedir(dir);
	return rc;
}

static const char *text_of(struct json_object *object, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(object, key, &value) ? json_object_get_string(value) : NULL;
}

/* Whether the source is written as folder/name. The folder itself may be named by a link, such as /var/run. */
static bool is_below(const char *source, const char *folder, const char *name)
{
	size_t length = strlen(folder);

	return !strncmp(source, folder, length) && source[length] == '/' &&
	       !strcmp(source + length + 1, name);
}

/* The source must be a mark itself, not a link to one or a file of another folder: users may make links where they may
 * mount files from. */
static int read_mark(const char *source, const char *at, const char *folder, char *name, size_t room,
		     struct bf_error *err)
{
	char whole[PATH_MAX], marks[PATH_MAX];
	const char *slash;
	struct stat st;

	if (!realpath(source, whole) || lstat(whole, &st))
		return bf_fail(err, errno, "the vGPU of the container is not known: %s: %s; run belfry cdi",
			       source, strerror(errno));
	slash = strrchr(whole, '/');
	if (!realpath(folder, marks) || (size_t)(slash - whole) != strlen(marks) ||
	    strncmp(whole, marks, strlen(marks)) != 0 || !S_ISREG(st.st_mode) ||
	    (strcmp(source, whole) != 0 && !is_below(source, folder, slash + 1)))
		return bf_fail(err, EPERM,
			       "the mount at %s is %s, which is no file of %s; use --device %s=NAME", at,
			       source, folder, ATTACH_KIND);
	if (strlen(slash + 1) >= room)
		return bf_fail(err, EINVAL, "%s: too long a name", source);
	snprintf(name, room, "%s", slash + 1);
	return 0;
}

int attach_find_mark(struct json_object *config, const char *at, const char *folder,
		     char name[SPEC_NAME_MAX + 1], struct bf_error *err)
{
	struct json_object *mounts = NULL;
	const char *found = NULL;

	name[0] = 0;
	if (!json_object_object_get_ex(config, "mounts", &mounts) ||
	    !json_object_is_type(mounts, json_type_array))
		return 0;
	for (size_t i = 0; i < json_object_array_length(mounts); i++) {
		struct json_object *mount = json_object_array_get_idx(mounts, i);
		const char *to = text_of(mount, "destination"), *from = text_of(mount, "source");

		if (!to || strcmp(to, at) != 0)
			continue;
		if (found && from && strcmp(found, from) != 0)
			return bf_fail(err, EINVAL,
				       "a container has one vGPU, and this one has two: %s and %s", found,
				       from);
		found = from ? from : "";
	}
	if (!found)
		return 0;
	if (check_folder(folder, err))
		return -err->code;
	return read_mark(found, at, folder, name, SPEC_NAME_MAX + 1, err);
}

int attach_find_vgpu(struct json_object *config, const char *folder, char name[SPEC_NAME_MAX + 1],
		     struct bf_error *err)
{
	int rc = attach_find_mark(config, ATTACH_MARK, folder, name, err);

	return rc || !name[0] ? rc : spec_check_name(name, err);
}

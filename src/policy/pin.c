/* Pins are for users: bpftool map dump pinned /sys/fs/bpf/belfry/... Belfry does not read them, so a policy
 * also works where no bpffs is mounted. */
#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/own.h"
#include "policy/inside.h"

enum { FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
enum { PIN_LEVELS = 2 }; /* a directory for each vGPU, and one for its policy */

/* File names in a bpffs cannot contain dots: ".rodata.belfry" becomes rodata_belfry, and "fair.bss" becomes
 * bss. */
static int pin_path(const struct bpf_map *map, const char *folder, char *to)
{
	const char *name = bpf_map__name(map), *dot = strchr(name, '.');

	if (bpf_map__is_internal(map) && dot)
		name = dot + 1;
	if (snprintf(to, POLICY_PATH_SIZE, "%s/%s", folder, name) >= POLICY_PATH_SIZE)
		return -ENAMETOOLONG;
	for (char *at = to + strlen(folder); *at; at++)
		if (*at == '.')
			*at = '_';
	return 0;
}

/* Cuts path to its longest existing prefix. */
static void cut_to_existing(char *path)
{
	char *slash;

	while (access(path, F_OK) && (slash = strrchr(path, '/')))
		*slash = 0;
}

static int check_place(const char *folder, struct bf_error *err)
{
	char there[POLICY_PATH_SIZE];
	struct statfs fs;

	if (folder[0] != '/' || strlen(folder) >= sizeof(there))
		return bf_fail(err, EINVAL, "%.64s: not an absolute path of at most %zu bytes", folder,
			       sizeof(there) - 1);
	snprintf(there, sizeof(there), "%s", folder);
	cut_to_existing(there);
	if (statfs(there[0] ? there : "/", &fs))
		return bf_fail(err, errno, "%s: %s", there, strerror(errno));
	if (fs.f_type != BPF_FS_MAGIC)
		return bf_fail(err, ENOENT, "%s is not in a bpffs; mount one: mount -t bpf bpf /sys/fs/bpf",
			       folder);
	return 0;
}

static int make_folders(const char *folder, struct bf_error *err)
{
	char path[POLICY_PATH_SIZE];
	char *slash = path;

	snprintf(path, sizeof(path), "%s", folder);
	do {
		slash = strchr(slash + 1, '/');
		if (slash)
			*slash = 0;
		if (mkdir(path, 0700) && errno != EEXIST)
			return bf_fail(err, errno, "%s cannot be created: %s", path, strerror(errno));
		if (slash)
			*slash = '/';
	} while (slash);
	return 0;
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Removes what a dead daemon has left in a directory, including subdirectories up to `levels` deep. Refuses a
 * directory of another user and the root of the bpffs. Takes ownership of the descriptor. */
static int empty_folder(int folder_fd, const char *folder, unsigned levels, struct bf_error *err)
{
	cleanup_close int fd = folder_fd;
	struct stat here, above;
	struct dirent *entry;
	DIR *entries;

	if (fd < 0 || fstat(fd, &here) || fstatat(fd, "..", &above, 0))
		return bf_fail(err, errno, "%s: %s", folder, strerror(errno));
	if (here.st_uid != geteuid() || here.st_mode & 022 || here.st_dev != above.st_dev)
		return bf_fail(err, EPERM, "%s is not a directory in a bpffs that only this user can write",
			       folder);
	entries = fdopendir(fd);
	if (!entries)
		return bf_fail(err, errno, "%s: %s", folder, strerror(errno));
	while ((entry = readdir(entries))) {
		if (entry->d_type != DT_DIR)
			unlinkat(fd, entry->d_name, 0);
		else if (levels && !is_dots(entry->d_name) &&
			 !empty_folder(openat(fd, entry->d_name, FOLDER_FLAGS), entry->d_name, levels - 1,
				       NULL))
			unlinkat(fd, entry->d_name, AT_REMOVEDIR);
	}
	bf_take_fd(&fd);
	closedir(entries);
	return 0;
}

/* Finds the map that has this pin path: two map names can have the same one. */
static const struct bpf_map *first_at(struct bpf_object *bpf, const char *folder, const char *path)
{
	char at[POLICY_PATH_SIZE];
	struct bpf_map *map;

	bpf_object__for_each_map(map, bpf)
	{
		if (!pin_path(map, folder, at) && !strcmp(at, path))
			return map;
	}
	return NULL;
}

static int pin_all(struct bpf_object *bpf, const char *folder, struct bf_error *err)
{
	char path[POLICY_PATH_SIZE];
	const struct bpf_map *other;
	struct bpf_map *map;

	bpf_object__for_each_map(map, bpf)
	{
		int rc = pin_path(map, folder, path);

		if (!rc)
			rc = bpf_obj_pin(bpf_map__fd(map), path);
		other = rc == -EEXIST ? first_at(bpf, folder, path) : NULL;
		if (other && other != map)
			return bf_fail(err, EEXIST, "maps %s and %s would both be pinned at %s; rename one",
				       bpf_map__name(other), bpf_map__name(map), path);
		if (rc)
			return bf_fail(err, -rc, "map %s cannot be pinned in %s: %s", bpf_map__name(map),
				       folder, strerror(-rc));
	}
	return 0;
}

int pin_maps(struct bpf_object *bpf, const char *folder, struct bf_error *err)
{
	int rc = check_place(folder, err);

	if (rc)
		return rc;
	/* Another policy's removal may delete empty parent directories at the same time. */
	for (int tries = 0; tries < 8; tries++) {
		rc = make_folders(folder, err);
		if (rc != -ENOENT)
			break;
	}
	if (!rc)
		rc = empty_folder(open(folder, FOLDER_FLAGS), folder, 0, err);
	if (!rc)
		rc = pin_all(bpf, folder, err);
	if (rc)
		pin_remove(bpf, folder);
	return rc;
}

static __u32 map_id(int fd)
{
	struct bpf_map_info info = { 0 };
	__u32 length = sizeof(info);

	return bpf_obj_get_info_by_fd(fd, &info, &length) ? 0 : info.id;
}

/* A newer policy of the same name may already be pinned at this path. */
static bool is_ours(const struct bpf_map *map, const char *path)
{
	cleanup_close int fd = bpf_obj_get(path);

	return fd >= 0 && map_id(fd) == map_id(bpf_map__fd(map));
}

/* Removes the directory and its empty parents. It stops at the root of the bpffs, which is busy. */
static void remove_folders(const char *folder)
{
	char path[POLICY_PATH_SIZE];
	char *slash;

	snprintf(path, sizeof(path), "%s", folder);
	while (!rmdir(path) && (slash = strrchr(path, '/')) && slash != path)
		*slash = 0;
}

void pin_remove(struct bpf_object *bpf, const char *folder)
{
	char path[POLICY_PATH_SIZE];
	struct bpf_map *map;

	bpf_object__for_each_map(map, bpf) if (!pin_path(map, folder, path) && is_ours(map, path))
		unlink(path);
	remove_folders(folder);
}

/* Other users can create links and directories in a bpffs, so symbolic links are not followed anywhere in the
 * path. */
void policy_clear_pins(const char *folder)
{
	struct open_how how = { .flags = FOLDER_FLAGS, .resolve = RESOLVE_NO_SYMLINKS };
	cleanup_close int fd = (int)syscall(SYS_openat2, AT_FDCWD, folder, &how, sizeof(how));
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) || fs.f_type != BPF_FS_MAGIC)
		return;
	if (!empty_folder(bf_take_fd(&fd), folder, PIN_LEVELS, NULL))
		remove_folders(folder);
}

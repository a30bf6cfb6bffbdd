/* The folders of MPS servers. Each belongs to the owner of the domain, who may put anything there at any time. So nothing is
 * followed, and a limited number of files is removed. A GPU server of root has CAP_CHOWN but need not have
 * CAP_DAC_OVERRIDE: it makes a folder its own before it removes what is in it.
 *
 * The folders are in mps_folder of the configuration. By default they are on the file system that the systemd unit mounts for
 * them, which has a limited size, or beside the GPU server's socket if there is none. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/handed.h"
#include "base/own.h"
#include "gpu/gpu.h"
#include "gpu/mps.h"

#define MPS_MOUNT "/run/belfry.mps" /* contrib/systemd/run-belfry.mps.mount */

enum { DEPTH_MOST = 32, FILES_MOST = 4096, LEASE_BACKLOG = 64 };

/* Remove what is in the folder. `left` counts down. */
static void empty_folder(int at, const char *name, unsigned depth, unsigned *left)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	struct stat st;

	if (!folder && fd >= 0)
		close(fd);
	if (folder && !fstat(fd, &st) && st.st_uid != geteuid() &&
	    (fchown(fd, geteuid(), (gid_t)-1) || fchmod(fd, 0700)))
		*left = 0;
	while (folder && *left && (entry = readdir(folder))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		--*left;
		if (!unlinkat(fd, entry->d_name, 0) || depth == DEPTH_MOST)
			continue;
		empty_folder(fd, entry->d_name, depth + 1, left);
		unlinkat(fd, entry->d_name, AT_REMOVEDIR);
	}
	if (folder)
		closedir(folder);
}

void mps_folder_remove(const char *path)
{
	unsigned left = FILES_MOST;

	if (!path[0])
		return;
	empty_folder(AT_FDCWD, path, 0, &left);
	rmdir(path);
}

/* "/run/belfry/belfryd.sock.gpu0" gives "/run/belfry/mps.belfryd.sock.gpu0": belfryd looks for servers at names that
 * begin with that of its socket. */
static int beside_socket(const struct gpu *gpu, char *to)
{
	const char *slash = strrchr(gpu->socket, '/');
	int length = slash ? snprintf(to, MPS_FOLDER_BYTES, "%.*s/mps.%s", (int)(slash - gpu->socket),
				      gpu->socket, slash + 1)
			   : -1;

	return length < 0 || length >= MPS_FOLDER_BYTES ? -ENAMETOOLONG : 0;
}

/* In a folder that several belfryds may use: "/run/belfry.mps/run-belfry-belfryd.sock.gpu0". */
static int in_folder(const struct gpu *gpu, const char *folder, char *to)
{
	int length = snprintf(to, MPS_FOLDER_BYTES, "%s/%s", folder, gpu->socket + 1);

	if (length < 0 || length >= MPS_FOLDER_BYTES)
		return -ENAMETOOLONG;
	for (char *at = to + strlen(folder) + 1; *at; at++)
		if (*at == '/')
			*at = '-';
	return 0;
}

/* Other users can make nothing in it. */
static bool is_own(const char *path, struct stat *st)
{
	return !lstat(path, st) && S_ISDIR(st->st_mode) && (!st->st_uid || st->st_uid == geteuid()) &&
	       !(st->st_mode & 022);
}

/* The folder that the configuration names, or the mounted file system; NULL: neither. */
static const char *chosen_folder(const struct gpu *gpu)
{
	struct stat parent, st;

	if (gpu->settings.mps_folder[0])
		return gpu->settings.mps_folder;
	if (geteuid() || stat("/run", &parent) || !is_own(MPS_MOUNT, &st) || st.st_dev == parent.st_dev)
		return NULL;
	return MPS_MOUNT;
}

static int base_folder(const struct gpu *gpu, char *to)
{
	const char *folder = chosen_folder(gpu);

	return folder ? in_folder(gpu, folder, to) : beside_socket(gpu, to);
}

void mps_folders_begin(const struct gpu *gpu)
{
	char base[MPS_FOLDER_BYTES];

	if (!base_folder(gpu, base))
		mps_folder_remove(base);
	if (!beside_socket(gpu, base)) /* of a server with another configuration */
		mps_folder_remove(base);
}

static int make_base(const struct gpu *gpu, const char *base, struct bf_error *err)
{
	const char *folder = gpu->settings.mps_folder;
	struct stat st;

	if (folder[0] && !is_own(folder, &st))
		return bf_fail(err, EPERM,
			       "mps_folder %s: not a folder of belfryd's user that others cannot write to",
			       folder);
	/* The parent is a folder in which other users make nothing. */
	if ((mkdir(base, 0755) && errno != EEXIST) || lstat(base, &st))
		return bf_fail(err, errno, "%s: %s", base, strerror(errno));
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
		return bf_fail(err, EPERM, "%s: not a folder of belfryd; remove it", base);
	return chmod(base, 0755) ? bf_fail(err, errno, "%s: %s", base, strerror(errno)) : 0;
}

static int give(const char *path, uid_t owner, gid_t group, struct bf_error *err)
{
	if (owner == geteuid() || !chown(path, owner, group))
		return 0;
	return bf_fail(err, errno, "%s: cannot be given to user %u: %s", path, owner, strerror(errno));
}

static int make_private(const char *path, struct bf_error *err)
{
	return mkdir(path, 0700) || chmod(path, 0700)
		       ? bf_fail(err, errno, "%s: cannot be made: %s", path, strerror(errno))
		       : 0;
}

/* The software GPU's libcuda joins the domain whose folder has this file. */
static int make_mark(const char *path, struct bf_error *err)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 ? bf_fail(err, errno, "%s: %s", path, strerror(errno)) : 0;
}

/* Every process that can reach the folder may connect: which one it is decides (lease.c). */
static int make_lease_socket(const char *path, int *listener, struct bf_error *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	bf_handing_allow(fd, false);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || chmod(path, 0666) ||
	    listen(fd, LEASE_BACKLOG))
		return bf_fail(err, errno, "%s: %s", path, strerror(errno));
	*listener = bf_take_fd(&fd);
	return 0;
}

/* The folder itself is given away last: until then only the GPU server can write in it. */
static int fill(const struct mps_owner *owner, const char *folder, bool is_marked, int *listener,
		struct bf_error *err)
{
	char log[MPS_FOLDER_BYTES + 16], mark[MPS_FOLDER_BYTES + 16], lease[MPS_FOLDER_BYTES + 16];
	int rc = make_private(folder, err);

	snprintf(log, sizeof(log), "%s/log", folder);
	snprintf(mark, sizeof(mark), "%s/control", folder);
	snprintf(lease, sizeof(lease), "%s/lease", folder);
	if (!rc)
		rc = make_lease_socket(lease, listener, err);
	if (!rc)
		rc = make_private(log, err);
	if (!rc)
		rc = give(log, owner->uid, owner->gid, err);
	if (!rc && is_marked)
		rc = make_mark(mark, err);
	if (!rc && is_marked)
		rc = give(mark, owner->uid, owner->gid, err);
	return rc ? rc : give(folder, owner->uid, owner->gid, err);
}

int mps_folder_make(const struct gpu *gpu, uint32_t number, const struct mps_owner *owner, bool is_marked,
		    char *to, int *listener, struct bf_error *err)
{
	char base[MPS_FOLDER_BYTES];
	int rc = base_folder(gpu, base),
	    length = rc ? -1 : snprintf(to, MPS_FOLDER_BYTES, "%s/%u", base, number);

	if (length < 0 || length >= MPS_FOLDER_BYTES) {
		to[0] = 0;
		return bf_fail(
			err, ENAMETOOLONG,
			"the path of belfryd's socket is too long for the sockets of MPS in its folder, or in "
			"mps_folder; use a shorter one");
	}
	rc = make_base(gpu, base, err);
	if (rc)
		return rc;
	mps_folder_remove(to);
	return fill(owner, to, is_marked, listener, err);
}

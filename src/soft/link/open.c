/* Device files, and requests to the software GPU as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/own.h"
#include "soft/link/ask.h"
#include "soft/link/link.h"

/* The owner of files whose users a user namespace does not map: /proc/sys/kernel/overflowuid, unless it was changed. */
enum { OVERFLOW_UID = 65534 };

/* Whether users of the host are missing in the user namespace of this process. */
static bool is_mapped_user(void)
{
	static const char all[] = "         0          0 4294967295\n"; /* the format of the kernel */
	char map[sizeof(all)] = "";
	cleanup_close int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && read(fd, map, sizeof(map)) > 0 && strncmp(map, all, sizeof(all) - 1) != 0;
}

/* Whether the directory belongs to root's belfryd, which shares it with other users. In a container with a user namespace
 * root of the host has no number. */
static bool is_roots(const char *folder)
{
	struct stat st;

	if (lstat(folder, &st) || !S_ISDIR(st.st_mode) || st.st_mode & 022)
		return false;
	return !st.st_uid || (st.st_uid == OVERFLOW_UID && is_mapped_user());
}

int link_folder(const char *name, char *to, size_t room, struct bf_error *err)
{
	const char *given = getenv("BELFRY_SOFT_DIR");
	char above[108];
	int length, rc;

	if (given && *given) {
		length = snprintf(to, room, "%s", given);
	} else {
		rc = bf_runtime_folder(above, sizeof(above), err);
		if (rc)
			return rc;
		length = snprintf(to, room, "%s/soft-%s", above, name);
	}
	/* The limit of sockaddr_un.sun_path is 108 bytes. */
	if (length < 0 || (size_t)length >= room || (size_t)length + sizeof("/socket") > 108)
		return bf_fail(
			err, ENAMETOOLONG,
			"directory of the software GPU: the path is too long; set BELFRY_SOFT_DIR to a shorter one");
	return given && *given && is_roots(to) ? 0 : bf_own_folder(to, "BELFRY_SOFT_DIR", err);
}

int link_connect(const char *folder)
{
	return ask_connect(folder);
}

int link_open_from(int connection, uint32_t file)
{
	struct ask a = { .request = { .kind = SOFT_REQUEST_OPEN, .nr = file } };
	int rc = ask(connection, &a);

	if (rc)
		return rc;
	return a.reply_file < 0 ? -EPROTO : a.reply_file;
}

int link_open(const char *folder, uint32_t file)
{
	cleanup_close int connection = link_connect(folder);

	return connection < 0 ? connection : link_open_from(connection, file);
}

static void drop_file(struct ask *a)
{
	if (a->reply_file >= 0)
		close(a->reply_file);
}

static int ask_plain(int fd, struct ask *a)
{
	int rc = ask(fd, a);

	drop_file(a); /* no file was requested */
	return rc;
}

int link_what_is(int fd, uint64_t inode)
{
	struct ask a = { .request = { .kind = SOFT_REQUEST_WHAT_IS, .inode = inode } };

	return ask_plain(fd, &a);
}

int link_supervise(int fd, pid_t root)
{
	struct ask a = { .request = { .kind = SOFT_REQUEST_SUPERVISE, .nr = (uint32_t)root } };

	return ask_plain(fd, &a);
}

static int ask_owner(const char *folder, struct ask *a, struct bf_error *err)
{
	cleanup_close int sock = ask_connect(folder);
	int rc = sock < 0 ? sock : ask_plain(sock, a);

	if (rc == -ENOENT || rc == -ECONNREFUSED)
		return bf_fail(err, -rc, "%s: no software GPU runs here", folder);
	return rc ? bf_fail(err, -rc, "%s: the software GPU does not answer: %s", folder, strerror(-rc)) : 0;
}

int link_status(const char *folder, struct soft_status *status, struct bf_error *err)
{
	struct ask a = { .request = { .kind = SOFT_REQUEST_STATUS, .arg_bytes = sizeof(*status) },
			 .arg = status };

	memset(status, 0, sizeof(*status));
	return ask_owner(folder, &a, err);
}

int link_stop(const char *folder, struct bf_error *err)
{
	struct ask a = { .request = { .kind = SOFT_REQUEST_STOP } };

	return ask_owner(folder, &a, err);
}

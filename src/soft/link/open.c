/* Device files, and what is asked of the software GPU as a whole. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/own.h"
#include "soft/link/ask.h"
#include "soft/link/link.h"

/* That of root's belfryd, which it shares with others. */
static bool is_roots(const char *folder)
{
	struct stat st;

	return !lstat(folder, &st) && S_ISDIR(st.st_mode) && !st.st_uid && !(st.st_mode & 022);
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
	/* 108 bytes are what a socket's path may have. */
	if (length < 0 || (size_t)length >= room || (size_t)length + sizeof("/socket") > 108)
		return bf_fail(err, ENAMETOOLONG,
			       "folder of the software GPU: its path is too long; set BELFRY_SOFT_DIR");
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

	drop_file(a); /* none was asked for */
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

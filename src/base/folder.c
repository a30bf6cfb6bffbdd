#include "base/folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int bf_own_folder(const char *path, const char *variable, struct bf_error *err)
{
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		return bf_fail(err, errno, "%s: cannot be created: %s; set %s to another directory", path,
			       strerror(errno), variable);
	if (lstat(path, &st))
		return bf_fail(err, errno, "%s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022)
		return bf_fail(err, EPERM, "%s: not a directory that only you can write; set %s to another",
			       path, variable);
	return 0;
}

/* BELFRY_RUNTIME_DIR names a directory of another user, probably to use the belfryd of that user. */
static int check_given(const char *path, struct bf_error *err)
{
	struct stat st;

	if (lstat(path, &st) || !S_ISDIR(st.st_mode) || st.st_uid == geteuid())
		return 0;
	return bf_fail(
		err, EPERM,
		"%s: belongs to user %u; set BELFRY_RUNTIME_DIR to a directory of your own; to use a belfryd "
		"of root, unset it and set BELFRY_SOCKET to the socket of that belfryd",
		path, st.st_uid);
}

int bf_runtime_folder(char *to, size_t room, struct bf_error *err)
{
	const char *given = getenv("BELFRY_RUNTIME_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");
	int length;

	if (given && *given)
		length = snprintf(to, room, "%s", given);
	else if (xdg && *xdg)
		length = snprintf(to, room, "%s/belfry", xdg);
	else if (geteuid() == 0)
		length = snprintf(to, room, "/run/belfry");
	else
		length = snprintf(to, room, "/tmp/belfry-%u", geteuid());
	if (length < 0 || (size_t)length >= room)
		return bf_fail(
			err, ENAMETOOLONG,
			"directory for sockets: the path is too long; set BELFRY_RUNTIME_DIR to a shorter one");
	if (given && *given && check_given(to, err))
		return -EPERM;
	return bf_own_folder(to, "BELFRY_RUNTIME_DIR", err);
}

int bf_find_beside(const char *variable, const char *const *candidates, char *path, size_t room)
{
	const char *given = variable ? getenv(variable) : NULL;
	ssize_t length = readlink("/proc/self/exe", path, room - 1);
	char *slash;

	if (given && *given)
		return snprintf(path, room, "%s", given) < (int)room ? 0 : -ENAMETOOLONG;
	path[length > 0 ? length : 0] = 0;
	slash = strrchr(path, '/');
	if (!slash)
		return -ENOENT;
	for (; *candidates; candidates++) {
		snprintf(slash + 1, room - (size_t)(slash + 1 - path), "%s", *candidates);
		if (!access(path, F_OK))
			return 0;
	}
	return -ENOENT;
}

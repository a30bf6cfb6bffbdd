/* A belfryd that runs, but does not admit this user: its socket cannot be connected to, and often not even be seen. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/own.h"
#include "client/talk.h"

enum { ACCEPTS = 0x10000 }; /* __SO_ACCEPTCON, in the column Flags of /proc/net/unix */

/* Whether a line of /proc/net/unix is a socket at this path that accepts connections. */
static bool is_line_of(const char *line, const char *path)
{
	unsigned flags = 0;
	int at = 0;

	return sscanf(line, "%*s %*s %*s %x %*s %*s %*s %n", &flags, &at) == 1 && at && flags & ACCEPTS &&
	       !strcmp(line + at, path);
}

/* The kernel lists the sockets in folders that this user may not enter, too. */
static bool is_listening(const char *path)
{
	cleanup_file FILE *file = fopen("/proc/net/unix", "re");
	cleanup_free char *line = NULL;
	bool is_found = false;
	size_t room = 0;

	while (file && !is_found && getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = 0;
		is_found = is_line_of(line, path);
	}
	return is_found;
}

bool talk_is_barred(const char *path, int rc, uid_t *by)
{
	char above[sizeof(((struct talk_place *)0)->path)];
	struct stat st;
	char *slash;

	if (rc != -EACCES || !is_listening(path))
		return false;
	snprintf(above, sizeof(above), "%s", path);
	slash = strrchr(above, '/');
	if (slash)
		*slash = 0;
	*by = !stat(path, &st) || !stat(above, &st) ? st.st_uid : 0;
	return true;
}

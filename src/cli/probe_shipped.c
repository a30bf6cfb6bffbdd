/* The probes that come with Belfry. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "cli/probe.h"
#include "cli/probe_list.h" /* generated: BELFRY_PROBES, the names of probes, a blank after each */
#include "client/protocol.h"

static bool find(const char *name, int length, char *path, size_t room)
{
	char beside[128], installed[128];
	const char *const candidates[] = { beside, installed, NULL };

	snprintf(beside, sizeof(beside), "probes/%.*s.bpf.o", length, name);
	snprintf(installed, sizeof(installed), "../share/belfry/probes/%.*s.bpf.o", length, name);
	return !bf_find_beside(NULL, candidates, path, room);
}

const char *probe_shipped(char *to, size_t room)
{
	char path[4096];
	size_t used = 0;

	to[0] = 0;
	for (const char *name = BELFRY_PROBES; *name; name += strcspn(name, " ") + 1) {
		int length = (int)strcspn(name, " ");

		if (used < room && find(name, length, path, sizeof(path)))
			used += (size_t)snprintf(to + used, room - used, "%s%.*s", used ? ", " : "", length,
						 name);
	}
	return to[0] ? to : "none, as none is installed";
}

int probe_object_read(const char *name, struct policy_file *file, struct bf_error *err)
{
	char path[4096], names[256];
	int rc;

	if (access(name, F_OK) && errno == ENOENT && !strchr(name, '/') && strlen(name) < 64) {
		if (!find(name, (int)strlen(name), path, sizeof(path)))
			return bf_fail(
				err, ENOENT,
				"%.64s: neither a file nor a probe that comes with Belfry; those are %s",
				name, probe_shipped(names, sizeof(names)));
		name = path;
	}
	rc = policy_file_read(name, file, err);
	if (!rc && file->size > PROTOCOL_PROBE_BYTES) {
		rc = bf_fail(err, EFBIG, "%s: has %zu bytes; a probe has at most %u MiB", file->path,
			     file->size, PROTOCOL_PROBE_BYTES >> 20);
		free(file->bytes);
		file->bytes = NULL;
	}
	return rc;
}

void probe_base_name(const char *path, char *to, size_t room)
{
	const char *base = strrchr(path, '/');
	size_t length;

	base = base ? base + 1 : path;
	length = strcspn(base, ".");
	snprintf(to, room, "%.*s", (int)(length ? length : strlen(base)), base);
}

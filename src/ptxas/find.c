/* Finds the real ptxas. Triton brings one of its own, inside its Python package, and runs this program in its place: the package
 * is found by its library, which is mapped in the process that has started this one. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"
#include "ptxas/ptxas.h"

enum { ANCESTORS_MAX = 8 };

/* Not this program under another name: it would start itself for ever. */
static bool is_usable(const char *path)
{
	struct stat st, self;

	return !access(path, X_OK) && !stat(path, &st) && S_ISREG(st.st_mode) &&
	       (stat("/proc/self/exe", &self) || self.st_dev != st.st_dev || self.st_ino != st.st_ino);
}

/* PACKAGE/_C/libtriton.so: where releases from 2.1 on have ptxas. */
static bool find_in_package(const char *library, size_t length, char *path, size_t room)
{
	static const char *const places[] = { "backends/nvidia/bin/ptxas", "third_party/cuda/bin/ptxas",
					      "third_party/nvidia/bin/ptxas" };
	static const char name[] = "/_C/libtriton";
	const char *found = memmem(library, length, name, sizeof(name) - 1);

	for (unsigned i = 0; found && i < sizeof(places) / sizeof(places[0]); i++) {
		int used = snprintf(path, room, "%.*s/%s", (int)(found - library), library, places[i]);

		if (used > 0 && (size_t)used < room && is_usable(path))
			return true;
	}
	return false;
}

bool ptxas_find_mapped(const char *maps, char *path, size_t room)
{
	while (*maps) {
		size_t length = strcspn(maps, "\n");
		const char *file = memchr(maps, '/', length);

		if (file && find_in_package(file, length - (size_t)(file - maps), path, room))
			return true;
		maps += length + (maps[length] == '\n');
	}
	return false;
}

static char *read_maps(pid_t pid)
{
	cleanup_file FILE *file = NULL, *to = NULL;
	char name[40], part[4096], *text = NULL;
	size_t bytes, length = 0;

	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	file = fopen(name, "re");
	to = file ? open_memstream(&text, &length) : NULL;
	if (!to)
		return NULL;
	while ((bytes = fread(part, 1, sizeof(part), file)))
		fwrite(part, 1, bytes, to);
	fclose(to);
	to = NULL;
	return text;
}

static bool find_in_ancestors(char *path, size_t room)
{
	pid_t pid = getppid();

	for (unsigned i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		cleanup_free char *maps = read_maps(pid);
		struct bf_status status;

		if (maps && ptxas_find_mapped(maps, path, room))
			return true;
		pid = bf_status_read(pid, &status) ? 0 : status.parent;
	}
	return false;
}

static bool find_in_path(char *path, size_t room)
{
	const char *at = getenv("PATH");

	for (at = at ? at : ""; *at; at += strcspn(at, ":"), at += *at == ':') {
		int used = snprintf(path, room, "%.*s/ptxas", (int)strcspn(at, ":"), at);

		if (at[0] == '/' && used > 0 && (size_t)used < room && is_usable(path))
			return true;
	}
	return false;
}

bool ptxas_find(char *path, size_t room)
{
	const char *given = getenv("BELFRY_PTXAS");

	if (given && *given)
		return snprintf(path, room, "%s", given) < (int)room && is_usable(path);
	if (find_in_ancestors(path, room) || find_in_path(path, room))
		return true;
	return snprintf(path, room, "/usr/local/cuda/bin/ptxas") < (int)room && is_usable(path);
}

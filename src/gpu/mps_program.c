/* The control program of MPS: which one, and for which GPU. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gpu/gpu.h"
#include "gpu/mps.h"

/* On the software GPU there is nothing to start, unless the configuration names a program. */
bool mps_needs_program(const struct gpu *gpu)
{
	return gpu->which.kind != PROTOCOL_GPU_SOFT || gpu->settings.mps_control[0];
}

static bool is_program(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && st.st_mode & 0111;
}

static int find_program(const struct gpu *gpu, char *to, size_t room, struct bf_error *err)
{
	static const char name[] = "nvidia-cuda-mps-control";
	const char *path = getenv("PATH");

	if (gpu->settings.mps_control[0]) {
		snprintf(to, room, "%s", gpu->settings.mps_control);
		return is_program(to) ? 0 : bf_fail(err, ENOENT, "%s: not a program", to);
	}
	for (path = path ? path : "/usr/local/bin:/usr/bin:/bin"; *path;
	     path += strcspn(path, ":"), path += *path == ':') {
		int length = snprintf(to, room, "%.*s/%s", (int)strcspn(path, ":"), path, name);

		if (length > 0 && (size_t)length < room && to[0] == '/' && is_program(to))
			return 0;
	}
	return bf_fail(err, ENOENT,
		       "%s is not in PATH of belfryd; set mps_control in [sharing] of belfryd.conf", name);
}

int mps_program_find(const struct gpu *gpu, struct mps_start *start, struct bf_error *err)
{
	int rc = find_program(gpu, start->control, sizeof(start->control), err);

	if (rc || gpu->which.kind == PROTOCOL_GPU_SOFT)
		return rc;
	if (!gpu_uuid_text(gpu, start->devices, sizeof(start->devices)))
		snprintf(start->devices, sizeof(start->devices), "%u", gpu->which.index);
	return 0;
}

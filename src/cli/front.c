#include "cli/front.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"
#include "cli/cli.h"

static const char library_name[] = "libcuda.so.1";

static bool is_there(const char *folder, size_t length, char *path, size_t room)
{
	int used = snprintf(path, room, "%.*s/%s", (int)length, folder, library_name);

	return length && used > 0 && (size_t)used < room && !access(path, R_OK);
}

/* In a run inside a run, the path begins with the library of src/coro already. */
static bool is_own(const char *path, const char *own_folder)
{
	char own[PATH_MAX];
	struct stat one, other;

	return snprintf(own, sizeof(own), "%s/%s", own_folder, library_name) < (int)sizeof(own) &&
	       !stat(path, &one) && !stat(own, &other) && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

/* The libcuda.so.1 that the program would load: the software GPU's, or the driver's. */
static bool find_real(const char *own, char *path, size_t room)
{
	/* As in src/coro/real.c. */
	static const char *const places[] = { "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
					      "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib" };
	const char *at = getenv("LD_LIBRARY_PATH");

	for (at = at ? at : ""; *at; at += strcspn(at, ":"), at += *at == ':') {
		size_t length = strcspn(at, ":");

		if (is_there(at, length, path, room) && !is_own(path, own))
			return true;
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
		if (is_there(places[i], strlen(places[i]), path, room))
			return true;
	return false;
}

static bool find_own(char *folder, size_t room)
{
	static const char *const candidates[] = { "src/coro/libcuda.so.1", "../lib/belfry/coro/libcuda.so.1",
						  "coro/libcuda.so.1", NULL };

	if (bf_find_beside(NULL, candidates, folder, room))
		return false;
	*strrchr(folder, '/') = 0;
	return true;
}

int front_use(struct bf_error *err)
{
	char own[PATH_MAX], real[PATH_MAX];

	if (!find_own(own, sizeof(own)))
		return bf_fail(err, ENOENT, "lib/belfry/coro/%s is not installed", library_name);
	if (!find_real(own, real, sizeof(real)))
		return bf_fail(err, ENOENT, "%s: not found", library_name);
	if (setenv("BELFRY_LIBCUDA", real, 1))
		return bf_fail(err, ENOMEM, "out of memory");
	cli_put_first("LD_LIBRARY_PATH", own);
	return 0;
}

int front_use_lease(const char *mps_folder, struct bf_error *err)
{
	char lease[PATH_MAX];
	int rc = front_use(err);

	if (rc == -ENOENT) {
		bf_log(BF_LOG_WARN, "%s; the program uses all SMs of its domain", err->text);
		return 0;
	}
	snprintf(lease, sizeof(lease), "%s/lease", mps_folder);
	return !rc && setenv("BELFRY_LEASE", lease, 1) ? bf_fail(err, ENOMEM, "out of memory") : rc;
}

int front_use_probes(const char *socket, bool has_library, struct bf_error *err)
{
	int rc = has_library ? 0 : front_use(err);

	if (rc)
		return rc;
	return setenv("BELFRY_PROBES", socket, 1) ? bf_fail(err, ENOMEM, "out of memory") : 0;
}

int front_use_ptxas(struct bf_error *err)
{
	static const char *const candidates[] = { "belfry-ptxas", "../libexec/belfry/belfry-ptxas", NULL };
	const char *given = getenv("TRITON_PTXAS_PATH");
	char path[PATH_MAX];

	if (given && *given)
		return 0;
	if (bf_find_beside(NULL, candidates, path, sizeof(path))) {
		bf_log(BF_LOG_WARN, "belfry-ptxas is not installed; kernels of Triton cannot carry probes");
		return 0;
	}
	return setenv("TRITON_PTXAS_PATH", path, 1) ? bf_fail(err, ENOMEM, "out of memory") : 0;
}

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/units.h"
#include "cli/soft.h"

static int parse_gpu(const char *what, const char *text, struct cli_gpu *gpu, struct bf_error *err)
{
	const char *number = text;
	long index = 0;
	int rc = 0;

	gpu->is_soft = !strncmp(text, "soft", 4);
	if (gpu->is_soft)
		number = text[4] == ':' ? text + 5 : text[4] ? text : "0";
	rc = bf_parse_number(what, number, 0, gpu->is_soft ? SOFT_GPUS_MAX - 1 : 253, &index, err);
	gpu->index = (uint32_t)index;
	gpu->is_said = true;
	return rc;
}

int cli_gpu_parse(const char *text, struct cli_gpu *gpu, struct bf_error *err)
{
	return parse_gpu("--gpu", text, gpu, err);
}

int cli_gpu_parse_soft(const char *text, struct cli_gpu *gpu, struct bf_error *err)
{
	gpu->is_soft = gpu->is_said = true;
	return link_config_parse(text, &gpu->soft, err);
}

int cli_gpu_default(struct cli_gpu *gpu, struct bf_error *err)
{
	const char *which = getenv("BELFRY_GPU"), *soft = getenv("BELFRY_SOFT");
	struct bf_error why = { 0 };

	*gpu = (struct cli_gpu){ .soft = link_default };
	if (soft && *soft && link_config_parse(soft, &gpu->soft, &why))
		return bf_fail(err, why.code, "BELFRY_SOFT: %.360s", why.text);
	return which && *which ? parse_gpu("BELFRY_GPU", which, gpu, err) : 0;
}

void cli_gpu_settle(struct cli_gpu *gpu)
{
	gpu->is_fallback = !gpu->is_said && access("/dev/nvidiactl", F_OK) &&
			   access("/sys/module/nvidia", F_OK);
	gpu->is_soft |= gpu->is_fallback;
}

static bool soft_runs(const struct link_config *config)
{
	struct soft_status status;
	char folder[108];

	return !link_folder(config->name, folder, sizeof(folder), NULL) &&
	       !link_status(folder, &status, NULL);
}

int cli_gpu_start(const struct cli_gpu *gpu, char *folder, size_t room, struct bf_error *err)
{
	bool is_new = gpu->is_fallback && !soft_runs(&gpu->soft);
	int rc = cli_soft_start(&gpu->soft, folder, room, err);

	if (!rc && is_new)
		fputs("belfry: no NVIDIA GPU here; started the software GPU, as with --gpu soft\n", stderr);
	return rc;
}

static int find_server(char *path, size_t room, struct bf_error *err)
{
	static const char *const candidates[] = { "belfry-soft", "../libexec/belfry/belfry-soft", NULL };

	if (bf_find_beside("BELFRY_SOFT_SERVER", candidates, path, room))
		return bf_fail(err, ENOENT,
			       "belfry-soft is not installed; it belongs beside belfry or in libexec/belfry");
	return 0;
}

int cli_soft_library(char *path, size_t room, struct bf_error *err)
{
	static const char *const candidates[] = { "src/soft/cuda/libcuda.so.1",
						  "../lib/belfry/soft/libcuda.so.1", "soft/libcuda.so.1",
						  NULL };

	if (bf_find_beside(NULL, candidates, path, room))
		return bf_fail(
			err, ENOENT,
			"the software GPU's libcuda.so.1 is not installed; it belongs in lib/belfry/soft");
	*strrchr(path, '/') = 0;
	return 0;
}

bool cli_soft_is_here(void)
{
	struct bf_error err;
	char path[PATH_MAX];

	return !find_server(path, sizeof(path), &err) && !cli_soft_library(path, sizeof(path), &err);
}

void cli_put_first(const char *variable, const char *folder)
{
	const char *old = getenv(variable);
	char *both;

	if (!old || !*old)
		setenv(variable, folder, 1);
	else if (asprintf(&both, "%s:%s", folder, old) >= 0) {
		setenv(variable, both, 1);
		free(both);
	}
}

int cli_soft_start(const struct link_config *config, char *folder, size_t room, struct bf_error *err)
{
	char server[PATH_MAX];
	int rc = find_server(server, sizeof(server), err);

	return rc ? rc : link_start(server, config, folder, room, err);
}

int cli_soft_use(const char *folder, struct bf_error *err)
{
	char library[PATH_MAX];
	int rc = cli_soft_library(library, sizeof(library), err);

	if (rc)
		return rc;
	cli_put_first("LD_LIBRARY_PATH", library);
	setenv("BELFRY_SOFT_DIR", folder, 1);
	return 0;
}

int cli_soft_prepare(const struct link_config *config, char *folder, size_t room, struct bf_error *err)
{
	int rc = cli_soft_start(config, folder, room, err);

	return rc ? rc : cli_soft_use(folder, err);
}

/* Checks the configuration against this machine: the accounting file, and the numbers of NVIDIA GPUs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "router/config.h"

/* The directory in which the file is created. */
static void folder_of(const char *path, char *to, size_t room)
{
	const char *slash = strrchr(path, '/');

	snprintf(to, room, "%.*s", slash > path ? (int)(slash - path) : 1, path);
}

/* 0, or the errno of a write to the file or of its creation. */
static int why_not_writable(const char *path, bool is_there)
{
	char folder[sizeof(((struct config *)0)->accounting)];
	struct stat st;

	if (is_there)
		return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) ? errno : 0;
	folder_of(path, folder, sizeof(folder));
	if (stat(folder, &st))
		return errno;
	if (!S_ISDIR(st.st_mode))
		return ENOTDIR;
	return faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) ? errno : 0;
}

int config_check_accounting(const struct config *config, struct bf_error *err)
{
	const char *path = config->accounting;
	struct bf_error why = { 0 };
	struct stat st;
	bool is_there;
	int code;

	if (!path[0])
		return 0;
	is_there = !lstat(path, &st);
	if (is_there && !S_ISREG(st.st_mode)) {
		bf_fail(&why, EINVAL, "accounting '%s': not a plain file; name another", path);
		return config_fail_at(config, config->accounting_file, config->accounting_line, &why, err);
	}
	code = why_not_writable(path, is_there);
	if (!code)
		return 0;
	bf_fail(&why, code, "accounting '%s': %s: %s; name a file in a directory that belfryd can write",
		path, is_there ? "it cannot be written" : "it cannot be created in its directory",
		strerror(code));
	return config_fail_at(config, config->accounting_file, config->accounting_line, &why, err);
}

static bool is_missing(const struct protocol_gpu *gpu, const struct protocol_gpu *there, unsigned count)
{
	if (gpu->kind != PROTOCOL_GPU_NV)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (there[i].kind == PROTOCOL_GPU_NV && there[i].index == gpu->index)
			return false;
	return true;
}

static bool has_nv(const struct protocol_gpu *there, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (there[i].kind == PROTOCOL_GPU_NV)
			return true;
	return false;
}

int config_check_gpus(const struct config *config, const struct protocol_gpu *there, unsigned count,
		      struct bf_error *err)
{
	static const char what[] = "there is no /dev/nvidia%u; belfry info lists the GPUs";
	struct bf_error why = { 0 };
	char text[96];

	/* The files of all GPUs may come later, with the driver. */
	if (!has_nv(there, count))
		return 0;
	for (unsigned i = 0; !config->is_all && i < config->gpu_count; i++) {
		if (!is_missing(&config->gpus[i], there, count))
			continue;
		snprintf(text, sizeof(text), what, config->gpus[i].index);
		bf_fail(&why, ENODEV, "gpus: %s", text);
		if (!config->gpus_line)
			return bf_fail(err, ENODEV, "--gpu %u: %s", config->gpus[i].index, text);
		return config_fail_at(config, config->gpus_file, config->gpus_line, &why, err);
	}
	for (size_t i = 0; i < config->vgpu_count; i++) {
		const struct config_vgpu *vgpu = &config->vgpus[i];

		if (!is_missing(&vgpu->gpu, there, count))
			continue;
		snprintf(text, sizeof(text), what, vgpu->gpu.index);
		bf_fail(&why, ENODEV, "vgpu '%s': gpu: %s", vgpu->name, text);
		return config_fail_at(config, vgpu->file, vgpu->line, &why, err);
	}
	return 0;
}

/* Checks the configuration against this machine: the accounting file, and the numbers of GPUs. */
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

struct served {
	const struct config *config;
	const struct protocol_gpu *there;
	unsigned count, soft_count;
	char *warning;
	size_t room;
};

static void warn(const struct served *served, unsigned file, unsigned line, const char *what)
{
	size_t used = strlen(served->warning);
	struct bf_error why = { 0 }, at = { 0 };

	bf_fail(&why, ENODEV, "%s", what);
	if (line)
		config_fail_at(served->config, file, line, &why, &at);
	snprintf(served->warning + used, served->room - used, "%s%.240s", used ? "\n" : "",
		 line ? at.text : what);
}

/* One GPU that the configuration names in that line; line 0: the command line. `what` begins the message. */
static int check_there(const struct served *served, const char *what, const struct protocol_gpu *gpu,
		       unsigned file, unsigned line, struct bf_error *err)
{
	struct bf_error why = { 0 };

	if (gpu->kind == PROTOCOL_GPU_NV && !has_nv(served->there, served->count)) {
		bf_fail(&why, ENODEV, "%s: there is no /dev/nvidia%u now, nor any other NVIDIA GPU", what,
			gpu->index);
		warn(served, file, line, why.text);
		return 0;
	}
	if (gpu->kind != PROTOCOL_GPU_SOFT || gpu->folder[0] || gpu->index < served->soft_count)
		return 0;
	bf_fail(&why, ENODEV, "%s: there is no soft:%u; the software GPU has %u GPU%s", what, gpu->index,
		served->soft_count, served->soft_count == 1 ? "" : "s");
	return line ? config_fail_at(served->config, file, line, &why, err)
		    : bf_fail(err, ENODEV, "%s", why.text);
}

static bool is_served(const struct served *served, const struct protocol_gpu *gpu)
{
	const struct config *config = served->config;
	const struct protocol_gpu *gpus = config->is_all ? served->there : config->gpus;
	unsigned count = config->is_all ? served->count : config->gpu_count;

	for (unsigned i = 0; i < count; i++)
		if (gpus[i].kind == gpu->kind && gpus[i].index == gpu->index)
			return true;
	return false;
}

static int check_vgpu(const struct served *served, const struct config_vgpu *vgpu, struct bf_error *err)
{
	struct bf_error why = { 0 };
	char what[SPEC_NAME_MAX + 24], name[16];
	int rc;

	if (vgpu->gpu.kind == PROTOCOL_GPU_ANY)
		return 0;
	snprintf(what, sizeof(what), "vgpu '%s': gpu", vgpu->name);
	rc = check_there(served, what, &vgpu->gpu, vgpu->file, vgpu->line, err);
	if (rc || vgpu->gpu.folder[0] || is_served(served, &vgpu->gpu) ||
	    (served->config->is_all && vgpu->gpu.kind == PROTOCOL_GPU_NV))
		return rc;
	bf_fail(&why, ENODEV, "%s %s is not served; add it to gpus in the section [server]", what,
		protocol_gpu_name(&vgpu->gpu, name, sizeof(name)));
	return config_fail_at(served->config, vgpu->file, vgpu->line, &why, err);
}

int config_check_served(const struct config *config, const struct protocol_gpu *there, unsigned count,
			unsigned soft_count, char *warning, size_t room, struct bf_error *err)
{
	const struct served served = { config, there, count, soft_count, warning, room };
	int rc = 0;

	warning[0] = 0;
	for (unsigned i = 0; !rc && !config->is_all && i < config->gpu_count; i++)
		rc = check_there(&served, config->gpus_line ? "gpus" : "--gpu", &config->gpus[i],
				 config->gpus_file, config->gpus_line, err);
	for (size_t i = 0; !rc && i < config->vgpu_count; i++)
		rc = check_vgpu(&served, &config->vgpus[i], err);
	return rc;
}

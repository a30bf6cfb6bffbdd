#include "router/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"

static void write_gpu(FILE *file, const struct protocol_gpu *gpu)
{
	if (gpu->kind == PROTOCOL_GPU_NV)
		fprintf(file, "gpu = %" PRIu32 "\n", gpu->index);
	else if (gpu->kind == PROTOCOL_GPU_SOFT)
		fprintf(file, "gpu = soft:%" PRIu32 "%s%s\n", gpu->index, gpu->folder[0] ? " " : "",
			gpu->folder);
}

static void write_vgpu(FILE *file, const struct config_vgpu *vgpu)
{
	const struct spec *spec = &vgpu->spec;
	char text[32];

	fprintf(file, "\n[vgpu %s]\n", vgpu->name);
	write_gpu(file, &vgpu->gpu);
	fprintf(file, "owner = %u\n", vgpu->owner);
	if (vgpu->is_from_config)
		fputs("from = configuration\n", file);
	if (spec->mem_bytes)
		fprintf(file, "mem = %" PRIu64 "\n", spec->mem_bytes);
	fprintf(file, "time = %s\n", spec_format_time(spec, text, sizeof(text)));
	fprintf(file, "class = %s\n", spec_class_names[spec->class % 2]);
	if (spec->percentile_ppm)
		fprintf(file, "objective = %s\n", spec_format_objective(spec, text, sizeof(text)));
	if (spec->domain[0])
		fprintf(file, "domain = %s\n", spec->domain);
	if (spec_has_sm(spec))
		fprintf(file, "sm = %s\n", spec_format_sm(spec, text, sizeof(text)));
	if (spec->timeslice_us)
		fprintf(file, "timeslice = %" PRIu64 "us\n", spec->timeslice_us);
	if (spec->interleave >= 0)
		fprintf(file, "interleave = %s\n", spec_interleave_names[spec->interleave % 3]);
	if (spec->is_public)
		fputs("public = yes\n", file);
}

/* Write a new file at `path`, and sync it to the disk. */
static int write_all(const char *path, const struct config_vgpu *vgpus, size_t count)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	int rc;

	if (!file)
		return -errno;
	bf_take_fd(&fd);
	fputs("# Written by belfryd: the vGPUs it makes again when it starts. Changes made here while it runs are lost.\n",
	      file);
	for (size_t i = 0; i < count; i++)
		write_vgpu(file, &vgpus[i]);
	rc = fflush(file) || ferror(file) || fsync(fileno(file)) ? -(errno ? errno : EIO) : 0;
	if (fclose(file) && !rc)
		rc = -errno;
	return rc;
}

int state_save(const char *path, const struct config_vgpu *vgpus, size_t count, struct bf_error *err)
{
	char fresh[PATH_MAX];
	int rc;

	if (!count && (!unlink(path) || errno == ENOENT))
		return 0;
	if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
		return bf_fail(err, ENAMETOOLONG, "%s: too long a path; use another --socket", path);
	unlink(fresh); /* left by a process that was killed while writing */
	rc = write_all(fresh, vgpus, count);
	if (!rc && rename(fresh, path))
		rc = -errno;
	if (!rc)
		return 0;
	unlink(fresh);
	return bf_fail(err, -rc, "%s: cannot be written: %s; vGPUs made now are forgotten when belfryd ends",
		       path, strerror(-rc));
}

static void set_aside(const char *path)
{
	char bad[PATH_MAX];

	if (snprintf(bad, sizeof(bad), "%s.bad", path) < (int)sizeof(bad) && rename(path, bad))
		unlink(path);
}

static int read_open(int fd, const char *path, struct config *config, struct bf_error *err)
{
	cleanup_file FILE *file = fdopen(fd, "r");
	cleanup_free char *text = malloc(CONFIG_STATE_MAX);
	size_t length;
	int rc;

	if (!file)
		close(fd);
	if (!file || !text)
		return bf_fail(err, ENOMEM, "%s: no memory", path);
	length = fread(text, 1, CONFIG_STATE_MAX, file);
	if (ferror(file))
		return bf_fail(err, EIO, "%s: cannot be read", path);
	rc = config_parse(config, path, text, length, true, err);
	if (rc && config->vgpu_count)
		config->vgpu_count--; /* the error may be in this one */
	return rc ? rc : config_check(config, err);
}

int state_read(const char *path, struct config *config, struct bf_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc;
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? 0
				       : bf_fail(err, errno, "%s: cannot be read: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
		close(fd);
		return bf_fail(err, EPERM, "%s: not a file of belfryd's own; remove it", path);
	}
	rc = read_open(fd, path, config, err);
	if (rc)
		set_aside(path);
	return rc;
}

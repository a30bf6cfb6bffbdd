/* Adds PTX to a file of machine code. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "ptxas/ptxas.h"

static char *read_file(const char *path, size_t *length, mode_t *mode, struct bf_error *err)
{
	cleanup_close int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	cleanup_free char *bytes = NULL;
	char *taken;
	struct stat st;

	if (file < 0 || fstat(file, &st)) {
		bf_fail(err, errno, "%s: %s", path, strerror(errno));
		return NULL;
	}
	if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > FATBIN_TEXT_MAX_BYTES) {
		bf_fail(err, EINVAL, "%s: not a file of 1 to %d bytes", path, FATBIN_TEXT_MAX_BYTES);
		return NULL;
	}
	bytes = malloc((size_t)st.st_size + 1);
	*length = 0;
	while (bytes && *length < (size_t)st.st_size) {
		ssize_t got = read(file, bytes + *length, (size_t)st.st_size - *length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			bf_fail(err, EIO, "%s: cannot be read", path);
			return NULL;
		}
		*length += (size_t)got;
	}
	if (!bytes) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	bytes[*length] = 0;
	*mode = st.st_mode & 0777;
	taken = bytes;
	bytes = NULL;
	return taken;
}

static int write_all(int file, const uint8_t *bytes, size_t length)
{
	while (length) {
		ssize_t done = write(file, bytes, length);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return -errno;
		bytes += done;
		length -= (size_t)done;
	}
	return 0;
}

/* The file is complete at any time: it is replaced. */
static int replace_file(const char *path, const uint8_t *bytes, size_t length, mode_t mode,
			struct bf_error *err)
{
	char other[PATH_MAX];
	int rc;

	if (snprintf(other, sizeof(other), "%s.belfry-%d", path, getpid()) >= (int)sizeof(other))
		return bf_fail(err, ENAMETOOLONG, "%s: the path is too long", path);
	cleanup_close int file = open(other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (file < 0)
		return bf_fail(err, errno, "%s: %s", other, strerror(errno));
	rc = write_all(file, bytes, length);
	if (!rc && rename(other, path))
		rc = -errno;
	if (!rc)
		return 0;
	unlink(other);
	return bf_fail(err, -rc, "%s: %s", path, strerror(-rc));
}

int ptxas_add_text(const struct ptxas_job *job, struct bf_error *err)
{
	size_t machine_bytes, text_bytes, length;
	cleanup_free char *machine = NULL, *text = NULL;
	cleanup_free uint8_t *image = NULL;
	mode_t mode, unused;
	int rc;

	text = read_file(job->input, &text_bytes, &unused, err);
	if (text)
		machine = read_file(job->output, &machine_bytes, &mode, err);
	if (!machine)
		return -EIO;
	rc = fatbin_pack(machine, machine_bytes, job->target, text, strnlen(text, text_bytes), &image,
			 &length, err);
	return rc ? rc : replace_file(job->output, image, length, mode, err);
}

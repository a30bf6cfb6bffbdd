#include "client/policy_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/own.h"
#include "base/sealed.h"
#include "belfry/policy.h"
#include "client/protocol.h"

static int find(const char *name, char *path, size_t room, struct bf_error *err)
{
	char beside[160], installed[160];
	const char *const candidates[] = { beside, installed, NULL };

	if (snprintf(path, room, "%s", name) >= (int)room)
		return bf_fail(err, ENAMETOOLONG, "%.64s...: too long for the name of a file", name);
	if (!access(name, F_OK))
		return 0;
	if (errno != ENOENT || strchr(name, '/') || strlen(name) >= BELFRY_NAME_SIZE)
		return bf_fail(err, errno, "%s: %s", name, strerror(errno));
	snprintf(beside, sizeof(beside), "policies/%s.bpf.o", name);
	snprintf(installed, sizeof(installed), "../share/belfry/policies/%s.bpf.o", name);
	if (bf_find_beside(NULL, candidates, path, room))
		return bf_fail(
			err, ENOENT,
			"%s: neither a file nor a policy that comes with Belfry; belfry policy --help tells more",
			name);
	return 0;
}

static int read_all(int fd, struct policy_file *file, struct bf_error *err)
{
	for (size_t done = 0; done < file->size;) {
		ssize_t got = read(fd, (char *)file->bytes + done, file->size - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return bf_fail(err, got ? errno : EIO, "%s: cannot be read: %s", file->path,
				       got ? strerror(errno) : "it has become shorter");
		done += (size_t)got;
	}
	return 0;
}

int policy_file_read(const char *name, struct policy_file *file, struct bf_error *err)
{
	cleanup_close int fd = -1;
	struct stat st;
	int rc;

	file->bytes = NULL;
	rc = find(name, file->path, sizeof(file->path), err);
	if (rc)
		return rc;
	fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st))
		return bf_fail(err, errno, "%s: %s", file->path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return bf_fail(err, EINVAL, "%s: not a plain file", file->path);
	if (st.st_size <= 0 || st.st_size > PROTOCOL_POLICY_BYTES)
		return bf_fail(err, EFBIG, "%s: has %lld bytes; a policy has at least 1 and at most %u MiB",
			       file->path, (long long)st.st_size, PROTOCOL_POLICY_BYTES >> 20);
	file->size = (size_t)st.st_size;
	file->bytes = malloc(file->size);
	if (!file->bytes)
		return bf_fail(err, ENOMEM, "%s: no memory for it", file->path);
	rc = read_all(fd, file, err);
	if (rc) {
		free(file->bytes);
		file->bytes = NULL;
	}
	return rc;
}

int policy_file_seal(const struct policy_file *file, struct bf_error *err)
{
	int fd = bf_sealed_file("belfry-object", file->bytes, file->size);

	return fd < 0 ? bf_fail(err, -fd, "%s: cannot be sent: %s", file->path, strerror(-fd)) : fd;
}

size_t policy_file_sets(char *text, const char *between, const char **sets)
{
	size_t count = 0;
	char *rest = NULL;

	for (char *set = strtok_r(text, between, &rest); set && count < POLICY_FILE_SETS_MAX;
	     set = strtok_r(NULL, between, &rest))
		sets[count++] = set;
	return count;
}

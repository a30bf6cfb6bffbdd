#include "base/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/own.h"

int bf_sealed_file(const char *name, const void *bytes, size_t size)
{
	cleanup_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	for (size_t done = 0; fd >= 0 && done < size;) {
		ssize_t wrote = pwrite(fd, (const char *)bytes + done, size - done, (off_t)done);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return wrote < 0 ? -errno : -EIO;
		done += (size_t)wrote;
	}
	if (fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
		return -errno;
	return bf_take_fd(&fd);
}

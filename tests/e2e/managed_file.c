#include "managed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "stage.h"

/* One card at a time is changed. */
static struct device_ops ops;
static const struct device_ops *soft_ops;
static char path_of_file[128];
static dev_t device_of_file;
static ino_t inode_of_file;

static enum device_file classify(struct device *device, const struct stat *st)
{
	if (st->st_dev == device_of_file && st->st_ino == inode_of_file)
		return DEVICE_FILE_MANAGED;
	return soft_ops->classify(device, st);
}

static int open_kind(struct device *device, enum device_file kind)
{
	int fd;

	if (kind != DEVICE_FILE_MANAGED)
		return soft_ops->open(device, kind);
	fd = open(path_of_file, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Every call is taken, and does nothing. */
static int managed_call(struct device *device, struct proxy *owner, int fd, uint32_t cmd, void *arg)
{
	(void)device, (void)owner, (void)fd, (void)cmd, (void)arg;
	return 0;
}

static void path_in(const char *folder, char *path, size_t room)
{
	CHECK(snprintf(path, room, "%s/managed", folder) < (int)room);
}

void managed_file_add(struct card *card)
{
	struct stat st;
	int fd;

	path_in(card->folder, path_of_file, sizeof(path_of_file));
	fd = open(path_of_file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !ftruncate(fd, 4 << 20) && !fstat(fd, &st));
	close(fd);
	device_of_file = st.st_dev;
	inode_of_file = st.st_ino;
	soft_ops = card->device->ops;
	ops = *soft_ops;
	ops.classify = classify;
	ops.open = open_kind;
	ops.managed_call = managed_call;
	card->device->ops = &ops;
}

int managed_file_open(const char *folder)
{
	char path[128];

	path_in(folder, path, sizeof(path));
	return open(path, O_RDWR | O_CLOEXEC);
}

#include "managed_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "stage.h"

/* One card at a time is changed. */
static struct device_ops ops;
static const struct device_ops *soft_ops;
static dev_t device_of_file;
static ino_t inode_of_file;

static enum device_file classify(struct device *device, const struct stat *st)
{
	if (st->st_dev == device_of_file && st->st_ino == inode_of_file)
		return DEVICE_FILE_MANAGED;
	return soft_ops->classify(device, st);
}

static void path_in(const char *folder, char *path, size_t room)
{
	CHECK(snprintf(path, room, "%s/managed", folder) < (int)room);
}

void managed_file_add(struct card *card)
{
	char path[128];
	struct stat st;
	int fd;

	path_in(card->folder, path, sizeof(path));
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !ftruncate(fd, 4 << 20) && !fstat(fd, &st));
	close(fd);
	device_of_file = st.st_dev;
	inode_of_file = st.st_ino;
	soft_ops = card->device->ops;
	ops = *soft_ops;
	ops.classify = classify;
	card->device->ops = &ops;
}

int managed_file_open(const char *folder)
{
	char path[128];

	path_in(folder, path, sizeof(path));
	return open(path, O_RDWR | O_CLOEXEC);
}

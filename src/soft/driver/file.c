/* Open device files. */
#include <errno.h>
#include <stdlib.h>

#include "soft/driver/state.h"

struct file *file_new(struct driver *driver, uint32_t minor, uint64_t inode, int *rc)
{
	struct file *file;

	*rc = -ENODEV;
	if (minor != SOFT_FILE_CONTROL && minor >= driver->config.gpus)
		return NULL;
	*rc = -ENOMEM;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	*rc = 0;
	file->refs = 2; /* one for the driver until it is closed, and one for the caller */
	file->driver = driver;
	file->minor = minor;
	file->inode = inode;
	list_init(&file->clients);
	pthread_mutex_lock(&driver->lock);
	list_add(&driver->files, &file->of_driver);
	driver->file_count++;
	pthread_mutex_unlock(&driver->lock);
	return file;
}

struct file *file_get(struct file *file)
{
	atomic_fetch_add(&file->refs, 1);
	return file;
}

void file_put(struct file *file)
{
	if (!file || atomic_fetch_sub(&file->refs, 1) != 1)
		return;
	file_put(file->control);
	free(file);
}

uint32_t file_minor(const struct file *file)
{
	return file->minor;
}

struct file *file_find(struct driver *driver, uint64_t inode)
{
	struct file *found = NULL;

	pthread_mutex_lock(&driver->lock);
	list_each(link, &driver->files)
	{
		struct file *file = list_of(link, struct file, of_driver);

		if (file->inode == inode) {
			found = file_get(file);
			break;
		}
	}
	pthread_mutex_unlock(&driver->lock);
	return found;
}

void file_close(struct file *file)
{
	struct driver *driver = file->driver;
	struct reap reap;
	bool was_closed;

	reap_init(&reap);
	pthread_mutex_lock(&driver->lock);
	was_closed = file->is_closed;
	file->is_closed = true;
	if (!was_closed) {
		list_remove(&file->of_driver);
		driver->closing_count++;
		list_each_safe(link, after, &file->clients)
			client_free(list_of(link, struct client, of_file), &reap);
	}
	pthread_mutex_unlock(&driver->lock);
	reap_run(&reap);
	if (was_closed)
		return;
	/* After reap_run: a thread that reads a file_count of 0 finds none of their objects either. */
	pthread_mutex_lock(&driver->lock);
	driver->file_count--;
	if (!--driver->closing_count)
		pthread_cond_broadcast(&driver->is_quiet);
	pthread_mutex_unlock(&driver->lock);
	file_put(file);
}

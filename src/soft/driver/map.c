/* MAP_MEMORY prepares a file for the mmap that follows: one map per file, as in the real driver
 * (nv-usermap.c). */
#include <errno.h>
#include <fcntl.h>

#include "base/number.h"
#include "soft/driver/state.h"

static uint64_t bytes_of(const struct object *object)
{
	return object->kind == OBJECT_BELL ? SOFT_BELL_BYTES : object->memory.block->bytes;
}

static bool is_inside(const struct object *object, uint64_t offset, uint64_t bytes)
{
	uint64_t all = bytes_of(object);

	return bytes && bytes <= all && offset <= all - bytes;
}

uint32_t map_prepare(struct site *site, struct client *client, struct object *object, uint64_t offset,
		     uint64_t bytes)
{
	struct file *file = site->call->named;

	if (!file || file->is_closed)
		return RM_ERR_INVALID_ARGUMENT;
	if (file->minor != SOFT_FILE_CONTROL && file->minor != object->gpu)
		return RM_ERR_INVALID_ARGUMENT;
	if (file->prepared.is_valid)
		return ERR_STATE_IN_USE;
	file->prepared = (struct prepared){ .is_valid = true,
					    .client = client->serial,
					    .object = object->handle,
					    .offset = offset,
					    .bytes = bytes };
	return RM_OK;
}

static uint32_t map_locked(struct site *site)
{
	struct client *client = client_of(site, site->rm.client);
	struct object *object;

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	if (!object_find(client, site->rm.parent, OBJECT_DEVICE | OBJECT_SUBDEVICE))
		return RM_ERR_INVALID_OBJECT_PARENT;
	object = object_find(client, site->rm.object, OBJECT_MEMORY | OBJECT_BELL);
	if (!object)
		return ERR_NOT_FOUND;
	if (site->rm.offset % SOFT_PAGE_BYTES)
		return ERR_INVALID_OFFSET;
	if (!is_inside(object, site->rm.offset, site->rm.bytes))
		return ERR_INVALID_LIMIT;
	return map_prepare(site, client, object, site->rm.offset, site->rm.bytes);
}

uint32_t site_map(struct site *site)
{
	uint32_t status;

	pthread_mutex_lock(&site->driver->lock);
	status = map_locked(site);
	pthread_mutex_unlock(&site->driver->lock);
	if (!status) /* the real driver returns a kernel address; only 0 is an offset that mmap accepts */
		bf_put64(site->call->arg + offsetof(struct rm_arg_map, address), 0);
	return status;
}

uint32_t site_unmap(struct site *site)
{
	struct client *client;
	uint32_t status = RM_OK;

	pthread_mutex_lock(&site->driver->lock);
	client = client_of(site, site->rm.client);
	if (!client)
		status = RM_ERR_INVALID_CLIENT;
	else if (!object_find(client, site->rm.object, OBJECT_MEMORY | OBJECT_BELL))
		status = ERR_NOT_FOUND;
	pthread_mutex_unlock(&site->driver->lock);
	return status; /* the program itself unmaps the mapping */
}

static struct client *find_serial(struct driver *driver, uint64_t serial)
{
	list_each(link, &driver->clients)
	{
		struct client *client = list_of(link, struct client, of_driver);

		if (client->serial == serial)
			return client;
	}
	return NULL;
}

static int map_file(struct driver *driver, struct file *file, uint64_t bytes, uint64_t offset, uint64_t *base)
{
	const struct prepared *prepared = &file->prepared;
	struct client *client = prepared->is_valid ? find_serial(driver, prepared->client) : NULL;
	struct object *object = client ? object_find(client, prepared->object, OBJECT_MEMORY | OBJECT_BELL)
				       : NULL;
	uint64_t whole = bf_round_up(prepared->bytes, SOFT_PAGE_BYTES);
	int fd;

	if (!object || !is_inside(object, prepared->offset, prepared->bytes))
		return -EINVAL;
	if (!bytes || offset % SOFT_PAGE_BYTES || bytes > whole || offset > whole - bytes)
		return -EINVAL;
	*base = prepared->offset;
	fd = object->kind == OBJECT_BELL ? hw_gpu_bell_file(driver->gpus[object->gpu])
					 : hw_memory_file(object->memory.block->hw);
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3); /* the memory may close its own descriptor */
	return fd < 0 ? -errno : fd;
}

int driver_map(struct driver *driver, struct file *file, uint64_t bytes, uint64_t offset, uint64_t *base)
{
	int rc;

	pthread_mutex_lock(&driver->lock);
	rc = file->is_closed ? -EBADF : map_file(driver, file, bytes, offset, base);
	pthread_mutex_unlock(&driver->lock);
	return rc;
}

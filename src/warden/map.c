/* Mappings. A program prepares a mapping with MAP_MEMORY, which names a descriptor, and then maps that
 * descriptor. The driver prepares the mapping on a file of the warden, and that file replaces the program's
 * for the mmap: the program's own file is never mapped. The file stays at the descriptor. If the kernel
 * supports it (device.h), that file accepts no driver call. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"
#include "warden/state.h"

enum { DOORBELL_BYTES_MAX = 1 << 20 };

bool site_is_doorbell(const struct site *site, uint32_t memory)
{
	struct ledger_object *object = ledger_find(site->warden->ledger, site->call.client, memory);

	return object && object->kind == RM_KIND_DOORBELL;
}

static void expected_free(struct warden *warden, struct expected_map *expected)
{
	LIST_REMOVE(expected, next);
	if (expected->prepared >= 0)
		close(expected->prepared);
	warden_give_descriptors(warden, 1);
	free(expected);
}

void expected_gone(struct process *process)
{
	while (!LIST_EMPTY(&process->expected))
		expected_free(process->warden, LIST_FIRST(&process->expected));
}

void expected_forget(struct warden *warden, uint32_t client, uint32_t object)
{
	struct expected_map *e, *after;

	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		LIST_FOREACH_SAFE(e, &p->expected, next, after)
			if (e->client == client && e->object == object)
				expected_free(warden, e);
}

/* One mapping for each descriptor: an earlier one can no longer be made. */
static void expected_forget_fd(struct process *process, int fd)
{
	struct expected_map *e, *after;

	LIST_FOREACH_SAFE(e, &process->expected, next, after)
		if (e->fd == fd)
			expected_free(process->warden, e);
}

static int expected_add(struct process *process, const struct expected_map *what)
{
	struct expected_map *expected;

	expected_forget_fd(process, what->fd);
	if (!warden_take_descriptors(process->warden, 1))
		return -EMFILE;
	expected = malloc(sizeof(*expected));
	if (!expected) {
		warden_give_descriptors(process->warden, 1);
		return -ENOMEM;
	}
	*expected = *what;
	LIST_INSERT_HEAD(&process->expected, expected, next);
	return 0;
}

/* Answer success: the next mmap of this descriptor gets a doorbell page. */
static struct answer map_doorbell(struct site *site)
{
	struct expected_map expected = { .fd = site->call.fd,
					 .bytes = site->call.bytes,
					 .is_doorbell = true,
					 .client = site->call.client,
					 .object = site->call.object,
					 .prepared = -1 };
	uint64_t address = 0;
	int rc;

	if (expected.bytes < 4096 || expected.bytes > DOORBELL_BYTES_MAX || site->call.offset ||
	    expected.fd < 0)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	rc = expected_add(site->process, &expected);
	if (rc)
		return RETURN(rc);
	/* The driver would return an address here, which is used only as an offset into the file. */
	memcpy(site->arg.now + offsetof(struct rm_arg_map, address), &address, sizeof(address));
	return site_status(site, RM_OK);
}

static struct answer map_memory(struct site *site)
{
	struct device *device = site->warden->device;
	const size_t fd_at = offsetof(struct rm_arg_map, fd);
	cleanup_close int prepared = device->ops->open_for_map(device, site->warden->owner, site->named_kind);
	struct expected_map expected = { .fd = site->call.fd,
					 .bytes = site->call.bytes,
					 .client = site->call.client,
					 .object = site->call.object,
					 .prepared = prepared };
	int rc;

	if (prepared < 0)
		return RETURN(prepared);
	memcpy(site->arg.now + fd_at, &prepared, sizeof(prepared));
	rc = site_perform_as_owner(site);
	memcpy(site->arg.now + fd_at, &site->call.fd, sizeof(site->call.fd));
	if (rc || site_status_of(site))
		return RETURN(rc);
	rc = expected_add(site->process, &expected);
	if (!rc)
		bf_take_fd(&prepared);
	return RETURN(rc);
}

struct answer site_map_memory(struct site *site)
{
	struct ledger_object *object =
		ledger_find(site->warden->ledger, site->call.client, site->call.object);

	if (object && object->kind == RM_KIND_DOORBELL)
		return map_doorbell(site);
	/* The driver made it in a call that the kernel continued: pages of the program, which are mapped
	 * already. */
	if (!object)
		return site_status(site, RM_ERR_INVALID_OBJECT_HANDLE);
	if (object->kind == RM_KIND_CHANNEL)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "the mapping of a channel's USERD");
	/* A mapping for the kernel itself names no file. */
	if (site->named_kind != DEVICE_FILE_CONTROL && site->named_kind != DEVICE_FILE_GPU)
		return site_refuse(site, RM_ERR_INVALID_ARGUMENT, "a mapping without a device file");
	return map_memory(site);
}

static struct expected_map *find_expected(struct site *site, uint64_t bytes)
{
	struct expected_map *e;

	LIST_FOREACH(e, &site->process->expected, next)
		if ((!e->is_doorbell || e->bytes == bytes) &&
		    (e->fd == site->fd || bf_same_file((pid_t)site->request->pid, e->fd, site->fd)))
			return e;
	return NULL;
}

static int open_expected(struct site *site, const struct expected_map *expected)
{
	struct device *device = site->warden->device;
	uint64_t bytes = site->request->data.args[1], offset = site->request->data.args[5];
	int fd;

	if (expected->is_doorbell)
		return doorbell_open(site->process, expected);
	if (device->ops->map_file)
		return device->ops->map_file(device, site->warden->owner, expected->prepared, bytes, offset);
	fd = fcntl(expected->prepared, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

/* The mmap of a control file or of a GPU file. Without a prepared mapping there is nothing to map. */
struct answer site_mmap(struct site *site, uint64_t bytes)
{
	struct expected_map *expected = find_expected(site, bytes);

	if (!expected)
		return RETURN(-EINVAL);
	site->put_fd = open_expected(site, expected);
	if (site->put_fd < 0)
		return RETURN(site->put_fd);
	expected_free(site->warden, expected);
	return CONTINUE;
}

/* The RM clients of the vGPU, and calls on their behalf. The driver accepts a call for a client only through
 * the client's own control file, which the warden holds. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "warden/state.h"

struct client *client_find(const struct warden *warden, uint32_t handle)
{
	for (struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		if (c->handle == handle)
			return c;
	return NULL;
}

/* A library makes a few for each process. The driver's table of clients is shared by all programs. */
enum { CLIENTS_MAX = 1024 };

bool client_has_room(const struct warden *warden)
{
	unsigned count = 0;

	for (const struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		count++;
	return count < CLIENTS_MAX;
}

struct client *client_of_user(const struct site *site, uint32_t handle)
{
	struct client *client = client_find(site->warden, handle);

	return client && client->uid == site->process->uid ? client : NULL;
}

bool site_names_known_client(const struct site *site, const struct copy *copy, int at)
{
	uint32_t client = 0;

	if (at < 0 || copy->bytes < at + sizeof(client))
		return true;
	memcpy(&client, copy->now + at, sizeof(client));
	return !client || client_of_user(site, client);
}

struct client *client_add(struct site *site, uint32_t handle)
{
	struct client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	*client = (struct client){
		.handle = handle,
		.pid = site->process->pid,
		.uid = site->process->uid,
		.file = site->file,
	};
	LIST_INSERT_HEAD(&site->warden->clients, client, next);
	return client;
}

void client_gone(struct warden *warden, struct client *client)
{
	ledger_remove(warden->ledger, client->handle, client->handle);
	LIST_REMOVE(client, next);
	free(client);
}

int client_call(struct warden *warden, struct client *client, uint32_t nr, void *arg, uint32_t size,
		const uint32_t *status)
{
	struct device *device = warden->device;
	int rc = client->file->fd < 0 ? -EBADF : device->ops->call(device, client->file->fd, nr, arg, size);

	return rc ? rc : (int)*status;
}

int client_control(struct warden *warden, struct client *client, uint32_t object, uint32_t cmd, void *params,
		   uint32_t size)
{
	struct rm_arg_control arg = { .client = client->handle,
				      .object = object,
				      .cmd = cmd,
				      .params = (uintptr_t)params,
				      .size = size };

	return client_call(warden, client, RM_ESC_CONTROL, &arg, sizeof(arg), &arg.status);
}

int client_group_time(struct warden *warden, struct client *client, uint32_t group, uint64_t *gpu_ns)
{
	struct device *device = warden->device;

	if (client->file->fd < 0)
		return -EBADF;
	return device->ops->time_of(device, client->file->fd, client->handle, group, gpu_ns);
}

uint64_t warden_named_bytes(const struct warden *warden)
{
	uint64_t bytes = 0;

	for (const struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		bytes += ledger_named(warden->ledger, c->handle);
	return bytes;
}

uint64_t process_named_bytes(const struct process *process)
{
	const struct warden *warden = process->warden;
	uint64_t bytes = 0;

	for (const struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		if (c->pid == process->pid)
			bytes += ledger_named(warden->ledger, c->handle);
	return bytes;
}

bool process_has_class(const struct process *process, uint32_t class_id)
{
	const struct warden *warden = process->warden;

	for (const struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		if (c->pid == process->pid && ledger_has_class(warden->ledger, c->handle, class_id))
			return true;
	return false;
}

uint64_t warden_driver_bytes(struct warden *warden)
{
	struct device_use use;

	if (warden->device->ops->use_of(warden->device, proxy_pid(warden->owner), &use))
		return 0;
	return use.own_bytes + use.imported_bytes;
}

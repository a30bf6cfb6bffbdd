/* Clients are created through a control file and freed with it. */
#include <stdlib.h>

#include "soft/driver/state.h"

#define FIRST_HANDLE 0xc1d00000u
#define LAST_HANDLE 0xc1dfffffu

struct client *client_get(struct client *client)
{
	atomic_fetch_add(&client->refs, 1);
	return client;
}

void client_put(struct client *client)
{
	if (client && atomic_fetch_sub(&client->refs, 1) == 1)
		free(client);
}

struct client *client_by_handle(const struct driver *driver, uint32_t handle)
{
	list_each(link, &driver->clients)
	{
		struct client *client = list_of(link, struct client, of_driver);

		if (client->handle == handle)
			return client;
	}
	return NULL;
}

/* The driver accepts calls for a client through the file that created it, or through a file registered with
 * that one (rmclientValidate, RmIoctl). */
struct client *client_of(const struct site *site, uint32_t handle)
{
	struct file *file = site->call->file, *speaks = file->control ? file->control : file;

	if (file->is_closed)
		return NULL;
	list_each(link, &speaks->clients)
	{
		struct client *client = list_of(link, struct client, of_file);

		if (client->handle == handle)
			return client;
	}
	return NULL;
}

static uint32_t choose_handle(struct driver *driver)
{
	do
		driver->next_client = driver->next_client >= FIRST_HANDLE && driver->next_client < LAST_HANDLE
					      ? driver->next_client + 1
					      : FIRST_HANDLE + 1;
	while (client_by_handle(driver, driver->next_client));
	return driver->next_client;
}

uint32_t client_new(struct site *site, uint32_t *handle)
{
	struct driver *driver = site->driver;
	struct file *file = site->call->file;
	struct client *client;

	if (file->is_closed)
		return RM_ERR_INVALID_CLIENT;
	if (driver->client_count >= CLIENTS_MAX)
		return ERR_INSUFFICIENT_RESOURCES;
	client = calloc(1, sizeof(*client));
	if (!client)
		return RM_ERR_NO_MEMORY;
	client->refs = 1;
	client->driver = driver;
	client->handle = choose_handle(driver);
	client->serial = ++driver->next_serial;
	client->pid = site->call->pid;
	client->file = file;
	list_init(&client->children);
	list_add(&driver->clients, &client->of_driver);
	driver->client_count++;
	list_add(&file->clients, &client->of_file);
	*handle = client->handle;
	return RM_OK;
}

/* Drops the file's reference. */
void client_free(struct client *client, struct reap *reap)
{
	reap->is_all = true;
	while (!list_is_empty(&client->children))
		object_free(list_of(client->children.next, struct object, of_parent), reap);
	client->is_dead = true;
	domain_leave(client);
	list_remove(&client->of_file);
	client->file = NULL;
	list_remove(&client->of_driver);
	client->driver->client_count--;
	client_put(client);
}

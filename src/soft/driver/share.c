/* DUP_OBJECT and SHARE: another handle for memory, in the same or in another client. A process may duplicate
 * objects of its own clients; others only if their owner has shared them with that client. */
#include <stdlib.h>

#include "soft/driver/state.h"

enum {
	/* rs_access.h */
	SHARE_TYPE_CLIENT = 3,
	SHARE_REVOKE = 1 << 0,
	SHARE_REQUIRE = 1 << 1,
	ACCESS_DUP = 1 << 0,
};

static struct share **find_share(struct object *object, uint64_t with, unsigned *count)
{
	struct share **at = &object->shares;

	for (*count = 0; *at; at = &(*at)->next, ++*count)
		if ((*at)->with == with)
			break;
	return at;
}

static bool is_shared(struct object *object, uint64_t with)
{
	unsigned count;

	return *find_share(object, with, &count) != NULL;
}

static uint32_t share_with(struct object *object, uint64_t with)
{
	unsigned count;
	struct share **at = find_share(object, with, &count);

	if (*at)
		return RM_OK;
	if (count >= SHARES_MAX)
		return ERR_INSUFFICIENT_RESOURCES;
	*at = calloc(1, sizeof(**at));
	if (!*at)
		return RM_ERR_NO_MEMORY;
	(*at)->with = with;
	return RM_OK;
}

static void unshare_with(struct object *object, uint64_t with)
{
	unsigned count;
	struct share **at = find_share(object, with, &count), *found = *at;

	if (found) {
		*at = found->next;
		free(found);
	}
}

static uint32_t share_locked(struct site *site, const struct rm_arg_share *arg)
{
	struct client *client = client_of(site, arg->client), *target;
	struct object *object;

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	object = object_find(client, arg->object, ~0u);
	if (!object)
		return ERR_NOT_FOUND;
	if (arg->type != SHARE_TYPE_CLIENT || arg->access_mask != ACCESS_DUP || arg->action & SHARE_REQUIRE)
		return RM_ERR_NOT_SUPPORTED;
	target = client_by_handle(site->driver, arg->target);
	if (!target)
		return RM_ERR_INVALID_CLIENT;
	if (arg->action & SHARE_REVOKE) {
		unshare_with(object, target->serial);
		return RM_OK;
	}
	return share_with(object, target->serial);
}

uint32_t site_share(struct site *site)
{
	struct rm_arg_share arg;
	uint32_t status;

	memcpy(&arg, site->call->arg, sizeof(arg));
	pthread_mutex_lock(&site->driver->lock);
	status = share_locked(site, &arg);
	pthread_mutex_unlock(&site->driver->lock);
	return status;
}

static uint32_t dup_locked(struct site *site, struct object *object, uint32_t *handle)
{
	struct client *client = client_of(site, site->rm.client);
	struct client *owner = client_by_handle(site->driver, site->rm.source_client);
	struct object *parent, *source;
	uint32_t status;

	if (!client || !owner)
		return RM_ERR_INVALID_CLIENT;
	source = object_find(owner, site->rm.source_object, ~0u);
	parent = object_find(client, site->rm.parent, OBJECT_DEVICE);
	if (!source || !parent)
		return ERR_NOT_FOUND;
	if (owner != client && owner->pid != client->pid && !is_shared(source, client->serial))
		return RM_ERR_INSUFFICIENT_PERMISSIONS;
	if (source->kind != OBJECT_MEMORY)
		return RM_ERR_INVALID_ARGUMENT;
	object->class_id = source->class_id;
	object->gpu = source->gpu;
	status = object_attach(client, parent, object, *handle);
	if (status)
		return status;
	memory_join(source->memory.block, object);
	*handle = object->handle;
	return RM_OK;
}

uint32_t site_dup(struct site *site)
{
	struct object *object = object_new(site->driver, 0, OBJECT_MEMORY);
	uint32_t handle = site->rm.object, status;

	if (!object)
		return RM_ERR_NO_MEMORY;
	pthread_mutex_lock(&site->driver->lock);
	status = dup_locked(site, object, &handle);
	pthread_mutex_unlock(&site->driver->lock);
	object_put(object);
	if (!status)
		bf_put32(site->call->arg + site->rm.object_at, handle);
	return status;
}

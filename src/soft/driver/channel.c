/* Channel groups and channels. */
#include <errno.h>

#include "base/log.h"
#include "soft/driver/state.h"

enum {
	/* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS */
	GROUP_ERROR_AT = 0,
	GROUP_SPACE_AT = 8,
	/* NV_CHANNEL_ALLOC_PARAMS: fields that rm/rm.h does not list */
	CHANNEL_ERROR_AT = 0,
	CHANNEL_SPACE_AT = 28,
	CHANNEL_CID_AT = 132,
	TIMESLICE_US = 2000, /* hw's default */
};

static uint32_t make_group(struct site *site, uint32_t gpu, uint32_t class_id, struct object **made)
{
	struct object *group = object_new(site->driver, class_id, OBJECT_GROUP);

	if (!group || hw_group_new(site->driver->gpus[gpu], &group->group.hw) ||
	    hw_group_set_domain(group->group.hw, domain_of_group(site))) {
		object_put(group);
		return RM_ERR_NO_MEMORY;
	}
	group->gpu = gpu;
	group->group.timeslice_us = TIMESLICE_US;
	*made = group;
	return RM_OK;
}

/* Resolves the group's defaults for its channels. */
static uint32_t resolve_group(struct site *site, struct object *group)
{
	const uint8_t *params = site->call->params;
	uint32_t error = bf_get32(params + GROUP_ERROR_AT), space = bf_get32(params + GROUP_SPACE_AT);
	struct client *client = client_of(site, site->rm.client);
	struct object *found;

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	if (error) {
		group->group.notifier = memory_find(client, error);
		if (!group->group.notifier)
			return ERR_NOT_FOUND;
	}
	if (space) {
		found = space_find(client, space);
		if (!found)
			return ERR_NOT_FOUND;
		group->group.space = hw_space_get(found->space.hw);
	}
	return RM_OK;
}

uint32_t group_alloc(struct site *site, uint32_t gpu, struct object **object)
{
	uint32_t status;

	if (site->call->params_bytes && site->call->params_bytes != site->driver->layout->group_size)
		return RM_ERR_INVALID_ARGUMENT;
	status = make_group(site, gpu, site->rm.class_id, object);
	if (status || !site->call->params_bytes)
		return status;
	pthread_mutex_lock(&site->driver->lock);
	status = resolve_group(site, *object);
	pthread_mutex_unlock(&site->driver->lock);
	if (status)
		object_put(*object);
	return status;
}

static struct object *device_of(struct object *object)
{
	while (object && object->kind != OBJECT_DEVICE)
		object = object->parent;
	return object;
}

/* A channel uses the space it names, else its group's, else the device's default. */
static uint32_t resolve_space(struct client *client, struct object *parent, uint32_t handle,
			      struct hw_channel_options *options)
{
	struct object *space;

	if (!handle && parent->kind == OBJECT_GROUP && parent->group.space) {
		options->space = hw_space_get(parent->group.space);
		return RM_OK;
	}
	space = handle ? space_find(client, handle) : space_default(device_of(parent));
	if (!space)
		return ERR_NOT_FOUND;
	options->space = hw_space_get(space->space.hw);
	return RM_OK;
}

static uint32_t resolve_memory(struct client *client, struct object *parent, const struct site *site,
			       struct hw_channel_options *options)
{
	const struct rm_layout *layout = site->driver->layout;
	const uint8_t *params = site->call->params;
	uint32_t error = bf_get32(params + CHANNEL_ERROR_AT);

	options->userd = memory_find(client, bf_get32(params + layout->channel_userd_memory));
	options->userd_offset = bf_get64(params + layout->channel_userd_offset);
	if (!options->userd)
		return ERR_NOT_FOUND;
	if (options->userd_offset % 4 ||
	    options->userd_offset > hw_memory_bytes(options->userd) - USERD_BYTES)
		return ERR_INVALID_OFFSET;
	if (error)
		options->notifier = memory_find(client, error);
	else if (parent->kind == OBJECT_GROUP && parent->group.notifier)
		options->notifier = hw_memory_get(parent->group.notifier);
	return error && !options->notifier ? ERR_NOT_FOUND : RM_OK;
}

/* Resolves all objects that the channel refers to, and takes references. */
static uint32_t resolve(struct site *site, struct hw_channel_options *options, struct object **group)
{
	const struct rm_layout *layout = site->driver->layout;
	const uint8_t *params = site->call->params;
	struct client *client = client_of(site, site->rm.client);
	struct object *parent;
	uint32_t status;

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	parent = object_find(client, site->rm.parent, OBJECT_GROUP | OBJECT_DEVICE);
	if (!parent)
		return RM_ERR_INVALID_OBJECT_PARENT;
	options->ring_address = bf_get64(params + layout->channel_gpfifo_offset);
	options->ring_entries = bf_get32(params + layout->channel_gpfifo_entries);
	status = resolve_space(client, parent, bf_get32(params + CHANNEL_SPACE_AT), options);
	if (!status)
		status = resolve_memory(client, parent, site, options);
	if (!status && parent->kind == OBJECT_GROUP)
		*group = object_get(parent);
	return status;
}

static void put_options(struct hw_channel_options *options)
{
	if (options->space)
		hw_space_put(options->space);
	if (options->userd)
		hw_memory_put(options->userd);
	if (options->notifier)
		hw_memory_put(options->notifier);
}

static uint32_t make_channel(struct site *site, uint32_t gpu, struct hw_channel_options *options,
			     struct object *group, struct object **made)
{
	struct object *channel = object_new(site->driver, site->rm.class_id, OBJECT_CHANNEL);
	struct bf_error err = { 0 };
	uint32_t status = RM_OK;

	if (!channel) {
		object_put(group);
		return RM_ERR_NO_MEMORY;
	}
	channel->gpu = gpu;
	channel->channel.is_alone = !group;
	if (!group)
		status = make_group(site, gpu, 0xa06c, &group);
	channel->channel.group = status ? NULL : group;
	if (!status) {
		options->group = group->group.hw;
		if (hw_channel_new(options, &channel->channel.hw, &err)) {
			bf_log(BF_LOG_DEBUG, "a channel was refused: %s", err.text);
			status = err.code == ENOMEM || err.code == ENOSPC ? ERR_INSUFFICIENT_RESOURCES
									  : RM_ERR_INVALID_ARGUMENT;
		}
	}
	if (status)
		object_put(channel);
	else
		*made = channel;
	return status;
}

uint32_t channel_alloc(struct site *site, uint32_t gpu, struct object **object)
{
	struct hw_channel_options options = { 0 };
	struct object *group = NULL;
	uint32_t status;

	if (site->call->params_bytes != site->driver->layout->channel_size)
		return RM_ERR_INVALID_ARGUMENT;
	pthread_mutex_lock(&site->driver->lock);
	status = resolve(site, &options, &group);
	pthread_mutex_unlock(&site->driver->lock);
	if (!status)
		status = make_channel(site, gpu, &options, group, object);
	put_options(&options);
	if (!status)
		bf_put32(site->call->params + CHANNEL_CID_AT, hw_channel_token((*object)->channel.hw));
	return status;
}

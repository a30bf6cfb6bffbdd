/* Creates and finds objects, and enters them into and removes them from a client's tables. */
#include <stdlib.h>

#include "soft/driver/state.h"

#define FIRST_HANDLE 0xcaf00000u /* of handles chosen here; those of libraries begin at 0x5c000000 */

struct object *object_new(struct driver *driver, uint32_t class_id, enum object_kind kind)
{
	struct object *object = calloc(1, sizeof(*object));

	if (!object)
		return NULL;
	object->refs = 1;
	object->driver = driver;
	object->class_id = class_id;
	object->kind = kind;
	list_init(&object->of_parent);
	list_init(&object->children);
	switch (kind) {
	case OBJECT_MEMORY:
		list_init(&object->memory.of_block);
		list_init(&object->memory.maps);
		break;
	case OBJECT_SPACE:
		list_init(&object->space.maps);
		list_init(&object->space.ranges);
		break;
	case OBJECT_VIRTUAL:
		list_init(&object->range.of_space);
		break;
	default:
		break;
	}
	return object;
}

struct object *object_get(struct object *object)
{
	atomic_fetch_add(&object->refs, 1);
	return object;
}

static void drop_group(struct object *object)
{
	if (object->group.hw)
		hw_group_put(object->group.hw);
	if (object->group.space)
		hw_space_put(object->group.space);
	if (object->group.notifier)
		hw_memory_put(object->group.notifier);
}

static void drop_range(struct object *object)
{
	/* An object that was never attached is still in the list. */
	pthread_mutex_lock(&object->driver->lock);
	list_remove(&object->range.of_space);
	pthread_mutex_unlock(&object->driver->lock);
	object_put(object->range.space);
}

static void drop_code(struct object *object)
{
	if (object->code.is_settled)
		hw_space_remove_code(object->code.space, object->handle);
	if (object->code.hw)
		hw_code_put(object->code.hw);
	if (object->code.space)
		hw_space_put(object->code.space);
}

/* Releases the object's resources; hw may take long for that. */
static void drop_payload(struct object *object)
{
	switch (object->kind) {
	case OBJECT_MEMORY:
		memory_leave(object);
		break;
	case OBJECT_SPACE:
		if (object->space.hw)
			hw_space_put(object->space.hw);
		break;
	case OBJECT_VIRTUAL:
		drop_range(object);
		break;
	case OBJECT_DEVICE:
		object_put(object->device.space);
		break;
	case OBJECT_GROUP:
		drop_group(object);
		break;
	case OBJECT_CHANNEL:
		if (object->channel.hw)
			hw_channel_put(object->channel.hw);
		object_put(object->channel.group);
		break;
	case OBJECT_CODE:
		drop_code(object);
		break;
	default:
		break;
	}
}

void object_put(struct object *object)
{
	if (!object || atomic_fetch_sub(&object->refs, 1) != 1)
		return;
	drop_payload(object);
	for (struct share *share = object->shares, *next; share; share = next) {
		next = share->next;
		free(share);
	}
	if (object->client)
		client_put(object->client);
	free(object);
}

static struct object **bucket_of(struct client *client, uint32_t handle)
{
	return &client->buckets[(handle * 2654435761u) >> 22]; /* 10 bits of a multiplicative hash */
}

struct object *object_find(const struct client *client, uint32_t handle, unsigned kinds)
{
	struct object *object = *bucket_of((struct client *)(uintptr_t)client, handle);

	while (object && object->handle != handle)
		object = object->chain;
	return object && (object->kind & kinds) ? object : NULL;
}

static uint32_t choose_handle(struct client *client)
{
	do
		client->next_handle = client->next_handle < FIRST_HANDLE ? FIRST_HANDLE
									 : client->next_handle + 1;
	while (client->next_handle == client->handle || object_find(client, client->next_handle, ~0u));
	return client->next_handle;
}

uint32_t object_attach(struct client *client, struct object *parent, struct object *object, uint32_t handle)
{
	struct object **bucket;

	if (client->is_dead)
		return RM_ERR_INVALID_CLIENT;
	if (parent && parent->is_dead)
		return RM_ERR_INVALID_OBJECT_PARENT;
	if (client->object_count >= OBJECTS_MAX)
		return ERR_INSUFFICIENT_RESOURCES;
	if (!handle)
		handle = choose_handle(client);
	else if (handle == client->handle)
		return RM_ERR_INVALID_OBJECT_HANDLE;
	else if (object_find(client, handle, ~0u))
		return ERR_NAME_TAKEN;
	object->handle = handle;
	object->client = client_get(client);
	object->parent = parent;
	list_add(parent ? &parent->children : &client->children, &object->of_parent);
	bucket = bucket_of(client, handle);
	object->chain = *bucket;
	*bucket = object;
	client->object_count++;
	client->driver->channel_count += object->kind == OBJECT_CHANNEL;
	object_get(object); /* the table's reference */
	return RM_OK;
}

static void leave_tables(struct object *object)
{
	struct client *client = object->client;
	struct object **at = bucket_of(client, object->handle);

	while (*at != object)
		at = &(*at)->chain;
	*at = object->chain;
	list_remove(&object->of_parent);
	client->object_count--;
	client->driver->channel_count -= object->kind == OBJECT_CHANNEL;
	object->is_dead = true;
}

static void leave_others(struct object *object, struct reap *reap)
{
	switch (object->kind) {
	case OBJECT_MEMORY:
		memory_free_maps(object, reap);
		list_remove(&object->memory.of_block);
		break;
	case OBJECT_SPACE:
		space_free_maps(object, reap);
		break;
	case OBJECT_VIRTUAL:
		space_free_maps(object, reap);
		list_remove(&object->range.of_space);
		break;
	case OBJECT_DEVICE:
		if (object->device.space) {
			object->device.space->is_dead = true;
			space_free_maps(object->device.space, reap);
		}
		break;
	default:
		break;
	}
}

/* Frees children first. The depth is limited, because each kind restricts the kinds of its parents. */
void object_free(struct object *object, struct reap *reap)
{
	while (!list_is_empty(&object->children))
		object_free(list_of(object->children.next, struct object, of_parent), reap);
	leave_tables(object);
	leave_others(object, reap);
	list_add(&reap->objects, &object->of_parent);
}

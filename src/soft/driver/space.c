/* Address spaces: their maps and reservations. */
#include "soft/driver/state.h"

uint32_t space_alloc(struct site *site, uint32_t gpu, struct object **made)
{
	struct object *object = object_new(site->driver, site->rm.class_id, OBJECT_SPACE);

	if (!object || hw_space_new(site->driver->gpus[gpu], &object->space.hw)) {
		object_put(object);
		return RM_ERR_NO_MEMORY;
	}
	object->gpu = gpu;
	*made = object;
	return RM_OK;
}

/* Most programs create an address space; this one is for those that pass handle 0. */
struct object *space_default(struct object *device)
{
	struct object *space = device->device.space;

	if (space)
		return space;
	space = object_new(device->driver, 0x90f1, OBJECT_SPACE);
	if (!space)
		return NULL;
	if (hw_space_new(device->driver->gpus[device->gpu], &space->space.hw)) {
		object_put(space); /* nothing uses it yet, so this does not block */
		return NULL;
	}
	space->gpu = device->gpu;
	device->device.space = space;
	return space;
}

struct object *space_find(const struct client *client, uint32_t handle)
{
	struct object *object = object_find(client, handle, OBJECT_SPACE | OBJECT_VIRTUAL | OBJECT_DEVICE);

	if (!object)
		return NULL;
	if (object->kind == OBJECT_DEVICE)
		return space_default(object);
	if (object->kind == OBJECT_VIRTUAL)
		object = object->range.space;
	return object->is_dead ? NULL : object;
}

bool space_is_reserved(struct object *space, uint64_t base, uint64_t bytes, uint64_t *end)
{
	list_each(link, &space->space.ranges)
	{
		struct object *range = list_of(link, struct object, range.of_space);

		if (base < range->range.base + range->range.bytes && range->range.base < base + bytes) {
			*end = range->range.base + range->range.bytes;
			return true;
		}
	}
	return false;
}

uint64_t space_pick(struct object *space, uint64_t from, uint64_t bytes, uint64_t align)
{
	for (;;) {
		uint64_t base = hw_space_find(space->space.hw, from, bytes, align);

		if (!base || base + bytes > 1ull << SOFT_ADDRESS_BITS)
			return 0;
		if (!space_is_reserved(space, base, bytes, &from))
			return base;
	}
}

void space_free_maps(struct object *object, struct reap *reap)
{
	bool is_range = object->kind == OBJECT_VIRTUAL;
	struct object *space = is_range ? object->range.space : object;

	list_each_safe(link, after, &space->space.maps)
	{
		struct dma_map *map = list_of(link, struct dma_map, of_space);

		if (!is_range || (map->address >= object->range.base &&
				  map->address < object->range.base + object->range.bytes))
			reap_map(reap, map);
	}
}

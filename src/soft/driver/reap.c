/* Releases what was removed from the tables. Channels go first, so that their work ends without a fault; then
 * maps, so that the GPU cannot access released memory. */
#include <stdlib.h>

#include "soft/driver/state.h"

void reap_init(struct reap *reap)
{
	list_init(&reap->objects);
	list_init(&reap->maps);
	reap->is_all = false;
}

void reap_map(struct reap *reap, struct dma_map *map)
{
	list_remove(&map->of_memory);
	list_remove(&map->of_space);
	map->client->map_count--;
	list_add(&reap->maps, &map->of_space);
}

static void put_objects(struct reap *reap, unsigned kinds)
{
	list_each_safe(link, after, &reap->objects)
	{
		struct object *object = list_of(link, struct object, of_parent);

		if (object->kind & kinds) {
			list_remove(link);
			object_put(object);
		}
	}
}

void reap_run(struct reap *reap)
{
	put_objects(reap, OBJECT_CHANNEL);
	list_each_safe(link, after, &reap->maps)
	{
		struct dma_map *map = list_of(link, struct dma_map, of_space);

		if (!reap->is_all)
			hw_space_unmap(map->hw, map->address, map->bytes);
		hw_space_put(map->hw);
		client_put(map->client);
		free(map);
	}
	put_objects(reap, ~0u);
}

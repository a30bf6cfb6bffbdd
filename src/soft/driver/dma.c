/* MAP_MEMORY_DMA and UNMAP_MEMORY_DMA: map memory into an address space. */
#include <errno.h>
#include <stdlib.h>

#include "base/number.h"
#include "soft/driver/state.h"

enum {
	/* NVOS46 in 580; older series have no flags2 */
	MAP_DEVICE_AT = 4,
	MAP_SPACE_AT = 8,
	MAP_MEMORY_AT = 12,
	MAP_OFFSET_AT = 16,
	MAP_LENGTH_AT = 24,
	MAP_FLAGS_AT = 32,
	MAP_BYTES = 64,
	MAP_ADDRESS_AT = 48,
	MAP_OLD_ADDRESS_AT = 40,
	MAP_ACCESS = 3,
	MAP_ACCESS_READ_ONLY = 1,
	MAP_FIXED_ADDRESS = 1 << 15,
	/* NVOS47 */
	UNMAP_ADDRESS_AT = 24,
	UNMAP_SIZE_AT = 32,
};
#define PICK_FROM (1ull << 32)
#define ADDRESS_END (1ull << SOFT_ADDRESS_BITS)

struct wish {
	struct object *target, *space, *memory;
	uint64_t offset, bytes, address;
	uint32_t flags;
};

static uint32_t resolve(struct client *client, const uint8_t *arg, struct wish *wish)
{
	if (!object_find(client, bf_get32(arg + MAP_DEVICE_AT), OBJECT_DEVICE | OBJECT_SUBDEVICE))
		return RM_ERR_INVALID_DEVICE;
	wish->target = object_find(client, bf_get32(arg + MAP_SPACE_AT), ~0u);
	wish->space = space_find(client, bf_get32(arg + MAP_SPACE_AT));
	wish->memory = object_find(client, bf_get32(arg + MAP_MEMORY_AT), OBJECT_MEMORY);
	return wish->space && wish->memory ? RM_OK : ERR_NOT_FOUND;
}

static uint32_t check_extent(struct wish *wish, const uint8_t *arg)
{
	uint64_t all = wish->memory->memory.block->bytes;

	wish->offset = bf_get64(arg + MAP_OFFSET_AT);
	wish->bytes = bf_get64(arg + MAP_LENGTH_AT);
	wish->flags = bf_get32(arg + MAP_FLAGS_AT);
	if (wish->offset % SOFT_PAGE_BYTES || wish->offset >= all)
		return ERR_INVALID_OFFSET;
	if (!wish->bytes || wish->bytes > all - wish->offset)
		return ERR_INVALID_LIMIT;
	/* Memory consists of whole pages, so this stays within it. */
	wish->bytes = bf_round_up(wish->bytes, SOFT_PAGE_BYTES);
	return RM_OK;
}

/* In a space: any address, or the given one with the flag. In a range: relative to it, or absolute with the
 * flag. */
static uint32_t choose_address(struct wish *wish)
{
	bool is_fixed = wish->flags & MAP_FIXED_ADDRESS;
	struct object *range = wish->target->kind == OBJECT_VIRTUAL ? wish->target : NULL;
	uint64_t end;

	if (range) {
		uint64_t base = range->range.base, at = is_fixed ? wish->address - base : wish->address;

		if (wish->bytes > range->range.bytes || at > range->range.bytes - wish->bytes ||
		    (is_fixed && wish->address < base))
			return RM_ERR_INVALID_ARGUMENT;
		wish->address = base + at;
	} else if (!is_fixed) {
		wish->address = space_pick(wish->space, PICK_FROM, wish->bytes, SOFT_VIDMEM_ROUND);
		return wish->address ? RM_OK : RM_ERR_NO_MEMORY;
	} else if (wish->bytes > ADDRESS_END || wish->address > ADDRESS_END - wish->bytes) {
		return RM_ERR_INVALID_ARGUMENT;
	} else if (space_is_reserved(wish->space, wish->address, wish->bytes, &end)) {
		return RM_ERR_NO_MEMORY;
	}
	return wish->address && wish->address % SOFT_PAGE_BYTES == 0 ? RM_OK : RM_ERR_INVALID_ARGUMENT;
}

static uint32_t insert(struct client *client, const struct wish *wish)
{
	struct dma_map *map;
	int rc;

	if (client->map_count >= MAPS_MAX)
		return ERR_INSUFFICIENT_RESOURCES;
	map = calloc(1, sizeof(*map));
	if (!map)
		return RM_ERR_NO_MEMORY;
	rc = hw_space_map(wish->space->space.hw, wish->address, wish->memory->memory.block->hw, wish->offset,
			  wish->bytes, (wish->flags & MAP_ACCESS) != MAP_ACCESS_READ_ONLY);
	if (rc) {
		free(map);
		return rc == -EEXIST || rc == -ENOMEM ? RM_ERR_NO_MEMORY : RM_ERR_INVALID_ARGUMENT;
	}
	map->hw = hw_space_get(wish->space->space.hw);
	map->address = wish->address;
	map->bytes = wish->bytes;
	map->memory = wish->memory->handle;
	map->client = client_get(client);
	client->map_count++;
	list_add(&wish->space->space.maps, &map->of_space);
	list_add(&wish->memory->memory.maps, &map->of_memory);
	return RM_OK;
}

uint32_t site_map_dma(struct site *site)
{
	uint8_t *arg = site->call->arg;
	uint8_t *address = arg + (site->rm.size == MAP_BYTES ? MAP_ADDRESS_AT : MAP_OLD_ADDRESS_AT);
	struct wish wish = { .address = bf_get64(address) };
	struct client *client;
	uint32_t status;

	pthread_mutex_lock(&site->driver->lock);
	client = client_of(site, site->rm.client);
	status = client ? resolve(client, arg, &wish) : RM_ERR_INVALID_CLIENT;
	if (!status)
		status = check_extent(&wish, arg);
	if (!status)
		status = choose_address(&wish);
	if (!status)
		status = insert(client, &wish);
	pthread_mutex_unlock(&site->driver->lock);
	if (!status)
		bf_put64(address, wish.address);
	return status;
}

static struct dma_map *find_map(struct object *space, uint32_t memory, uint64_t address)
{
	list_each(link, &space->space.maps)
	{
		struct dma_map *map = list_of(link, struct dma_map, of_space);

		if (map->address == address && map->memory == memory)
			return map;
	}
	return NULL;
}

uint32_t site_unmap_dma(struct site *site)
{
	uint8_t *arg = site->call->arg;
	uint64_t bytes = bf_get64(arg + UNMAP_SIZE_AT);
	struct object *space = NULL;
	struct dma_map *map = NULL;
	struct client *client;
	uint32_t status = RM_OK;
	struct reap reap;

	reap_init(&reap);
	pthread_mutex_lock(&site->driver->lock);
	client = client_of(site, site->rm.client);
	if (client)
		space = space_find(client, bf_get32(arg + MAP_SPACE_AT));
	if (space)
		map = find_map(space, bf_get32(arg + MAP_MEMORY_AT), bf_get64(arg + UNMAP_ADDRESS_AT));
	if (!client)
		status = RM_ERR_INVALID_CLIENT;
	else if (!map)
		status = ERR_NOT_FOUND;
	else if (bytes && bf_round_up(bytes, SOFT_PAGE_BYTES) != map->bytes)
		status = RM_ERR_INVALID_ARGUMENT; /* the real driver can unmap a part; not needed here */
	else
		reap_map(&reap, map);
	pthread_mutex_unlock(&site->driver->lock);
	reap_run(&reap);
	return status;
}

void memory_free_maps(struct object *object, struct reap *reap)
{
	list_each_safe(link, after, &object->memory.maps)
		reap_map(reap, list_of(link, struct dma_map, of_memory));
}

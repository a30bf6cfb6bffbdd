/* Limits and places of maps. The layout is in probe.h. */
#include <errno.h>
#include <string.h>

#include "base/number.h"
#include "probe/inside.h"

static uint32_t power_of_two(uint64_t least)
{
	uint32_t power = 1;

	while (power < least)
		power *= 2;
	return power;
}

static uint32_t key_room(const struct probe_map *map)
{
	return (uint32_t)bf_round_up(map->key_bytes, 8);
}

uint64_t maps_hash(const void *key, uint32_t bytes)
{
	uint64_t hash = HASH_FACTOR;

	for (uint32_t at = 0; at < bytes; at += 8) {
		uint64_t word = 0;

		memcpy(&word, (const char *)key + at, bf_min(8, bytes - at));
		hash = (hash ^ word) * HASH_FACTOR;
		hash ^= hash >> 32;
	}
	return hash;
}

static int check_ring(const struct probe_map *map, struct bf_error *err)
{
	if (map->max_entries < 64 || map->max_entries & (map->max_entries - 1))
		return bf_fail(err, EINVAL, "map %s: the size of a ring must be a power of two, at least 64",
			       map->name);
	return 0;
}

static int check_map(const struct probe_map *map, struct bf_error *err)
{
	bool is_array = map->kind == PROBE_MAP_ARRAY || map->kind == PROBE_MAP_SM_ARRAY;

	if (!map->max_entries || map->max_entries > 1u << 28)
		return bf_fail(err, EINVAL, "map %s: it has %u entries; the limits are 1 and %u", map->name,
			       map->max_entries, 1u << 28);
	if (map->kind == PROBE_MAP_RING)
		return check_ring(map, err);
	if (map->kind == PROBE_MAP_DATA && map->value_bytes && map->value_bytes <= 1u << 20)
		return 0;
	if (!map->value_bytes || map->value_bytes > PROBE_VALUE_BYTES_MAX)
		return bf_fail(err, EINVAL, "map %s: a value has %u bytes; the limits are 1 and %d",
			       map->name, map->value_bytes, PROBE_VALUE_BYTES_MAX);
	if (is_array && map->key_bytes != 4)
		return bf_fail(err, EINVAL, "map %s: the key of an array has 4 bytes", map->name);
	if (!map->key_bytes || map->key_bytes > PROBE_KEY_BYTES_MAX)
		return bf_fail(err, EINVAL, "map %s: a key has %u bytes; the limits are 1 and %d", map->name,
			       map->key_bytes, PROBE_KEY_BYTES_MAX);
	return 0;
}

/* Entries are below 2^28, slots of SMs below 2^16 and strides below 2^20: the products fit 64 bits. */
static uint64_t place(const struct probe *probe, struct probe_map *map, uint64_t at)
{
	map->stride = (uint32_t)bf_round_up(map->value_bytes, 8);
	map->slot_stride = (uint64_t)map->max_entries * map->stride;
	map->slots = map->kind == PROBE_MAP_SM_ARRAY ? probe->slots : 1;
	map->states = at;
	if (map->kind == PROBE_MAP_HASH) {
		map->slots = power_of_two(2ull * map->max_entries);
		map->keys = bf_round_up(at + 4ull * map->slots, 8);
		map->values = map->keys + (uint64_t)map->slots * key_room(map);
		map->value_area_bytes = (uint64_t)map->slots * map->stride;
	} else if (map->kind == PROBE_MAP_RING) {
		map->values = at + sizeof(struct probe_ring);
		map->value_area_bytes = map->max_entries;
	} else {
		if (map->slots > 1)
			map->slot_stride = bf_round_up(map->slot_stride, CACHE_LINE_BYTES);
		map->values = map->slots > 1 ? bf_round_up(at, CACHE_LINE_BYTES) : at;
		map->value_area_bytes = map->slots * map->slot_stride;
	}
	return bf_round_up(map->values + map->value_area_bytes, 64);
}

static bool has_event(const struct probe *probe, enum belfry_probe_event event)
{
	for (size_t i = 0; i < probe->program_count; i++)
		if (probe->programs[i].info.event == event)
			return true;
	return false;
}

static uint64_t place_ends(struct probe *probe, uint64_t at)
{
	bool has_grids = has_event(probe, BELFRY_PROBE_KERNEL_EXIT);

	if (has_grids) {
		probe->grid_ends = at;
		at += ENDS_GRIDS * sizeof(struct end_slot);
	}
	if (has_grids || has_event(probe, BELFRY_PROBE_BLOCK_EXIT)) {
		probe->block_ends = at;
		at += ENDS_BLOCKS * sizeof(struct end_slot);
	}
	return at;
}

int maps_place(struct probe *probe, struct bf_error *err)
{
	uint64_t at = sizeof(struct probe_area);

	for (size_t i = 0; i < probe->code.map_count; i++) {
		struct probe_map *map = &probe->code.maps[i];
		int rc = check_map(map, err);

		if (rc)
			return rc;
		at = place(probe, map, at);
		if (at > PROBE_AREA_BYTES_MAX)
			return bf_fail(err, EFBIG,
				       "map %s: the maps are too large; the maximum for all maps is %llu MiB",
				       map->name, PROBE_AREA_BYTES_MAX >> 20);
	}
	probe->area_bytes = place_ends(probe, at);
	return 0;
}

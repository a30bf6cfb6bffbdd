/* The host's side of an area. Another program can write to it at any time, so every number that is read from
 * it is read once and checked. */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/number.h"
#include "probe/inside.h"

uint64_t probe_area_bytes(const struct probe *probe)
{
	return probe->area_bytes;
}

uint64_t probe_area_times(const struct probe *probe)
{
	return probe->times;
}

bool probe_needs_time(const struct probe *probe)
{
	const struct probe_program *program;
	const struct probe_field *field;

	for (size_t i = 0; (program = probe_program_at(probe, i)); i++)
		for (size_t k = 0; (field = probe_field_at(k)); k++)
			if (program->fields >> k & 1 &&
			    field->offset == offsetof(struct belfry_probe_ctx, submitted_ns))
				return true;
	return false;
}

void probe_area_init(const struct probe *probe, void *area)
{
	struct probe_area head = { .magic = BELFRY_PROBE_MAGIC, .abi = BELFRY_PROBE_ABI };

	memset(area, 0, probe->area_bytes);
	memcpy(area, &head, sizeof(head));
	for (size_t i = 0; i < probe->code.map_count; i++) {
		const struct probe_map *map = &probe->code.maps[i];

		if (map->initial)
			memcpy((char *)area + map->values, map->initial, map->value_bytes);
	}
}

static uint8_t *value_at(const struct probe_map *map, void *area, uint64_t slot, uint64_t index)
{
	return (uint8_t *)area + map->values + slot * map->slot_stride + index * map->stride;
}

static uint8_t *key_at(const struct probe_map *map, void *area, uint64_t slot)
{
	return (uint8_t *)area + map->keys + slot * bf_round_up(map->key_bytes, 8);
}

static uint32_t state_at(const struct probe_map *map, const void *area, uint64_t slot)
{
	return bf_get32((const char *)area + map->states + 4 * slot);
}

static void *hash_value(const struct probe_map *map, void *area, const void *key)
{
	uint64_t hash = maps_hash(key, map->key_bytes);
	uint32_t tag = (uint32_t)(hash >> 32) & ~3u;

	for (uint32_t i = 0; i < HASH_CHAIN_MAX && i < map->slots; i++) {
		uint64_t slot = (hash + i) & (map->slots - 1);
		uint32_t state = state_at(map, area, slot);

		if (!state)
			return NULL;
		if ((state & ~3u) == tag && (state & 3) != PROBE_SLOT_BUSY &&
		    !memcmp(key_at(map, area, slot), key, map->key_bytes))
			return (state & 3) == PROBE_SLOT_FULL ? value_at(map, area, 0, slot) : NULL;
	}
	return NULL;
}

void *probe_value(const struct probe_map *map, void *area, const void *key, uint32_t slot)
{
	uint32_t index;

	if (map->kind == PROBE_MAP_RING)
		return NULL;
	if (map->kind == PROBE_MAP_HASH)
		return hash_value(map, area, key);
	index = map->kind == PROBE_MAP_DATA ? 0 : bf_get32(key);
	if (index >= map->max_entries || slot >= map->slots)
		return NULL;
	return value_at(map, area, slot, index);
}

bool probe_next(const struct probe_map *map, void *area, uint64_t *cursor, struct probe_entry *entry)
{
	uint64_t count = map->kind == PROBE_MAP_HASH ? map->slots : (uint64_t)map->slots * map->max_entries;

	if (map->kind == PROBE_MAP_RING)
		return false;
	while (*cursor < count) {
		uint64_t at = (*cursor)++;

		*entry = (struct probe_entry){ 0 };
		if (map->kind != PROBE_MAP_HASH) {
			entry->index = (uint32_t)(at % map->max_entries);
			entry->slot = (uint32_t)(at / map->max_entries);
			entry->value = value_at(map, area, entry->slot, entry->index);
			return true;
		}
		entry->key = key_at(map, area, at);
		entry->value = value_at(map, area, 0, at);
		if ((state_at(map, area, at) & 3) == PROBE_SLOT_FULL)
			return true;
	}
	return false;
}

static uint8_t *word_at(const struct probe_map *map, void *area, uint64_t position)
{
	return (uint8_t *)area + map->values + (position & (map->max_entries - 8));
}

/* Producers expect zeros in what they reserve. */
static void release(const struct probe_map *map, void *area, uint64_t tail, uint64_t bytes)
{
	struct probe_ring *ring = (struct probe_ring *)((char *)area + map->states);

	for (uint64_t at = 0; at < bytes; at += 8)
		bf_put64(word_at(map, area, tail + at), 0);
	__atomic_store_n(&ring->tail, tail + bytes, __ATOMIC_RELEASE);
}

static int empty_ring(const struct probe_map *map, void *area, uint64_t head)
{
	release(map, area, head & ~7ull, map->max_entries);
	__atomic_store_n(&((struct probe_ring *)((char *)area + map->states))->tail, head & ~7ull,
			 __ATOMIC_RELEASE);
	return -EPROTO;
}

int probe_ring_take(const struct probe_map *map, void *area, void *to, size_t room)
{
	struct probe_ring *ring = (struct probe_ring *)((char *)area + map->states);
	uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
	uint64_t tail = __atomic_load_n(&ring->tail, __ATOMIC_RELAXED), word, length, bytes;

	if (head == tail)
		return -EAGAIN;
	if (tail & 7 || head & 7 || head - tail > map->max_entries)
		return empty_ring(map, area, head);
	word = __atomic_load_n((uint64_t *)(void *)word_at(map, area, tail), __ATOMIC_ACQUIRE);
	if (!word)
		return -EAGAIN; /* reserved, and not written yet */
	length = word & ~PROBE_RECORD_DONE;
	bytes = 8 + bf_round_up(bf_min(length, PROBE_RECORD_BYTES_MAX), 8);
	if (!(word & PROBE_RECORD_DONE) || length > PROBE_RECORD_BYTES_MAX || bytes > head - tail)
		return empty_ring(map, area, head);
	for (uint64_t at = 0; at < length; at += 8) {
		uint64_t data = bf_get64(word_at(map, area, tail + 8 + at));

		if (at < room)
			memcpy((char *)to + at, &data, bf_min(bf_min(8, length - at), room - at));
	}
	release(map, area, tail, bytes);
	return (int)length;
}

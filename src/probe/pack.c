/* A probe as one block of bytes: a head, then instructions, one byte for each of them that says whether a function begins
 * there, maps, programs, and the initial data of maps. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "probe/inside.h"

#define PACK_MAGIC 0xbe1fbacbu
enum { PACK_VERSION = 1, PACK_DATA_MAX = 16 << 20 };

struct pack_head {
	uint32_t magic, version;
	uint32_t fuel, slots;
	uint32_t insn_count, map_count, program_count, has_starts;
	uint64_t data_bytes;
};

struct pack_map {
	char name[64];
	uint32_t kind, key_bytes, value_bytes, max_entries, is_read_only, has_data;
	uint64_t data; /* offset in the initial data */
};

struct pack_program {
	char name[64];
	uint32_t event, start;
};

/* Where the parts are. */
struct pack {
	struct pack_head head;
	size_t insns, starts, maps, programs, data, size;
};

static void lay_out(struct pack *pack)
{
	pack->insns = sizeof(pack->head);
	pack->starts = pack->insns + pack->head.insn_count * sizeof(struct bpf_insn);
	pack->maps = pack->starts + pack->head.insn_count;
	pack->programs = pack->maps + pack->head.map_count * sizeof(struct pack_map);
	pack->data = pack->programs + pack->head.program_count * sizeof(struct pack_program);
	pack->size = pack->data + pack->head.data_bytes;
}

static void put_maps(const struct probe *probe, const struct pack *pack, uint8_t *to)
{
	uint64_t data = 0;

	for (size_t i = 0; i < probe->code.map_count; i++) {
		const struct probe_map *map = &probe->code.maps[i];
		struct pack_map one = { .kind = map->kind,
					.key_bytes = map->key_bytes,
					.value_bytes = map->value_bytes,
					.max_entries = map->max_entries,
					.is_read_only = map->is_read_only,
					.has_data = map->initial != NULL,
					.data = data };

		memcpy(one.name, map->name, sizeof(one.name));
		memcpy(to + pack->maps + i * sizeof(one), &one, sizeof(one));
		if (!map->initial)
			continue;
		memcpy(to + pack->data + data, map->initial, map->value_bytes);
		data += map->value_bytes;
	}
}

static void put_programs(const struct probe *probe, const struct pack *pack, uint8_t *to)
{
	for (size_t i = 0; i < probe->program_count; i++) {
		const struct program *program = &probe->programs[i];
		struct pack_program one = { .event = program->info.event, .start = program->start };

		memcpy(one.name, program->name, sizeof(one.name));
		memcpy(to + pack->programs + i * sizeof(one), &one, sizeof(one));
	}
}

int probe_pack(const struct probe *probe, void **bytes, size_t *size, struct bf_error *err)
{
	const struct code *code = &probe->code;
	struct pack pack = { .head = { .magic = PACK_MAGIC,
				       .version = PACK_VERSION,
				       .fuel = probe->fuel,
				       .slots = probe->slots,
				       .insn_count = (uint32_t)code->count,
				       .map_count = (uint32_t)code->map_count,
				       .program_count = (uint32_t)probe->program_count,
				       .has_starts = code->starts != NULL } };
	uint8_t *to;

	for (size_t i = 0; i < code->map_count; i++)
		pack.head.data_bytes += code->maps[i].initial ? code->maps[i].value_bytes : 0;
	lay_out(&pack);
	to = calloc(1, pack.size);
	if (!to)
		return bf_fail(err, ENOMEM, "not enough memory");
	memcpy(to, &pack.head, sizeof(pack.head));
	memcpy(to + pack.insns, code->insns, code->count * sizeof(*code->insns));
	if (code->starts)
		memcpy(to + pack.starts, code->starts, code->count);
	put_maps(probe, &pack, to);
	put_programs(probe, &pack, to);
	*bytes = to;
	*size = pack.size;
	return 0;
}

static int read_head(const void *bytes, size_t size, struct pack *pack)
{
	if (size < sizeof(pack->head))
		return -EINVAL;
	memcpy(&pack->head, bytes, sizeof(pack->head));
	if (pack->head.magic != PACK_MAGIC || pack->head.version != PACK_VERSION || !pack->head.insn_count ||
	    pack->head.insn_count > PROBE_PROGRAMS_MAX * PROBE_INSNS_MAX ||
	    pack->head.map_count > PROBE_MAPS_MAX || !pack->head.program_count ||
	    pack->head.program_count > PROBE_PROGRAMS_MAX || pack->head.data_bytes > PACK_DATA_MAX)
		return -EINVAL;
	lay_out(pack);
	return pack->size == size ? 0 : -EINVAL;
}

static int take_map(const struct pack *pack, const uint8_t *data, const struct pack_map *from,
		    struct probe_map *map)
{
	*map = (struct probe_map){ .kind = (enum probe_map_kind)from->kind,
				   .key_bytes = from->key_bytes,
				   .value_bytes = from->value_bytes,
				   .max_entries = from->max_entries,
				   .is_read_only = from->is_read_only };
	memcpy(map->name, from->name, sizeof(map->name));
	map->name[sizeof(map->name) - 1] = 0;
	if (from->kind > PROBE_MAP_DATA)
		return -EINVAL;
	if (!from->has_data)
		return 0;
	if (from->value_bytes > pack->head.data_bytes ||
	    from->data > pack->head.data_bytes - from->value_bytes)
		return -EINVAL;
	map->initial = data + from->data;
	return 0;
}

static int take_parts(struct probe *made, const struct pack *pack, const uint8_t *from)
{
	struct code *code = &made->code;
	int rc = 0;

	/* The data is the only part that is kept as it is. */
	code->bytes = malloc(pack->head.data_bytes + 1);
	code->insns = calloc(pack->head.insn_count, sizeof(*code->insns));
	code->starts = pack->head.has_starts ? calloc(pack->head.insn_count + 1, 1) : NULL;
	if (!code->bytes || !code->insns || (pack->head.has_starts && !code->starts))
		return -ENOMEM;
	memcpy(code->bytes, from + pack->data, pack->head.data_bytes);
	memcpy(code->insns, from + pack->insns, pack->head.insn_count * sizeof(*code->insns));
	code->count = pack->head.insn_count;
	if (code->starts)
		memcpy(code->starts, from + pack->starts, code->count);
	for (size_t i = 0; !rc && i < pack->head.map_count; i++) {
		struct pack_map map;

		memcpy(&map, from + pack->maps + i * sizeof(map), sizeof(map));
		rc = take_map(pack, code->bytes, &map, &code->maps[i]);
	}
	code->map_count = pack->head.map_count;
	for (size_t i = 0; !rc && i < pack->head.program_count; i++) {
		struct program *program = &made->programs[i];
		struct pack_program one;

		memcpy(&one, from + pack->programs + i * sizeof(one), sizeof(one));
		memcpy(program->name, one.name, sizeof(program->name));
		program->name[sizeof(program->name) - 1] = 0;
		program->info.event = (enum belfry_probe_event)one.event;
		program->start = one.start;
		if (one.event >= BELFRY_PROBE_EVENTS || one.start >= code->count)
			rc = -EINVAL;
	}
	made->program_count = pack->head.program_count;
	return rc;
}

int probe_unpack(const void *bytes, size_t size, struct probe **probe, struct bf_error *err)
{
	struct pack pack;
	struct probe *made;
	int rc;

	*probe = NULL;
	if (read_head(bytes, size, &pack))
		return bf_fail(err, EINVAL, "it is not a packed probe");
	made = probe_new(&(struct probe_options){ .sm_count = pack.head.slots, .fuel = pack.head.fuel }, err);
	if (!made)
		return -ENOMEM;
	rc = take_parts(made, &pack, bytes);
	if (rc)
		bf_fail(err, -rc, rc == -ENOMEM ? "not enough memory" : "the packed probe is damaged");
	return probe_finish(made, rc, probe, err);
}

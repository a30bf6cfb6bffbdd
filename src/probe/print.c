/* How a dump shows the maps: the columns that an object describes. */
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "policy/file.h"
#include "probe/inside.h"

static bool is_number(uint32_t offset, uint32_t bytes, uint32_t room)
{
	bool is_size = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;

	return is_size && bytes <= room && offset <= room - bytes;
}

static bool is_in_map(const struct belfry_print *print, const struct probe_map *map)
{
	bool is_array = map->kind == PROBE_MAP_ARRAY || map->kind == PROBE_MAP_SM_ARRAY;
	bool is_fine = !print->per_bytes || is_number(print->per_offset, print->per_bytes, map->value_bytes);

	if (!is_fine || map->kind == PROBE_MAP_RING)
		return false;
	switch (print->from) {
	case BELFRY_PRINT_KEY:
		return map->kind == PROBE_MAP_HASH && is_number(print->offset, print->bytes, map->key_bytes);
	case BELFRY_PRINT_VALUE:
		return is_number(print->offset, print->bytes, map->value_bytes);
	case BELFRY_PRINT_INDEX:
		return is_array;
	case BELFRY_PRINT_SM:
		return map->kind == PROBE_MAP_SM_ARRAY;
	default:
		return false;
	}
}

static int take_print(struct probe *probe, const uint8_t *bytes, struct bf_error *err)
{
	struct belfry_print *print = &probe->prints[probe->print_count];
	const struct probe_map *map;

	if (probe->print_count == PRINTS_MAX)
		return bf_fail(err, E2BIG, "BELFRY_PRINT: it has more than %d columns", PRINTS_MAX);
	memcpy(print, bytes, sizeof(*print));
	if (!memchr(print->map, 0, sizeof(print->map)) || !memchr(print->title, 0, sizeof(print->title)))
		return bf_fail(err, EINVAL, "BELFRY_PRINT: a map or title of column %zu is too long",
			       probe->print_count);
	if (!bf_is_line(print->title, sizeof(print->title)) || !bf_is_line(print->map, sizeof(print->map)))
		return bf_fail(err, EINVAL,
			       "BELFRY_PRINT: a map or title of column %zu is not printable ASCII",
			       probe->print_count);
	map = probe_map_find(probe, print->map);
	if (!map)
		return bf_fail(err, EINVAL, "BELFRY_PRINT: there is no map %s", print->map);
	if (print->unit > BELFRY_PRINT_RATIO || print->shift > 63 || !is_in_map(print, map))
		return bf_fail(err, EINVAL, "BELFRY_PRINT: column %zu is not in map %s, or has no valid unit",
			       probe->print_count, print->map);
	probe->print_count++;
	return 0;
}

int print_read(struct probe *probe, const struct elf_view *view, struct bf_error *err)
{
	size_t size = 0;
	const uint8_t *section = elf_section(view->bytes, view->size, ".rodata.belfry_print", &size);
	int rc = 0;

	if (!section)
		return 0;
	if (size % sizeof(struct belfry_print))
		return bf_fail(
			err, EINVAL,
			"BELFRY_PRINT: its size is wrong; compile it with this release's belfry/probe.h");
	for (size_t at = 0; !rc && at < size; at += sizeof(struct belfry_print))
		rc = take_print(probe, section + at, err);
	return rc;
}

const struct belfry_print *probe_print_at(const struct probe *probe, size_t index)
{
	return index < probe->print_count ? &probe->prints[index] : NULL;
}

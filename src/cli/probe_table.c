/* Tables of what probes have counted. The object of a probe describes their columns (struct belfry_print), and belfryd sends
 * the description with the maps. Values come from programs and can be anything: only unsigned sums are formed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "base/units.h"
#include "belfry/probe.h"
#include "cli/probe.h"
#include "cli/report.h"
#include "probe/weave.h"

enum { COLUMNS_MAX = 16, CELL = 96, KEY_MAX = PROBE_KEY_BYTES_MAX, BAR_WIDTH = 24 };

struct column {
	const char *title;
	uint32_t from, unit, flags, offset, bytes, per_offset, per_bytes, shift;
};

struct row {
	uint8_t key[KEY_MAX];
	uint64_t index, sm;
	uint64_t sums[COLUMNS_MAX], pers[COLUMNS_MAX];
};

struct table {
	const char *map;
	struct column columns[COLUMNS_MAX];
	unsigned column_count;
	bool has_sm;
	struct row *rows;
	size_t count, room;
};

static size_t count_of(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

/* Bytes as hexadecimal digits. Returns their number. */
static size_t unhex(const char *text, uint8_t *to, size_t room)
{
	size_t count = strlen(text) / 2;

	for (size_t i = 0; i < count && i < room; i++) {
		char digits[3] = { text[2 * i], text[2 * i + 1], 0 };

		to[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	return count < room ? count : room;
}

static uint64_t number_at(const uint8_t *bytes, size_t size, uint32_t offset, uint32_t count)
{
	uint64_t value = 0;

	if (count > 8 || offset > size || count > size - offset)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		value |= (uint64_t)bytes[offset + i] << 8 * i;
	return value;
}

static struct row *find_row(struct table *table, const struct row *like)
{
	for (size_t i = 0; i < table->count; i++) {
		struct row *row = &table->rows[i];

		if (row->index == like->index && row->sm == like->sm && !memcmp(row->key, like->key, KEY_MAX))
			return row;
	}
	if (table->count == table->room) {
		size_t room = table->room ? 2 * table->room : 64;
		struct row *more = realloc(table->rows, room * sizeof(*more));

		if (!more)
			return NULL;
		table->rows = more;
		table->room = room;
	}
	table->rows[table->count] = *like;
	return &table->rows[table->count++];
}

static void add_entry(struct table *table, struct json_object *entry)
{
	uint8_t value[PROBE_VALUE_BYTES_MAX];
	struct row like = { .index = (uint64_t)report_number(entry, "index"),
			    .sm = table->has_sm ? (uint64_t)report_number(entry, "sm") : 0 };
	size_t bytes = unhex(report_text(entry, "value", ""), value, sizeof(value));
	struct row *row;

	unhex(report_text(entry, "key", ""), like.key, sizeof(like.key));
	row = find_row(table, &like);
	for (unsigned c = 0; row && c < table->column_count; c++) {
		const struct column *column = &table->columns[c];

		if (column->from != BELFRY_PRINT_VALUE)
			continue;
		row->sums[c] += number_at(value, bytes, column->offset, column->bytes);
		row->pers[c] += number_at(value, bytes, column->per_offset, column->per_bytes);
	}
}

static void add_area(struct table *table, struct json_object *area)
{
	struct json_object *maps = report_at(area, "maps");

	for (size_t i = 0; i < count_of(maps); i++) {
		struct json_object *map = json_object_array_get_idx(maps, i),
				   *entries = report_at(map, "entries");

		if (strcmp(report_text(map, "map", ""), table->map))
			continue;
		for (size_t k = 0; k < count_of(entries); k++)
			add_entry(table, json_object_array_get_idx(entries, k));
	}
}

/* The number of a cell: what is shown, and what is sorted by. */
static double cell(const struct column *column, const struct row *row, unsigned c)
{
	switch (column->from) {
	case BELFRY_PRINT_KEY:
		return (double)(number_at(row->key, KEY_MAX, column->offset, column->bytes)
				<< (column->shift & 63));
	case BELFRY_PRINT_INDEX:
		return (double)(row->index << (column->shift & 63));
	case BELFRY_PRINT_SM:
		return (double)row->sm;
	default:
		break;
	}
	if (column->per_bytes)
		return row->pers[c] ? (double)row->sums[c] / (double)row->pers[c] : 0;
	return (double)(row->sums[c] << (column->shift & 63));
}

static uint64_t whole(const struct column *column, const struct row *row, unsigned c)
{
	if (column->from == BELFRY_PRINT_KEY)
		return number_at(row->key, KEY_MAX, column->offset, column->bytes) << (column->shift & 63);
	if (column->from == BELFRY_PRINT_VALUE && !column->per_bytes)
		return row->sums[c] << (column->shift & 63);
	return (uint64_t)cell(column, row, c);
}

static bool is_empty(const struct table *table, const struct row *row)
{
	for (unsigned c = 0; c < table->column_count; c++)
		if (table->columns[c].from == BELFRY_PRINT_VALUE && row->sums[c])
			return false;
	return true;
}

static int compare(const void *a, const void *b, void *of)
{
	const struct row *one = a, *other = b;
	const struct table *sorted = of;

	for (unsigned c = 0; c < sorted->column_count; c++)
		if (sorted->columns[c].flags & BELFRY_PRINT_SORT) {
			double x = cell(&sorted->columns[c], one, c), y = cell(&sorted->columns[c], other, c);

			if (x != y)
				return x < y ? 1 : -1;
		}
	if (one->index != other->index)
		return one->index < other->index ? -1 : 1;
	if (one->sm != other->sm)
		return one->sm < other->sm ? -1 : 1;
	return memcmp(one->key, other->key, KEY_MAX);
}

static bool take_columns(struct table *table, struct json_object *columns, const char *map)
{
	table->map = map;
	for (size_t i = 0; i < count_of(columns) && table->column_count < COLUMNS_MAX; i++) {
		struct json_object *from = json_object_array_get_idx(columns, i);
		struct column *column = &table->columns[table->column_count];

		if (strcmp(report_text(from, "map", ""), map))
			continue;
		*column = (struct column){ report_text(from, "title", "?"),
					   (uint32_t)report_number(from, "from"),
					   (uint32_t)report_number(from, "unit"),
					   (uint32_t)report_number(from, "flags"),
					   (uint32_t)report_number(from, "offset"),
					   (uint32_t)report_number(from, "bytes"),
					   (uint32_t)report_number(from, "per_offset"),
					   (uint32_t)report_number(from, "per_bytes"),
					   (uint32_t)report_number(from, "shift") };
		table->has_sm |= column->from == BELFRY_PRINT_SM;
		table->column_count++;
	}
	return table->column_count;
}

static const char *kernel_name(struct json_object *probe, uint64_t id, char *to, size_t room)
{
	struct json_object *kernels = report_at(probe, "kernels");

	for (size_t i = 0; i < count_of(kernels); i++) {
		struct json_object *kernel = json_object_array_get_idx(kernels, i), *value;

		if (json_object_object_get_ex(kernel, "id", &value) && json_object_get_uint64(value) == id) {
			weave_plain_name(report_text(kernel, "name", "?"), to, room);
			return to;
		}
	}
	snprintf(to, room, "%016" PRIx64, id);
	return to;
}

static const char *time_text(double ns, char *to, size_t room)
{
	if (ns < 1e3)
		snprintf(to, room, "%.0f ns", ns);
	else if (ns < 1e6)
		snprintf(to, room, "%.2f us", ns / 1e3);
	else if (ns < 1e9)
		snprintf(to, room, "%.2f ms", ns / 1e6);
	else
		snprintf(to, room, "%.2f s", ns / 1e9);
	return to;
}

static void cell_text(struct json_object *probe, const struct column *column, const struct row *row,
		      unsigned c, char *to, size_t room)
{
	uint64_t number = whole(column, row, c);
	char low[32], high[32];

	switch (column->unit) {
	case BELFRY_PRINT_NS:
		time_text(cell(column, row, c), to, room);
		return;
	case BELFRY_PRINT_BYTES:
		bf_format_size(number, to, room);
		return;
	case BELFRY_PRINT_KERNEL:
		kernel_name(probe, number, to, room);
		return;
	case BELFRY_PRINT_ADDRESS:
		snprintf(to, room, "0x%" PRIx64, number);
		return;
	case BELFRY_PRINT_LOG2_NS:
		number &= 63;
		snprintf(to, room, "%s to %s", time_text((double)(1ull << number), low, sizeof(low)),
			 time_text((double)(1ull << number) * 2, high, sizeof(high)));
		return;
	case BELFRY_PRINT_RATIO:
		snprintf(to, room, "%.2f", cell(column, row, c));
		return;
	default:
		snprintf(to, room, "%" PRIu64, number);
		return;
	}
}

/* A table as JSON: for each row the numbers, and the words that are printed. */
static struct json_object *table_json(struct json_object *probe, const struct table *table)
{
	struct json_object *to = json_object_new_object(), *titles = json_object_new_array(),
			   *rows = json_object_new_array(), *bars = json_object_new_array();

	for (unsigned c = 0; c < table->column_count; c++) {
		char title[CELL];

		snprintf(title, sizeof(title), "%s", table->columns[c].title);
		json_object_array_add(titles, json_object_new_string(bf_plain(title)));
		json_object_array_add(bars,
				      json_object_new_boolean(table->columns[c].flags & BELFRY_PRINT_BAR));
	}
	for (size_t i = 0; i < table->count; i++) {
		struct json_object *one = json_object_new_object(), *numbers = json_object_new_array(),
				   *words = json_object_new_array();
		char text[CELL];

		if (is_empty(table, &table->rows[i])) {
			json_object_put(one);
			json_object_put(numbers);
			json_object_put(words);
			continue;
		}
		for (unsigned c = 0; c < table->column_count; c++) {
			const struct column *column = &table->columns[c];

			json_object_array_add(
				numbers, column->per_bytes
						 ? json_object_new_double(cell(column, &table->rows[i], c))
						 : json_object_new_uint64(whole(column, &table->rows[i], c)));
			cell_text(probe, column, &table->rows[i], c, text, sizeof(text));
			json_object_array_add(words, json_object_new_string(text));
		}
		json_add(one, "values", numbers);
		json_add(one, "words", words);
		json_object_array_add(rows, one);
	}
	json_add_text(to, "map", table->map);
	json_add(to, "columns", titles);
	json_add(to, "bars", bars);
	json_add(to, "rows", rows);
	return to;
}

static void make_table(struct json_object *probe, struct json_object *tables, const char *map, long pid)
{
	struct json_object *processes = report_at(probe, "processes");
	struct table table = { .rows = NULL };

	if (!take_columns(&table, report_at(probe, "columns"), map))
		return;
	for (size_t i = 0; i < count_of(processes); i++) {
		struct json_object *process = json_object_array_get_idx(processes, i);

		if (!pid || report_number(process, "pid") == pid)
			add_area(&table, report_at(process, "area"));
	}
	if (table.count)
		qsort_r(table.rows, table.count, sizeof(*table.rows), compare, &table);
	json_object_array_add(tables, table_json(probe, &table));
	free(table.rows);
}

void probe_tables(struct json_object *probe, long pid)
{
	struct json_object *columns = report_at(probe, "columns"), *tables = json_object_new_array();

	for (size_t i = 0; i < count_of(columns); i++) {
		const char *map = report_text(json_object_array_get_idx(columns, i), "map", "");
		bool is_first = true;

		for (size_t k = 0; k < i; k++)
			is_first &= strcmp(report_text(json_object_array_get_idx(columns, k), "map", ""),
					   map) != 0;
		if (is_first)
			make_table(probe, tables, map, pid);
	}
	json_add(probe, "tables", tables);
}

static const char *word_at(struct json_object *row, size_t c)
{
	return json_object_get_string(json_object_array_get_idx(report_at(row, "words"), c));
}

static double value_at(struct json_object *row, size_t c)
{
	return json_object_get_double(json_object_array_get_idx(report_at(row, "values"), c));
}

static int width_of(struct json_object *table, size_t c)
{
	struct json_object *rows = report_at(table, "rows");
	size_t width =
		strlen(json_object_get_string(json_object_array_get_idx(report_at(table, "columns"), c)));

	for (size_t i = 0; i < count_of(rows); i++) {
		size_t length = strlen(word_at(json_object_array_get_idx(rows, i), c));

		width = length > width ? length : width;
	}
	return (int)width;
}

static double largest(struct json_object *table, size_t c)
{
	struct json_object *rows = report_at(table, "rows");
	double most = 0;

	for (size_t i = 0; i < count_of(rows); i++) {
		double value = value_at(json_object_array_get_idx(rows, i), c);

		most = value > most ? value : most;
	}
	return most;
}

static void print_row(struct json_object *table, struct json_object *row, const int *widths,
		      const double *most)
{
	size_t columns = count_of(report_at(table, "columns"));

	printf(" ");
	for (size_t c = 0; c < columns && c < COLUMNS_MAX; c++) {
		printf(c ? " %*s" : " %-*s", widths[c], word_at(row, c));
		if (most[c] > 0) {
			int length = (int)(value_at(row, c) / most[c] * BAR_WIDTH + 0.5);

			printf(" %.*s%*s", length, "########################", BAR_WIDTH - length, "");
		}
	}
	printf("\n");
}

static void print_table(struct json_object *table)
{
	struct json_object *titles = report_at(table, "columns"), *rows = report_at(table, "rows");
	double most[COLUMNS_MAX] = { 0 };
	int widths[COLUMNS_MAX] = { 0 };

	if (!count_of(rows)) {
		printf("  %s: nothing was counted\n", report_text(table, "map", "?"));
		return;
	}
	printf(" ");
	for (size_t c = 0; c < count_of(titles) && c < COLUMNS_MAX; c++) {
		widths[c] = width_of(table, c);
		if (json_object_get_boolean(json_object_array_get_idx(report_at(table, "bars"), c)))
			most[c] = largest(table, c);
		printf(c ? " %*s" : " %-*s", widths[c],
		       json_object_get_string(json_object_array_get_idx(titles, c)));
		if (most[c] > 0)
			printf(" %*s", BAR_WIDTH, "");
	}
	printf("\n");
	for (size_t i = 0; i < count_of(rows); i++)
		print_row(table, json_object_array_get_idx(rows, i), widths, most);
}

void probe_tables_print(struct json_object *probe)
{
	struct json_object *tables = report_at(probe, "tables");

	if (!count_of(tables))
		printf("  it describes no table: --json shows its maps\n");
	for (size_t i = 0; i < count_of(tables); i++)
		print_table(json_object_array_get_idx(tables, i));
}

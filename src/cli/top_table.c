/* The table of belfry top: the columns that fit, their widths, and the cells. */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "cli/report.h"
#include "cli/top.h"

enum { BAR_LEAST = 10, BAR_MOST = 50, CELL_ROOM = 80 };

static const struct {
	const char *title;
	unsigned least, most; /* limits of a column that is as wide as its longest text */
	bool is_right;
} columns_of[TOP_COLUMNS] = {
	[TOP_NAME] = { "NAME", 8, 16, false },		 [TOP_GPU] = { "GPU", 3, 8, false },
	[TOP_DOMAIN] = { "DOMAIN", 6, 12, false },	 [TOP_CLASS] = { "CLASS", 10, 10, false },
	[TOP_TIME] = { "TIME", 6, 15, false },		 [TOP_SHARE] = { "SHARE", 6, 6, true },
	[TOP_BAR] = { "", BAR_LEAST, BAR_LEAST, false }, [TOP_USED] = { "USED", 10, 11, true },
	[TOP_LIMIT] = { "LIMIT", 10, 11, true },	 [TOP_P99] = { "P99", 9, 12, true },
	[TOP_STATE] = { "STATE", 8, 8, false },		 [TOP_WAITS] = { "WAITS FOR", 9, 12, false },
};

/* The order in which columns are dropped. NAME always stays. */
static const enum top_column dispensable[] = { TOP_CLASS,  TOP_P99,   TOP_GPU,	TOP_BAR,
					       TOP_DOMAIN, TOP_LIMIT, TOP_TIME, TOP_USED,
					       TOP_WAITS,  TOP_STATE, TOP_SHARE };

void top_bar(char *to, unsigned width, double share, double request, double limit)
{
	unsigned inside = width - 2;
	unsigned filled = (unsigned)(share * inside + 0.5), at_request = (unsigned)(request * inside),
		 at_limit = (unsigned)(limit * inside);

	to[0] = '[';
	for (unsigned i = 0; i < inside; i++)
		to[1 + i] = i < filled ? '#' : '.';
	if (request > 0 && at_request < inside)
		to[1 + at_request] = '|';
	if (limit < 1 && at_limit < inside)
		to[1 + at_limit] = '!';
	to[1 + inside] = ']';
	to[2 + inside] = 0;
}

struct json_object *top_find(struct json_object *list, const char *key, const char *value)
{
	if (!json_object_is_type(list, json_type_array))
		return NULL;
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *entry = json_object_array_get_idx(list, i);

		if (!strcmp(report_text(entry, key, ""), value))
			return entry;
	}
	return NULL;
}

/* The vGPU or limit it waited for longest since the previous report. */
static const char *waits_for(const struct top_row *row)
{
	struct json_object *waits = report_at(row->vgpu, "waits");
	const char *most_for = "-";
	int64_t most_ns = 0;

	if (!json_object_is_type(waits, json_type_array))
		return most_for;
	for (size_t i = 0; i < json_object_array_length(waits); i++) {
		struct json_object *wait = json_object_array_get_idx(waits, i);
		const char *what = report_text(wait, "for", "?");
		int64_t ns = report_number(wait, "ns") -
			     report_number(top_find(report_at(row->before, "waits"), "for", what), "ns");

		if (ns > most_ns) {
			most_ns = ns;
			most_for = what;
		}
	}
	return most_for;
}

static const char *format_bytes(struct json_object *vgpu, enum top_column column, char *to, size_t room)
{
	int64_t bytes = report_number(vgpu, column == TOP_USED ? "mem.used" : "mem.limit");

	if (column == TOP_LIMIT && !bytes)
		return "GPU";
	return bf_format_size((uint64_t)bytes, to, room);
}

/* The text of a cell. It need not be in `to`. */
static const char *cell(const struct top_row *row, enum top_column column, unsigned width, char *to,
			size_t room)
{
	struct json_object *vgpu = row->vgpu;

	switch (column) {
	case TOP_NAME:
		return report_text(vgpu, "name", "?");
	case TOP_GPU:
		return report_text(vgpu, "gpu", "?");
	case TOP_DOMAIN:
		return report_domain(vgpu);
	case TOP_CLASS:
		return report_text(vgpu, "class", "?");
	case TOP_TIME:
		return report_time(vgpu, to, room);
	case TOP_SHARE:
		snprintf(to, room, "%.1f%%", row->share * 100);
		return to;
	case TOP_BAR:
		top_bar(to, width, row->share, report_real(vgpu, "time.request"),
			report_real(vgpu, "time.limit"));
		return to;
	case TOP_USED:
	case TOP_LIMIT:
		return format_bytes(vgpu, column, to, room);
	case TOP_P99:
		if (!report_number(vgpu, "latency.samples"))
			return "-";
		snprintf(to, room, "%.2f ms", report_real(vgpu, "latency.p99_us") / 1000);
		return to;
	case TOP_STATE:
		return report_text(vgpu, "state", "?");
	default:
		return waits_for(row);
	}
}

static bool has_domains(const struct top_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (*report_text(rows[i].vgpu, "domain", ""))
			return true;
	return false;
}

static size_t longest(const struct top_row *rows, size_t count, enum top_column column)
{
	size_t most = strlen(columns_of[column].title);
	char text[CELL_ROOM];

	for (size_t i = 0; i < count; i++) {
		size_t length = strlen(cell(&rows[i], column, BAR_LEAST, text, sizeof(text)));

		if (length > most)
			most = length;
	}
	return most;
}

static unsigned between(size_t wanted, unsigned least, unsigned most)
{
	return wanted < least ? least : wanted > most ? most : (unsigned)wanted;
}

/* The total width, with a space between columns. */
static unsigned used_columns(const struct top_layout *layout)
{
	unsigned used = 0;

	for (int i = 0; i < TOP_COLUMNS; i++)
		if (layout->width[i])
			used += layout->width[i] + (used > 0);
	return used;
}

/* Widen a column up to `wanted`, within the free width. */
static void widen(struct top_layout *layout, enum top_column column, size_t wanted, unsigned columns)
{
	unsigned spare = columns - used_columns(layout);

	if (layout->width[column] && wanted > layout->width[column])
		layout->width[column] = between(wanted, 0, layout->width[column] + spare);
}

void top_layout(struct top_layout *layout, const struct top_row *rows, size_t count, unsigned columns)
{
	size_t names = longest(rows, count, TOP_NAME);

	for (int i = 0; i < TOP_COLUMNS; i++)
		layout->width[i] = columns_of[i].least == columns_of[i].most
					   ? columns_of[i].most
					   : between(longest(rows, count, (enum top_column)i),
						     columns_of[i].least, columns_of[i].most);
	if (!has_domains(rows, count))
		layout->width[TOP_DOMAIN] = 0;
	/* The vGPU that another waits for changes between frames: the column fits every name. */
	layout->width[TOP_WAITS] = between(names, columns_of[TOP_WAITS].least, columns_of[TOP_WAITS].most);
	for (size_t i = 0; used_columns(layout) > columns && i < sizeof(dispensable) / sizeof(dispensable[0]);
	     i++)
		layout->width[dispensable[i]] = 0;
	if (used_columns(layout) > columns)
		layout->width[TOP_NAME] = columns;
	widen(layout, TOP_NAME, names, columns);
	widen(layout, TOP_WAITS, names, columns);
	widen(layout, TOP_BAR, BAR_MOST, columns);
}

/* A text that is too long is cut and ends in '~'. The last column is not padded. */
static void put_cell(FILE *to, const struct top_layout *layout, enum top_column column, const char *text)
{
	unsigned width = layout->width[column];
	size_t length = strlen(text);
	bool is_last = true;

	for (int i = (int)column + 1; i < TOP_COLUMNS; i++)
		is_last &= !layout->width[i];
	if (length > width)
		fprintf(to, "%.*s~", (int)width - 1, text);
	else if (columns_of[column].is_right)
		fprintf(to, "%*s", (int)width, text);
	else
		fprintf(to, "%-*s", is_last ? 0 : (int)width, text);
	fputc(is_last ? '\n' : ' ', to);
}

void top_head(FILE *to, const struct top_layout *layout)
{
	for (int i = 0; i < TOP_COLUMNS; i++)
		if (layout->width[i])
			put_cell(to, layout, (enum top_column)i, columns_of[i].title);
}

void top_line(FILE *to, const struct top_layout *layout, const struct top_row *row)
{
	char text[CELL_ROOM];

	for (int i = 0; i < TOP_COLUMNS; i++)
		if (layout->width[i])
			put_cell(to, layout, (enum top_column)i,
				 cell(row, (enum top_column)i, layout->width[i], text, sizeof(text)));
}

/* The output of belfry top: pure functions from two reports and the keys to lines of text. */
#ifndef BELFRY_CLI_TOP_H
#define BELFRY_CLI_TOP_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>

#include "client/spec.h"

/* A row of the table. */
struct top_row {
	struct json_object *vgpu, *before; /* before: the same vGPU in the previous report, or NULL */
	double share;			   /* of the GPU's time since the previous report, 0 to 1 */
};

/* top_table.c: the columns that fit, and their widths. */
enum top_column {
	TOP_NAME,
	TOP_GPU,
	TOP_DOMAIN, /* only if a vGPU has a named domain */
	TOP_CLASS,
	TOP_TIME,
	TOP_SHARE,
	TOP_BAR,
	TOP_USED,
	TOP_LIMIT,
	TOP_P99,
	TOP_STATE,
	TOP_WAITS,
	TOP_COLUMNS,
};
struct top_layout {
	unsigned width[TOP_COLUMNS]; /* 0: not shown */
};
/* Drop columns in a fixed order until the others fit. Spare width goes to the names, then to the bar. */
void top_layout(struct top_layout *layout, const struct top_row *rows, size_t count, unsigned columns);
void top_head(FILE *to, const struct top_layout *layout);
void top_line(FILE *to, const struct top_layout *layout, const struct top_row *row);
/* "[####|....]": the share, with marks at the request and the limit. Writes `width` characters and a NUL. */
void top_bar(char *to, unsigned width, double share, double request, double limit);
/* The entry of a list whose `key` is `value`; NULL: none. */
struct json_object *top_find(struct json_object *list, const char *key, const char *value);

/* top_view.c: the visible part of the table, and the selected row. */
enum top_key {
	TOP_KEY_NONE, /* an incomplete sequence, or an unknown key */
	TOP_KEY_UP,
	TOP_KEY_DOWN,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_HELP,
	TOP_KEY_QUIT,
};
struct top_view {
	unsigned rows, columns;		  /* of the screen; rows 0: no limit */
	bool is_help;			  /* show the keys instead of the table */
	bool is_moved;			  /* a key changed `at` since the last frame */
	char selected[SPEC_NAME_MAX + 1]; /* name of the vGPU; empty: none */
	size_t at;			  /* its row, from 0 */
	size_t first;			  /* the first visible row */
	size_t count, page;		  /* rows of the last frame, and how many of them fit */
	int selected_line;		  /* line in the frame; -1: none */
	char sequence[8];		  /* bytes of an incomplete key */
	unsigned length;
};
enum top_key top_view_byte(struct top_view *view, char byte);
/* Returns false to quit. */
bool top_view_key(struct top_view *view, enum top_key key);
/* Find the row of the selected vGPU among the sorted rows, and scroll so that it is visible. `page` rows
 * fit. */
void top_view_settle(struct top_view *view, const struct top_row *rows, size_t count, size_t page);

/* Draw one frame: the activity of the GPUs and vGPUs between two reports of report_gather. If `before` is
 * NULL, the server's figures of its last window are used. No line is longer than view->columns, and there are
 * at most view->rows lines. */
void top_draw(FILE *to, struct json_object *before, struct json_object *now, struct top_view *view);

#endif

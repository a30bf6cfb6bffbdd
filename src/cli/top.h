/* What belfry top shows: pure, from two reports and keys to lines of text. */
#ifndef BELFRY_CLI_TOP_H
#define BELFRY_CLI_TOP_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>

#include "client/spec.h"

/* A vGPU as one line of the table. */
struct top_row {
	struct json_object *vgpu, *before; /* before: the same vGPU in the report before, or NULL */
	double share;			   /* of the GPU's time since then, 0 to 1 */
};

/* top_table.c: the columns that fit, and how wide each is. */
enum top_column {
	TOP_NAME,
	TOP_GPU,
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
	unsigned width[TOP_COLUMNS]; /* 0: the column is left out */
};
/* Columns are left out in a fixed order until the others fit; what is left over goes to names, then to the bar. */
void top_layout(struct top_layout *layout, const struct top_row *rows, size_t count, unsigned columns);
void top_head(FILE *to, const struct top_layout *layout);
void top_line(FILE *to, const struct top_layout *layout, const struct top_row *row);
/* "[####|....]": how far `share` goes, with marks at the request and the limit. `width` characters and a NUL. */
void top_bar(char *to, unsigned width, double share, double request, double limit);
/* The entry of a list whose `key` says `value`; NULL: none. */
struct json_object *top_find(struct json_object *list, const char *key, const char *value);

/* top_view.c: which part of the table is on the screen, and which row is selected. */
enum top_key {
	TOP_KEY_NONE, /* the bytes so far are no key yet, or none that means anything */
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
	unsigned rows, columns;		  /* of the screen; rows 0: as many as there are lines */
	bool is_help;			  /* the keys are shown instead of the table */
	bool is_moved;			  /* a key has changed `at` since the last frame */
	char selected[SPEC_NAME_MAX + 1]; /* the vGPU; empty: none */
	size_t at;			  /* its row, counted from 0 */
	size_t first;			  /* the first row on the screen */
	size_t count, page;		  /* rows of the last frame, and how many of them fit */
	int selected_line;		  /* of the frame; -1: none is marked */
	char sequence[8];		  /* of a key that is not complete yet */
	unsigned length;
};
enum top_key top_view_byte(struct top_view *view, char byte);
/* False: the user wants to quit. */
bool top_view_key(struct top_view *view, enum top_key key);
/* For rows in their order, `page` of them on the screen: follow the selected vGPU to its row, and keep it visible. */
void top_view_settle(struct top_view *view, const struct top_row *rows, size_t count, size_t page);

/* One frame: what the GPUs and their vGPUs did between the two reports (report_gather). `before` may be NULL: then it
 * is what the server says of its last window. No line is longer than view->columns; there are at most view->rows. */
void top_draw(FILE *to, struct json_object *before, struct json_object *now, struct top_view *view);

#endif

/* Draw a frame of belfry top: the GPUs, the table of vGPUs, and a line with the keys. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/report.h"
#include "cli/top.h"

static const char keys_text[] = "q quit  h help  up/down, page up/down, home/end";
static const char *const help_lines[] = {
	"up, k         select the vGPU above",
	"down, j       select the vGPU below",
	"page up, b    one page up",
	"page down, space",
	"              one page down",
	"home, g       the first vGPU",
	"end, G        the last vGPU",
	"h, ?          this help",
	"q             quit",
	"",
	"The selected vGPU stays selected while the order changes.",
	"In a bar, | is the requested share and ! the limit.",
	"A narrow terminal has fewer columns; '~' marks a text that was cut.",
	"Any key goes back.",
};

enum { PART_ROOM = 64, PARTS = 5 };

/* The increase of a counter per clock time; -1 if unknown. */
static double rate(struct json_object *before, struct json_object *now, const char *counter,
		   int64_t passed_ns)
{
	int64_t grown_ns = report_number(now, counter) - report_number(before, counter);

	return !before || passed_ns <= 0 || grown_ns < 0 ? -1 : (double)grown_ns / (double)passed_ns;
}

/* The time between the reports, on the clock of a GPU. */
static int64_t passed_ns(struct json_object *before, struct json_object *now, const char *gpu)
{
	struct json_object *then = top_find(report_at(before, "gpus"), "gpu", gpu),
			   *this = top_find(report_at(now, "gpus"), "gpu", gpu);

	return then && this ? report_number(this, "now_ns") - report_number(then, "now_ns") : 0;
}

static void put_line(FILE *to, const char *text, unsigned columns)
{
	fprintf(to, "%.*s\n", (int)columns, text);
}

/* "GPU 0: busy 3.1%, ...", without the parts that do not fit. */
static void put_parts(FILE *to, const char *head, char parts[PARTS][PART_ROOM], unsigned columns)
{
	static const int dispensable[] = { 4, 1, 2, 3 };
	size_t used = strlen(head);
	const char *between = "";

	for (int i = 0; i < PARTS; i++)
		used += parts[i][0] ? strlen(parts[i]) + (i ? 2 : 0) : 0;
	for (size_t i = 0; used > columns && i < sizeof(dispensable) / sizeof(dispensable[0]); i++) {
		char *part = parts[dispensable[i]];

		used -= part[0] ? strlen(part) + 2 : 0;
		part[0] = 0;
	}
	if (used > columns) {
		put_line(to, head, columns);
		return;
	}
	fputs(head, to);
	for (int i = 0; i < PARTS; i++)
		if (parts[i][0]) {
			fprintf(to, "%s%s", between, parts[i]);
			between = ", ";
		}
	fputc('\n', to);
}

/* The GPU time of the last window, before there is another report to compare with. */
static double window_share(struct json_object *vgpus, const char *gpu)
{
	double share = 0;

	for (size_t i = 0; json_object_is_type(vgpus, json_type_array) && i < json_object_array_length(vgpus);
	     i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);

		if (!strcmp(report_text(vgpu, "gpu", ""), gpu))
			share += report_real(vgpu, "time.share");
	}
	return share;
}

static void draw_gpu(FILE *to, struct json_object *before, struct json_object *now, struct json_object *gpu,
		     unsigned columns)
{
	const char *name = report_text(gpu, "gpu", "?");
	struct json_object *then = top_find(report_at(before, "gpus"), "gpu", name);
	int64_t clock_ns = then ? report_number(gpu, "now_ns") - report_number(then, "now_ns") : 0;
	double busy = rate(then, gpu, "busy_ns", clock_ns);
	char head[PART_ROOM], used[24], total[24], parts[PARTS][PART_ROOM] = { { 0 } };

	snprintf(head, sizeof(head), "GPU %.40s: ", name);
	if (!report_at(gpu, "now_ns")) {
		snprintf(parts[0], PART_ROOM, "its server does not answer");
		put_parts(to, head, parts, columns);
		return;
	}
	if (busy < 0)
		busy = window_share(report_at(now, "vgpus"), name);
	snprintf(parts[0], PART_ROOM, "busy %.1f%%", busy * 100);
	snprintf(parts[1], PART_ROOM, "sharing %.20s", report_text(gpu, "sharing", "-"));
	snprintf(parts[2], PART_ROOM, "requested %.0f%%", report_real(gpu, "request") * 100);
	snprintf(parts[3], PART_ROOM, "memory %s of %s",
		 bf_format_size((uint64_t)report_number(gpu, "mem.used"), used, sizeof(used)),
		 bf_format_size((uint64_t)report_number(gpu, "mem.total"), total, sizeof(total)));
	if (then)
		snprintf(parts[4], PART_ROOM, "%" PRId64 " handovers",
			 report_number(gpu, "handovers") - report_number(then, "handovers"));
	put_parts(to, head, parts, columns);
}

/* Draws at most `most` lines. Returns the number of lines. */
static size_t draw_gpus(FILE *to, struct json_object *before, struct json_object *now, size_t most,
			unsigned columns)
{
	struct json_object *gpus = report_at(now, "gpus");
	size_t count = json_object_array_length(gpus), shown = count <= most ? count : most - 1;
	char more[PART_ROOM];

	if (!count) {
		put_line(to, "no GPU is in use", columns);
		return 1;
	}
	for (size_t i = 0; i < shown; i++)
		draw_gpu(to, before, now, json_object_array_get_idx(gpus, i), columns);
	if (shown == count)
		return count;
	snprintf(more, sizeof(more), "and %zu more GPUs", count - shown);
	put_line(to, more, columns);
	return most;
}

static int by_share(const void *a, const void *b)
{
	const struct top_row *left = a, *right = b;

	if (left->share != right->share)
		return left->share < right->share ? 1 : -1;
	return strcmp(report_text(left->vgpu, "name", ""), report_text(right->vgpu, "name", ""));
}

static void fill_row(struct top_row *row, struct json_object *before, struct json_object *now,
		     struct json_object *vgpu)
{
	const char *gpu = report_text(vgpu, "gpu", "");

	row->vgpu = vgpu;
	row->before = top_find(report_at(before, "vgpus"), "name", report_text(vgpu, "name", ""));
	row->share = rate(row->before, vgpu, "time.gpu_ns", passed_ns(before, now, gpu));
	if (row->share < 0)
		row->share = report_real(vgpu, "time.share");
	if (row->share > 1)
		row->share = 1; /* the counters are read at slightly different times */
}

/* Sorted; the caller frees them. */
static struct top_row *make_rows(struct json_object *before, struct json_object *now, size_t *count)
{
	struct json_object *vgpus = report_at(now, "vgpus");
	size_t length = json_object_array_length(vgpus);
	struct top_row *rows = calloc(length + 1, sizeof(*rows));

	*count = rows ? length : 0;
	for (size_t i = 0; i < *count; i++)
		fill_row(&rows[i], before, now, json_object_array_get_idx(vgpus, i));
	if (rows)
		qsort(rows, *count, sizeof(*rows), by_share);
	return rows;
}

static void draw_help(FILE *to, const struct top_view *view)
{
	size_t count = sizeof(help_lines) / sizeof(help_lines[0]);

	if (view->rows && view->rows < count)
		count = view->rows;
	for (size_t i = 0; i < count; i++)
		put_line(to, help_lines[i], view->columns);
}

/* "vGPUs 1 to 20 of 64", and the keys. */
static void draw_foot(FILE *to, const struct top_view *view)
{
	size_t last = view->first + view->page < view->count ? view->first + view->page : view->count;
	char text[160];

	snprintf(text, sizeof(text), "vGPUs %zu to %zu of %zu  %s", last ? view->first + 1 : 0, last,
		 view->count, keys_text);
	put_line(to, text, view->columns);
}

/* The use of the lines of a screen. A small screen has no empty lines and no line with the keys. */
struct shares {
	size_t gpus; /* at most */
	bool is_airy, has_head, has_foot;
};

static struct shares share_lines(unsigned rows)
{
	struct shares shares = { .gpus = rows ? rows / 3 : SIZE_MAX,
				 .is_airy = !rows || rows >= 10,
				 .has_head = rows != 1 && rows != 2,
				 .has_foot = rows >= 6 };

	if (!shares.gpus)
		shares.gpus = 1;
	return shares;
}

static void draw_table(FILE *to, struct top_view *view, const struct top_row *rows, size_t count, size_t line)
{
	struct top_layout layout;
	size_t last;

	top_layout(&layout, rows, count, view->columns);
	if (share_lines(view->rows).has_head) {
		top_head(to, &layout);
		line++;
	}
	last = view->first + view->page < count ? view->first + view->page : count;
	for (size_t i = view->first; i < last; i++)
		top_line(to, &layout, &rows[i]);
	if (view->rows && view->selected[0] && view->at < last)
		view->selected_line = (int)(line + view->at - view->first);
}

void top_draw(FILE *to, struct json_object *before, struct json_object *now, struct top_view *view)
{
	struct shares shares = share_lines(view->rows);
	size_t count, line, taken;
	struct top_row *rows;

	view->selected_line = -1;
	if (view->is_help) {
		draw_help(to, view);
		return;
	}
	rows = make_rows(before, now, &count);
	line = draw_gpus(to, before, now, shares.gpus, view->columns);
	if (shares.is_airy) {
		fputc('\n', to);
		line++;
	}
	taken = line + shares.has_head + shares.has_foot;
	top_view_settle(view, rows, count, !view->rows ? count : view->rows > taken ? view->rows - taken : 0);
	if (!view->rows || view->rows > line)
		draw_table(to, view, rows, count, line);
	if (shares.has_foot) {
		for (size_t i = count < view->page ? count : view->page; i < view->page; i++)
			fputc('\n', to);
		draw_foot(to, view);
	}
	free(rows);
}

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/report.h"
#include "cli/top.h"

enum { BAR_LEAST = 12, BAR_MOST = 50, FIXED_COLUMNS = 104 };

struct row {
	struct json_object *vgpu, *before; /* before: the same vGPU a while ago, or NULL */
	double share;
};

/* The entry of a list whose `key` says `value`. */
static struct json_object *find(struct json_object *list, const char *key, const char *value)
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

/* How much a counter has grown, of how much the clock has; -1 if that cannot be told. */
static double rate(struct json_object *before, struct json_object *now, const char *counter,
		   int64_t passed_ns)
{
	int64_t grown_ns = report_number(now, counter) - report_number(before, counter);

	return !before || passed_ns <= 0 || grown_ns < 0 ? -1 : (double)grown_ns / (double)passed_ns;
}

/* What has passed on a GPU's own clock between the reports. */
static int64_t passed_ns(struct json_object *before, struct json_object *now, const char *gpu)
{
	struct json_object *then = find(report_at(before, "gpus"), "gpu", gpu),
			   *this = find(report_at(now, "gpus"), "gpu", gpu);

	return then && this ? report_number(this, "now_ns") - report_number(then, "now_ns") : 0;
}

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

static void draw_gpu(FILE *to, struct json_object *before, struct json_object *gpu)
{
	const char *name = report_text(gpu, "gpu", "?");
	struct json_object *then = find(report_at(before, "gpus"), "gpu", name);
	int64_t uptime_ns = report_number(gpu, "uptime_ns"),
		clock_ns = then ? report_number(gpu, "now_ns") - report_number(then, "now_ns") : 0;
	double busy = rate(then, gpu, "busy_ns", clock_ns);
	char used[24], total[24];

	if (!report_at(gpu, "now_ns")) {
		fprintf(to, "GPU %s: its server does not answer\n", name);
		return;
	}
	if (busy < 0)
		busy = uptime_ns > 0 ? (double)report_number(gpu, "busy_ns") / (double)uptime_ns : 0;
	fprintf(to, "GPU %s: busy %.1f%%, sharing %s, promised %.0f%%, memory %s of %s", name, busy * 100,
		report_text(gpu, "sharing", "-"), report_real(gpu, "request") * 100,
		bf_format_size((uint64_t)report_number(gpu, "mem.used"), used, sizeof(used)),
		bf_format_size((uint64_t)report_number(gpu, "mem.total"), total, sizeof(total)));
	if (then)
		fprintf(to, ", %" PRId64 " handovers",
			report_number(gpu, "handovers") - report_number(then, "handovers"));
	fputc('\n', to);
}

/* Whom it has waited for most since then. */
static const char *waits_for(const struct row *row)
{
	struct json_object *waits = report_at(row->vgpu, "waits");
	const char *most_for = "-";
	int64_t most_ns = 0;

	if (!json_object_is_type(waits, json_type_array))
		return most_for;
	for (size_t i = 0; i < json_object_array_length(waits); i++) {
		struct json_object *wait = json_object_array_get_idx(waits, i);
		const char *whom = report_text(wait, "for", "?");
		int64_t ns = report_number(wait, "ns") -
			     report_number(find(report_at(row->before, "waits"), "for", whom), "ns");

		if (ns > most_ns) {
			most_ns = ns;
			most_for = whom;
		}
	}
	return most_for;
}

static void draw_row(FILE *to, const struct row *row, unsigned bar_width)
{
	struct json_object *vgpu = row->vgpu;
	int64_t limit_bytes = report_number(vgpu, "mem.limit");
	char bar[BAR_MOST + 1], time[32], used[24], limit[24], p99[24] = "-";

	top_bar(bar, bar_width, row->share, report_real(vgpu, "time.request"),
		report_real(vgpu, "time.limit"));
	if (report_number(vgpu, "latency.samples"))
		snprintf(p99, sizeof(p99), "%.2f ms", report_real(vgpu, "latency.p99_us") / 1000);
	fprintf(to, "%-16.16s %-7.7s %-10.10s %-11s %5.1f%% %s %10s %10s %9s %-8.8s %s\n",
		report_text(vgpu, "name", "?"), report_text(vgpu, "gpu", "?"),
		report_text(vgpu, "class", "?"), report_time(vgpu, time, sizeof(time)), row->share * 100, bar,
		bf_format_size((uint64_t)report_number(vgpu, "mem.used"), used, sizeof(used)),
		limit_bytes ? bf_format_size((uint64_t)limit_bytes, limit, sizeof(limit)) : "the card", p99,
		report_text(vgpu, "state", "?"), waits_for(row));
}

static int by_share(const void *a, const void *b)
{
	const struct row *left = a, *right = b;

	if (left->share != right->share)
		return left->share < right->share ? 1 : -1;
	return strcmp(report_text(left->vgpu, "name", ""), report_text(right->vgpu, "name", ""));
}

static void fill_row(struct row *row, struct json_object *before, struct json_object *now,
		     struct json_object *vgpu)
{
	const char *gpu = report_text(vgpu, "gpu", "");

	row->vgpu = vgpu;
	row->before = find(report_at(before, "vgpus"), "name", report_text(vgpu, "name", ""));
	row->share = rate(row->before, vgpu, "time.gpu_ns", passed_ns(before, now, gpu));
	if (row->share < 0)
		row->share = report_real(vgpu, "time.share");
	if (row->share > 1)
		row->share = 1; /* counted at slightly different moments */
}

void top_draw(FILE *to, struct json_object *before, struct json_object *now, unsigned columns)
{
	struct json_object *gpus = report_at(now, "gpus"), *vgpus = report_at(now, "vgpus");
	size_t count = json_object_array_length(vgpus);
	struct row *rows = calloc(count + 1, sizeof(*rows));
	unsigned bar_width = columns > FIXED_COLUMNS + BAR_LEAST ? columns - FIXED_COLUMNS : BAR_LEAST;

	if (bar_width > BAR_MOST)
		bar_width = BAR_MOST;
	for (size_t i = 0; i < json_object_array_length(gpus); i++)
		draw_gpu(to, before, json_object_array_get_idx(gpus, i));
	if (!json_object_array_length(gpus))
		fputs("no GPU is in use\n", to);
	fprintf(to, "\n%-16s %-7s %-10s %-11s %6s %-*s %10s %10s %9s %-8s %s\n", "NAME", "GPU", "CLASS",
		"TIME", "SHARE", (int)bar_width, "", "USED", "LIMIT", "P99", "STATE", "WAITS FOR");
	for (size_t i = 0; rows && i < count; i++)
		fill_row(&rows[i], before, now, json_object_array_get_idx(vgpus, i));
	if (rows)
		qsort(rows, count, sizeof(*rows), by_share);
	for (size_t i = 0; rows && i < count; i++)
		draw_row(to, &rows[i], bar_width);
	free(rows);
}

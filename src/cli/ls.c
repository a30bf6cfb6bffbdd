#include <stdio.h>

#include "base/units.h"
#include "cli/cli.h"
#include "cli/report.h"

static const char help_text[] =
	"usage: belfry ls [--json]\n"
	"\n"
	"List the virtual GPUs, with the time they are promised and had lately, and the device memory\n"
	"they use and may. A change of the configuration that belfryd could not make yet is told, too.\n";

static void print_row(struct json_object *vgpu, struct json_object *top)
{
	int64_t limit_bytes = report_number(vgpu, "mem.limit");
	struct json_object *processes = report_at(vgpu, "processes");
	char time[32], used[24], limit[24], user[40];

	printf("%-24s %-7s %-12s %-10s %-11s %5.1f%% %11s %11s %5zu  %s%s\n", report_text(vgpu, "name", "?"),
	       report_text(vgpu, "gpu", "?"), report_user(vgpu, user, sizeof(user)),
	       report_text(vgpu, "class", "?"), report_time(vgpu, time, sizeof(time)),
	       report_real(vgpu, "time.share") * 100,
	       bf_format_size((uint64_t)report_number(vgpu, "mem.used"), used, sizeof(used)),
	       limit_bytes ? bf_format_size((uint64_t)limit_bytes, limit, sizeof(limit)) : "the card",
	       json_object_is_type(processes, json_type_array) ? json_object_array_length(processes) : 0,
	       report_text(vgpu, "state", "?"),
	       report_pending(top, report_text(vgpu, "name", "")) ? ", change pending" : "");
}

static void print_table(struct json_object *top)
{
	struct json_object *vgpus = report_at(top, "vgpus");

	printf("%-24s %-7s %-12s %-10s %-11s %6s %11s %11s %5s  %s\n", "NAME", "GPU", "OWNER", "CLASS",
	       "TIME", "SHARE", "USED", "LIMIT", "PROCS", "STATE");
	for (size_t i = 0; i < json_object_array_length(vgpus); i++)
		print_row(json_object_array_get_idx(vgpus, i), top);
	report_print_pending(top);
}

int cli_ls(int argc, char **argv)
{
	struct bf_error err = { 0 };
	struct json_object *top;
	bool is_json = false;
	int rc = cli_parse_json(argc, argv, help_text, 0, &is_json);

	if (rc)
		return rc - 1;
	rc = report_gather(NULL, &top, &err);
	if (rc && !report_at(top, "daemon"))
		; /* no belfryd answered: nothing to show */
	else if (is_json)
		report_print(top);
	else
		print_table(top);
	json_object_put(top);
	return rc ? cli_fail(&err) : CLI_OK;
}

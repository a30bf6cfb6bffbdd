#include <stdio.h>

#include "base/units.h"
#include "cli/cli.h"
#include "cli/report.h"

static const struct bf_command command = {
	.name = "ls",
	.about =
		"usage: belfry ls [--json]\n"
		"\n"
		"List the vGPUs: requested share and limit of the GPU's time, the share of the last window, and\n"
		"the device memory in use and its limit. Pending changes of the configuration follow.\n",
	.options = cli_json_options,
};

/* Columns that are there only if a vGPU has a value for them. */
struct columns {
	bool has_domain, has_sm;
};

static struct columns columns_of(struct json_object *vgpus)
{
	struct columns columns = { 0 };

	for (size_t i = 0; i < json_object_array_length(vgpus); i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);

		columns.has_domain |= *report_text(vgpu, "domain", "") != 0;
		columns.has_sm |= report_at(vgpu, "sm") != NULL;
	}
	return columns;
}

static void print_row(struct json_object *vgpu, struct json_object *top, struct columns columns)
{
	int64_t limit_bytes = report_number(vgpu, "mem.limit");
	struct json_object *processes = report_at(vgpu, "processes");
	char time[32], used[24], limit[24], user[40], sm[32];

	printf("%-24s %-7s %-12s %-10s %-11s %5.1f%% ", report_text(vgpu, "name", "?"),
	       report_text(vgpu, "gpu", "?"), report_user(vgpu, user, sizeof(user)),
	       report_text(vgpu, "class", "?"), report_time(vgpu, time, sizeof(time)),
	       report_real(vgpu, "time.share") * 100);
	if (columns.has_domain)
		printf("%-12s ", report_domain(vgpu));
	if (columns.has_sm)
		printf("%-11s ", report_sm(vgpu, sm, sizeof(sm)));
	printf("%11s %11s %5zu  %s%s\n",
	       bf_format_size((uint64_t)report_number(vgpu, "mem.used"), used, sizeof(used)),
	       limit_bytes ? bf_format_size((uint64_t)limit_bytes, limit, sizeof(limit)) : "GPU",
	       json_object_is_type(processes, json_type_array) ? json_object_array_length(processes) : 0,
	       report_text(vgpu, "state", "?"),
	       report_pending(top, report_text(vgpu, "name", "")) ? ", change pending" : "");
}

static void print_table(struct json_object *top)
{
	struct json_object *vgpus = report_at(top, "vgpus");
	struct columns columns = columns_of(vgpus);

	printf("%-24s %-7s %-12s %-10s %-11s %6s ", "NAME", "GPU", "OWNER", "CLASS", "TIME", "SHARE");
	if (columns.has_domain)
		printf("%-12s ", "DOMAIN");
	if (columns.has_sm)
		printf("%-11s ", "SM");
	printf("%11s %11s %5s  %s\n", "USED", "LIMIT", "PROCS", "STATE");
	for (size_t i = 0; i < json_object_array_length(vgpus); i++)
		print_row(json_object_array_get_idx(vgpus, i), top, columns);
	report_print_pending(top);
}

int cli_ls(int argc, char **argv)
{
	struct bf_error err = { 0 };
	struct json_object *top;
	bool is_json = false;
	int status, first = cli_parse(&command, argc, argv, &is_json, &status), rc;

	if (!first)
		return status;
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

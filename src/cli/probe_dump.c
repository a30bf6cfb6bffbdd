#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/own.h"
#include "cli/probe.h"
#include "cli/report.h"

static size_t count_of(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

static bool is_meant(struct json_object *process, long pid)
{
	return !pid || report_number(process, "pid") == pid;
}

static void print_counter(struct json_object *process, const char *path, const char *what)
{
	long long count = (long long)report_number(process, path);

	if (count)
		printf("  process %lld: %lld %s\n", (long long)report_number(process, "pid"), count, what);
}

/* What a reader of the tables must know of a process. */
static void print_process(struct json_object *process)
{
	long long pid = (long long)report_number(process, "pid");
	struct json_object *area = report_at(process, "area"), *maps = report_at(area, "maps");
	bool has_ended = json_object_get_boolean(report_at(process, "ended"));

	if (!area) {
		printf("  process %lld (%s)%s: %s\n", pid, report_text(process, "program", "?"),
		       has_ended ? ", ended" : "", report_text(process, "why", "no copy"));
		return;
	}
	printf("  process %lld (%s)%s\n", pid, report_text(process, "program", "?"),
	       has_ended ? ", ended: its last copy" : "");
	if (json_object_get_boolean(report_at(area, "damaged")))
		printf("  process %lld: the program has written to the memory of the probe\n", pid);
	print_counter(process, "area.out_of_fuel", "runs ended because a loop was too long");
	print_counter(process, "area.out_of_bounds", "runs ended because an access failed its check");
	print_counter(process, "area.busy", "updates of hashes gave up");
	print_counter(process, "area.missed_ends", "ends of blocks or grids were missed");
	for (size_t i = 0; i < count_of(maps); i++) {
		struct json_object *map = json_object_array_get_idx(maps, i);

		if (report_number(map, "left_out"))
			printf("  map %s: %lld entries are left out\n", report_text(map, "map", "?"),
			       (long long)report_number(map, "left_out"));
		if (report_number(map, "dropped"))
			printf("  ring %s: %lld records were dropped: it was full\n",
			       report_text(map, "map", "?"), (long long)report_number(map, "dropped"));
		if (!strcmp(report_text(map, "kind", ""), "hash") &&
		    count_of(report_at(map, "entries")) >= (size_t)report_number(map, "max_entries"))
			printf("  map %s: it is full; further keys were not counted\n",
			       report_text(map, "map", "?"));
	}
}

static void print_probe(struct json_object *probe, long pid)
{
	struct json_object *processes = report_at(probe, "processes");
	size_t shown = 0;

	printf("probe %lld: %s\n", (long long)report_number(probe, "number"),
	       report_text(probe, "probe", "?"));
	for (size_t i = 0; i < count_of(processes); i++) {
		struct json_object *process = json_object_array_get_idx(processes, i);

		if (!is_meant(process, pid))
			continue;
		print_process(process);
		shown++;
	}
	if (!shown)
		printf("  no process has carried it\n");
	else if (!count_of(report_at(probe, "kernels")))
		printf("  no kernel carries it: belfry probe ls tells why\n");
	probe_tables_print(probe);
}

static int dump(struct probe_args *args)
{
	struct protocol_request request = talk_request(PROTOCOL_PROBE_DUMP, args->vgpu);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	cleanup_free char *body = NULL;
	struct json_object *top, *probes;
	uint32_t number = 0;

	if (args->name && probe_number(args->vgpu, args->name, &number, &err))
		return cli_fail(&err);
	request.for_us = number;
	if (talk_once(&request, &reply, &body, &err))
		return cli_fail(&err);
	top = body ? json_tokener_parse(body) : NULL;
	probes = report_at(top, "probes");
	for (size_t i = 0; i < count_of(probes); i++) {
		struct json_object *probe = json_object_array_get_idx(probes, i);

		probe_tables(probe, args->pid);
		if (!args->is_json)
			print_probe(probe, args->pid);
	}
	if (args->is_json)
		report_print(top);
	json_object_put(top);
	return CLI_OK;
}

static const struct bf_option dump_options[] = {
	BF_OPTION("vgpu", 0, "NAME", "the vGPU (required)", cli_take_name, struct probe_args, vgpu),
	BF_OPTION("process", 0, "PID", "only this process (default: all)", probe_take_pid, struct probe_args,
		  pid),
	BF_OPTION("json", 0, NULL, "print JSON, with the maps of each process", bf_take_flag,
		  struct probe_args, is_json),
	BF_OPTIONS_END,
};

const struct probe_command probe_dump_command = {
	.command = {
		.name = "probe dump",
		.about = "usage: belfry probe dump [NAME|NUMBER] --vgpu NAME [OPTION...]\n"
			 "\n"
			 "Print what a probe, or each probe of a vGPU, has counted. Tables add up all processes, with the\n"
			 "last values of those that have ended.\n",
		.options = dump_options,
		.most = 1,
		.wrong_count = "give the name or the number of one probe, or none",
	},
	.main = dump,
	.needs_vgpu = true,
};

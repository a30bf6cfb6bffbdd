#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/cli.h"
#include "server/runtime.h"

static const char help_text[] =
	"usage: belfry ls [--json]\n"
	"\n"
	"List the virtual GPUs of this user that are running, with the memory they use by Belfry's\n"
	"ledger and by the driver's own count.\n";

static struct json_object *number(uint64_t value)
{
	return json_object_new_int64((int64_t)value);
}

static struct json_object *report_processes(const struct warden_report *report)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < report->processes && i < WARDEN_REPORT_PROCESSES; i++) {
		struct json_object *process = json_object_new_object();

		json_object_object_add(process, "pid", json_object_new_int(report->process[i].pid));
		json_object_object_add(process, "used", number(report->process[i].used_bytes));
		json_object_object_add(process, "driver", number(report->process[i].driver_bytes));
		json_object_array_add(list, process);
	}
	return list;
}

static struct json_object *reply_json(const struct protocol_reply *reply)
{
	const struct warden_report *report = &reply->report;
	struct json_object *vgpu = json_object_new_object(), *mem = json_object_new_object(),
			   *gate = json_object_new_object();

	json_object_object_add(mem, "limit", number(report->mem_limit_bytes));
	json_object_object_add(mem, "used", number(report->mem_used_bytes));
	json_object_object_add(mem, "most", number(report->mem_most_bytes));
	json_object_object_add(mem, "managed", number(report->mem_managed_bytes));
	json_object_object_add(mem, "driver", number(report->mem_driver_bytes));
	json_object_object_add(gate, "rings", number(report->rings));
	json_object_object_add(gate, "forwards", number(report->forwards));
	json_object_object_add(gate, "strange", number(report->strange));
	json_object_object_add(gate, "swept", number(report->swept));
	json_object_object_add(gate, "cpu_ns", number(report->gate_cpu_ns));
	json_object_object_add(vgpu, "name", json_object_new_string(reply->name));
	json_object_object_add(vgpu, "pid", number(reply->supervisor_pid));
	json_object_object_add(vgpu, "mem", mem);
	json_object_object_add(vgpu, "gate", json_object_new_string(cli_gate_names[report->gate % 3]));
	json_object_object_add(vgpu, "timeslice_us", number(report->timeslice_us));
	json_object_object_add(
		vgpu, "interleave",
		report->interleave < 0
			? NULL
			: json_object_new_string(cli_interleave_names[report->interleave % 3]));
	json_object_object_add(vgpu, "channels", number(report->channels));
	json_object_object_add(vgpu, "calls", number(report->calls));
	json_object_object_add(vgpu, "refusals", number(report->refusals));
	json_object_object_add(vgpu, "submissions", gate);
	json_object_object_add(vgpu, "processes", report_processes(report));
	return vgpu;
}

static void print_row(const struct protocol_reply *reply)
{
	const struct warden_report *report = &reply->report;
	char used[24], limit[24], slice[24] = "-";

	if (report->timeslice_us)
		snprintf(slice, sizeof(slice), "%llu us", (unsigned long long)report->timeslice_us);
	printf("%-24s %8u %5u %11s %11s  %-8s %8u %10s\n", reply->name, reply->supervisor_pid,
	       report->processes, bf_format_size(report->mem_used_bytes, used, sizeof(used)),
	       report->mem_limit_bytes ? bf_format_size(report->mem_limit_bytes, limit, sizeof(limit))
				       : "the card",
	       cli_gate_names[report->gate % 3], report->channels, slice);
}

static void visit(void *context, const char *name)
{
	struct protocol_request request = { .magic = PROTOCOL_MAGIC,
					    .version = PROTOCOL_VERSION,
					    .op = PROTOCOL_REPORT };
	struct protocol_reply reply;

	if (runtime_ask(name, &request, &reply, NULL))
		return; /* it ended between the listing and the asking */
	if (context)
		json_object_array_add(context, reply_json(&reply));
	else
		print_row(&reply);
}

int cli_ls(int argc, char **argv)
{
	struct json_object *list = NULL;
	struct bf_error err = { 0 };
	bool is_json = false;
	char folder[108];
	int rc = cli_parse_json(argc, argv, help_text, &is_json);

	if (rc)
		return rc - 1;
	if (runtime_folder(folder, sizeof(folder), &err))
		return cli_fail(&err);
	if (is_json)
		list = json_object_new_array();
	else
		printf("%-24s %8s %5s %11s %11s  %-8s %8s %10s\n", "NAME", "PID", "PROCS", "USED", "LIMIT",
		       "GATE", "CHANNELS", "TIMESLICE");
	rc = runtime_each(visit, list, &err);
	if (is_json && !rc) {
		struct json_object *top = json_object_new_object();

		json_object_object_add(top, "vgpus", list);
		puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED));
		json_object_put(top);
	}
	if (is_json && rc)
		json_object_put(list);
	return rc ? cli_fail(&err) : CLI_OK;
}

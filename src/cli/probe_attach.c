#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "cli/probe.h"
#include "cli/report.h"

static int fill(const struct probe_args *args, const char *path, struct protocol_probe *probe,
		struct bf_error *err)
{
	const char *base = strrchr(path, '/');

	*probe = (struct protocol_probe){ .magic = PROTOCOL_MAGIC,
					  .version = PROTOCOL_VERSION,
					  .pid = (int32_t)args->pid,
					  .sample = (uint32_t)args->sample };
	if (args->kernel && (strlen(args->kernel) >= sizeof(probe->kernel) ||
			     !bf_is_line(args->kernel, sizeof(probe->kernel))))
		return bf_fail(err, EINVAL, "--kernel: not printable, or longer than %zu characters",
			       sizeof(probe->kernel) - 1);
	snprintf(probe->kernel, sizeof(probe->kernel), "%s", args->kernel ? args->kernel : "");
	snprintf(probe->file, sizeof(probe->file), "%.127s", base ? base + 1 : path);
	probe_base_name(path, probe->name, sizeof(probe->name));
	return 0;
}

static struct json_object *attached(struct json_object *top)
{
	struct json_object *probes = report_at(top, "probes");

	for (size_t i = 0;
	     json_object_is_type(probes, json_type_array) && i < json_object_array_length(probes); i++) {
		struct json_object *probe = json_object_array_get_idx(probes, i);

		if (report_number(probe, "number") == report_number(top, "number"))
			return probe;
	}
	return NULL;
}

static void print_attached(struct json_object *top)
{
	struct json_object *processes = report_at(top, "processes"), *probe = attached(top);
	unsigned reachable = 0;

	printf("%s is attached to %s as probe %lld\n", report_text(probe, "probe", "?"),
	       report_text(top, "vgpu", "?"), (long long)report_number(top, "number"));
	if (report_text(probe, "not_verified", NULL))
		printf("  the kernel's verifier has not seen it: %s\n",
		       report_text(probe, "not_verified", ""));
	for (size_t i = 0;
	     json_object_is_type(processes, json_type_array) && i < json_object_array_length(processes);
	     i++) {
		struct json_object *process = json_object_array_get_idx(processes, i);
		const char *why = report_text(process, "why", NULL);

		reachable += !why;
		if (why)
			printf("  process %lld: %s\n", (long long)report_number(process, "pid"), why);
	}
	printf("  kernels that are loaded from now on carry it%s\n",
	       reachable ? "; those that are loaded already do not" : "");
}

static int attach(struct probe_args *args)
{
	struct protocol_request request = talk_request(PROTOCOL_PROBE_ATTACH, args->vgpu);
	struct policy_file file = { .bytes = NULL };
	struct protocol_probe probe;
	struct protocol_reply reply;
	struct talk_place place;
	struct bf_error err = { 0 };
	cleanup_free char *body = NULL;
	cleanup_close int memory = -1, sock = -1;
	struct json_object *top;
	int rc = probe_object_read(args->name, &file, &err);

	if (!rc)
		rc = fill(args, file.path, &probe, &err);
	if (!rc)
		rc = memory = policy_file_seal(&file, &err);
	free(file.bytes);
	if (rc >= 0)
		rc = sock = cli_reach(&place, &err);
	if (rc >= 0)
		rc = cli_ask(&sock, &place, &request, &reply, &err);
	if (rc >= 0)
		rc = talk_give_probe(sock, &probe, memory, &reply, &body, &err);
	if (rc < 0) {
		cli_fail(&err);
		if (body)
			fputs(bf_plain(body), stderr);
		return CLI_FAILED;
	}
	top = body ? json_tokener_parse(body) : NULL;
	if (args->is_json)
		report_print(attached(top));
	else
		print_attached(top);
	json_object_put(top);
	return CLI_OK;
}

static const struct bf_option attach_options[] = {
	BF_OPTION("vgpu", 0, "NAME", "the vGPU (required)", cli_take_name, struct probe_args, vgpu),
	BF_OPTION("kernel", 0, "PATTERN",
		  "only kernels whose names match, such as 'attn*,gemm*' (default: all)", bf_take_text,
		  struct probe_args, kernel),
	BF_OPTION("process", 0, "PID", "only this process (default: all)", probe_take_pid, struct probe_args,
		  pid),
	BF_OPTION("sample", 0, "N", "each thread runs the probe at one of N memory accesses (default: 1)",
		  probe_take_sample, struct probe_args, sample),
	BF_OPTION("json", 0, NULL, "print what was attached as JSON", bf_take_flag, struct probe_args,
		  is_json),
	BF_OPTIONS_END,
};

const struct probe_command probe_attach_command = {
	.command = {
		.name = "probe attach",
		.about = "usage: belfry probe attach FILE|NAME --vgpu NAME [OPTION...]\n"
			 "\n"
			 "Insert a probe into the kernels that programs on a vGPU load from now on. Programs are not\n"
			 "restarted, and their results do not change.\n",
		.options = attach_options,
		.after = "If there is no file NAME, it is a probe that comes with Belfry.\n",
		.least = 1,
		.most = 1,
		.wrong_count = "give a file, or the name of one probe",
	},
	.main = attach,
	.lists_shipped = true,
	.needs_vgpu = true,
};

static int detach(struct probe_args *args)
{
	struct protocol_request request = talk_request(PROTOCOL_PROBE_DETACH, args->vgpu);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	cleanup_free char *body = NULL;
	struct json_object *top, *list;
	uint32_t number = 0;

	if (!args->name == !args->wants_all)
		return cli_usage("probe detach", "give the name or the number of one probe, or --all");
	if (args->name && probe_number(args->vgpu, args->name, &number, &err))
		return cli_fail(&err);
	request.for_us = number;
	if (talk_once(&request, &reply, &body, &err))
		return cli_fail(&err);
	top = body ? json_tokener_parse(body) : NULL;
	list = report_at(top, "detached");
	if (args->is_json)
		report_print(top);
	for (size_t i = 0; !args->is_json && json_object_is_type(list, json_type_array) &&
			   i < json_object_array_length(list);
	     i++)
		printf("%s is detached from %s\n",
		       report_text(json_object_array_get_idx(list, i), "probe", "?"), args->vgpu);
	json_object_put(top);
	return CLI_OK;
}

static const struct bf_option detach_options[] = {
	BF_OPTION("vgpu", 0, "NAME", "the vGPU (required)", cli_take_name, struct probe_args, vgpu),
	BF_OPTION("all", 0, NULL, "all probes of the vGPU", bf_take_flag, struct probe_args, wants_all),
	BF_OPTION("json", 0, NULL, "print what was detached as JSON", bf_take_flag, struct probe_args,
		  is_json),
	BF_OPTIONS_END,
};

const struct probe_command probe_detach_command = {
	.command = {
		.name = "probe detach",
		.about = "usage: belfry probe detach NAME|NUMBER --vgpu NAME [OPTION...]\n"
			 "       belfry probe detach --all --vgpu NAME [OPTION...]\n"
			 "\n"
			 "Detach a probe, and discard what it has counted. Kernels that carry it continue.\n",
		.options = detach_options,
		.most = 1,
		.wrong_count = "give the name or the number of one probe, or --all",
	},
	.main = detach,
	.needs_vgpu = true,
};

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/own.h"
#include "cli/probe.h"
#include "cli/report.h"

enum { KERNELS_SHOWN = 16 };

static size_t count_of(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

int probe_list(const char *vgpu, struct json_object **top, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_PROBE_LIST, vgpu);
	struct protocol_reply reply;
	cleanup_free char *body = NULL;
	int rc = talk_once(&request, &reply, &body, err);

	*top = rc || !body ? NULL : json_tokener_parse(body);
	if (!rc && !json_object_is_type(*top, json_type_object))
		rc = bf_fail(err, EPROTO, "belfryd's answer makes no sense; restart it");
	return rc;
}

int probe_number(const char *vgpu, const char *name, uint32_t *number, struct bf_error *err)
{
	struct json_object *top, *probes;
	unsigned found = 0;
	int rc = probe_list(vgpu, &top, err);

	probes = rc ? NULL : report_at(top, "probes");
	for (size_t i = 0; i < count_of(probes); i++) {
		struct json_object *probe = json_object_array_get_idx(probes, i);
		char text[24];

		snprintf(text, sizeof(text), "%lld", (long long)report_number(probe, "number"));
		if (strcmp(name, text) && strcmp(name, report_text(probe, "probe", "")))
			continue;
		*number = (uint32_t)report_number(probe, "number");
		found++;
	}
	json_object_put(top);
	if (!rc && found > 1)
		return bf_fail(err, EINVAL, "%s: %u probes have this name; give the number", name, found);
	if (!rc && !found)
		return bf_fail(err, ENOENT, "%s: it has no probe '%.64s'; belfry probe ls lists its probes",
			       vgpu, name);
	return rc;
}

static void print_kernels(struct json_object *probe)
{
	struct json_object *kernels = report_at(probe, "kernels");
	size_t count = count_of(kernels);

	for (size_t i = 0; i < count && i < KERNELS_SHOWN; i++) {
		struct json_object *kernel = json_object_array_get_idx(kernels, i);

		printf("    in %s, process %lld\n", report_text(kernel, "name", "?"),
		       (long long)report_number(kernel, "pid"));
	}
	if (count > KERNELS_SHOWN || report_number(probe, "kernels_lost"))
		printf("    and in more kernels: --json lists them\n");
}

static void print_reasons(struct json_object *probe)
{
	struct json_object *reasons = report_at(probe, "not_woven");

	for (size_t i = 0; i < count_of(reasons); i++) {
		struct json_object *one = json_object_array_get_idx(reasons, i);
		const char *why = report_text(one, "why", "");

		printf("    not in %lld module%s of process %lld: ", (long long)report_number(one, "modules"),
		       report_number(one, "modules") == 1 ? "" : "s", (long long)report_number(one, "pid"));
		if (!strcmp(why, "no_match"))
			printf("no kernel matches '%s'\n", report_text(probe, "kernel", "*"));
		else if (!strcmp(why, "machine_code_only"))
			printf("machine code only, without PTX: not instrumentable\n");
		else
			printf("%s\n", report_text(one, "text", "refused"));
	}
}

static void print_probe(struct json_object *probe, const char *vgpu)
{
	printf("%s  probe %lld: %s", vgpu, (long long)report_number(probe, "number"),
	       report_text(probe, "probe", "?"));
	if (report_text(probe, "kernel", NULL))
		printf(", kernels '%s'", report_text(probe, "kernel", ""));
	if (report_number(probe, "pid"))
		printf(", process %lld", (long long)report_number(probe, "pid"));
	if (report_number(probe, "sample") > 1)
		printf(", one of %lld accesses", (long long)report_number(probe, "sample"));
	printf("\n");
	if (!count_of(report_at(probe, "kernels")))
		printf("    no kernel carries it yet\n");
	print_kernels(probe);
	print_reasons(probe);
}

static void print_list(struct json_object *list, bool is_named)
{
	const char *vgpu = report_text(list, "vgpu", "?");
	struct json_object *probes = report_at(list, "probes"), *processes = report_at(list, "processes");

	if (!count_of(probes) && is_named)
		printf("%s has no probes\n", vgpu);
	for (size_t i = 0; i < count_of(probes); i++)
		print_probe(json_object_array_get_idx(probes, i), vgpu);
	for (size_t i = 0; i < count_of(processes) && (count_of(probes) || is_named); i++) {
		struct json_object *process = json_object_array_get_idx(processes, i);

		printf("%s  process %lld: %s\n", vgpu, (long long)report_number(process, "pid"),
		       report_text(process, "why", "reachable"));
	}
}

/* Those of other users are left out. */
static int add_all(struct json_object *to, struct bf_error *err)
{
	struct json_object *report, *vgpus;
	int rc = report_gather(NULL, &report, err);

	vgpus = rc ? NULL : report_at(report, "vgpus");
	for (size_t i = 0; !rc && i < count_of(vgpus); i++) {
		const char *name = report_text(json_object_array_get_idx(vgpus, i), "name", "");
		struct json_object *list;

		rc = probe_list(name, &list, err);
		if (!rc)
			json_object_array_add(to, list);
		if (rc == -EPERM || rc == -ENOENT)
			rc = 0;
	}
	json_object_put(report);
	return rc;
}

static int ls(struct probe_args *args)
{
	struct json_object *lists = json_object_new_array(), *one = NULL;
	struct bf_error err = { 0 };
	int rc = args->vgpu ? probe_list(args->vgpu, &one, &err) : add_all(lists, &err);

	if (!rc && one)
		json_object_array_add(lists, one);
	if (!rc && args->is_json)
		report_print(lists);
	for (size_t i = 0; !rc && !args->is_json && i < count_of(lists); i++)
		print_list(json_object_array_get_idx(lists, i), args->vgpu);
	json_object_put(lists);
	return rc ? cli_fail(&err) : CLI_OK;
}

static const struct bf_option ls_options[] = {
	BF_OPTION("vgpu", 0, "NAME", "probes of this vGPU only (default: all vGPUs of this user)",
		  cli_take_name, struct probe_args, vgpu),
	BF_OPTION("json", 0, NULL, "print JSON", bf_take_flag, struct probe_args, is_json),
	BF_OPTIONS_END,
};

const struct probe_command probe_ls_command = {
	.command = {
		.name = "probe ls",
		.about = "usage: belfry probe ls [OPTION...]\n"
			 "\n"
			 "List probes: which kernels carry them, why other modules do not, and which processes\n"
			 "cannot carry any.\n",
		.options = ls_options,
	},
	.main = ls,
};

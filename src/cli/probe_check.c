#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/probe.h"
#include "cli/report.h"
#include "policy/policy.h"
#include "probe/probe.h"

enum { SMS = 256 }; /* for the size of maps: as for a large GPU */

static const char *const events[] = { "kernel_enter", "kernel_exit", "block_enter",
				      "block_exit",   "mem_access",  "loop",
				      "warp_enter",   "warp_exit",   "section" };
_Static_assert(sizeof(events) / sizeof(events[0]) == BELFRY_PROBE_EVENTS, "a name for each event");
static const char *const kinds[] = { "array", "SM array", "hash", "ring", "variables" };

struct verdict {
	bool is_tried, is_taken;
	struct bf_error why;
	char *log;
};

static struct verdict verify(const struct policy_file *file)
{
	struct verdict verdict = { .is_tried = false };

	if (policy_is_possible(&verdict.why))
		return verdict;
	verdict.is_tried = true;
	verdict.is_taken = !probe_verify(file->bytes, file->size, &verdict.log, &verdict.why);
	return verdict;
}

static void print_map(const struct probe_map *map)
{
	printf("  map: %s, %s of %u", map->name, kinds[map->kind], map->max_entries);
	if (map->kind == PROBE_MAP_RING)
		printf(" bytes\n");
	else if (map->kind == PROBE_MAP_HASH)
		printf(" entries, keys of %u and values of %u bytes\n", map->key_bytes, map->value_bytes);
	else
		printf(" entries of %u bytes\n", map->value_bytes);
}

static void print_probe(const char *path, const struct probe *probe)
{
	const struct probe_program *program;
	const struct probe_map *map;
	char size[32];

	printf("%s: a probe of ABI %u\n", path, BELFRY_PROBE_ABI);
	for (size_t i = 0; (program = probe_program_at(probe, i)); i++)
		printf("  program: %s at %s, %u instructions, once for each %s\n", program->name,
		       events[program->event], program->insn_count,
		       program->is_per_thread ? "thread" : "warp or less");
	for (size_t i = 0; (map = probe_map_at(probe, i)); i++)
		print_map(map);
	printf("  its memory on a GPU of %d SMs: %s\n", SMS,
	       bf_format_size(probe_area_bytes(probe), size, sizeof(size)));
}

static struct json_object *probe_json(const char *path, const struct probe *probe)
{
	struct json_object *top = json_object_new_object(), *programs = json_object_new_array(),
			   *maps = json_object_new_array();
	const struct probe_program *program;
	const struct probe_map *map;

	for (size_t i = 0; (program = probe_program_at(probe, i)); i++) {
		struct json_object *to = json_object_new_object();

		json_add_text(to, "program", program->name);
		json_add_text(to, "event", events[program->event]);
		json_add_number(to, "instructions", program->insn_count);
		json_add_bool(to, "per_thread", program->is_per_thread);
		json_object_array_add(programs, to);
	}
	for (size_t i = 0; (map = probe_map_at(probe, i)); i++) {
		struct json_object *to = json_object_new_object();

		json_add_text(to, "map", map->name);
		json_add_text(to, "kind", kinds[map->kind]);
		json_add_number(to, "max_entries", map->max_entries);
		json_add_number(to, "key_bytes", map->key_bytes);
		json_add_number(to, "value_bytes", map->value_bytes);
		json_object_array_add(maps, to);
	}
	json_add_text(top, "file", path);
	json_add_number(top, "abi", BELFRY_PROBE_ABI);
	json_add(top, "programs", programs);
	json_add(top, "maps", maps);
	json_add_number(top, "area_bytes", probe_area_bytes(probe));
	return top;
}

static int print_verdict(const struct verdict *verdict)
{
	if (verdict->is_taken) {
		puts("the kernel's verifier takes it, and the rules for GPUs permit it");
	} else if (!verdict->is_tried) {
		printf("the rules for GPUs permit it; not verified: %s\n", verdict->why.text);
	} else {
		fflush(stdout);
		cli_fail(&verdict->why);
		if (verdict->log)
			fputs(bf_plain(verdict->log), stderr);
		return CLI_FAILED;
	}
	return CLI_OK;
}

static int print_json(struct json_object *top, const struct verdict *verdict)
{
	json_add(top, "verified", verdict->is_tried ? json_object_new_boolean(verdict->is_taken) : NULL);
	json_add_text(top, "why", verdict->is_taken ? NULL : verdict->why.text);
	json_add_text(top, "log", verdict->log);
	report_print(top);
	json_object_put(top);
	return verdict->is_tried && !verdict->is_taken ? CLI_FAILED : CLI_OK;
}

/* As when it is attached. The area depends on the number of SMs. */
static int check_size(const struct probe *probe, struct bf_error *err)
{
	if (probe_area_bytes(probe) <= PROBE_ATTACHED_BYTES_MAX)
		return 0;
	return bf_fail(err, EFBIG, "its maps have %llu bytes on a GPU of %d SMs; the limit is %llu MiB",
		       (unsigned long long)probe_area_bytes(probe), SMS, PROBE_ATTACHED_BYTES_MAX >> 20);
}

static int check(struct probe_args *args)
{
	struct policy_file file = { .bytes = NULL };
	struct bf_error err = { 0 }, why = { 0 };
	struct probe *probe = NULL;
	struct verdict verdict;
	int status, rc = probe_object_read(args->name, &file, &err);

	if (!rc) {
		rc = probe_open(file.bytes, file.size, &(struct probe_options){ .sm_count = SMS }, &probe,
				&why);
		if (!rc)
			rc = check_size(probe, &why);
		if (rc)
			bf_fail(&err, why.code, "%.100s: %.350s", file.path, why.text);
	}
	if (rc) {
		probe_free(probe);
		free(file.bytes);
		return cli_fail(&err);
	}
	verdict = verify(&file);
	free(file.bytes);
	if (args->is_json) {
		status = print_json(probe_json(file.path, probe), &verdict);
	} else {
		print_probe(file.path, probe);
		status = print_verdict(&verdict);
	}
	probe_free(probe);
	free(verdict.log);
	return status;
}

static const struct bf_option check_options[] = {
	BF_OPTION("json", 0, NULL, "print JSON", bf_take_flag, struct probe_args, is_json),
	BF_OPTIONS_END,
};

const struct probe_command probe_check_command = {
	.command = {
		.name = "probe check",
		.about = "usage: belfry probe check FILE|NAME [OPTION...]\n"
			 "\n"
			 "Show what is in a probe, and check it by the rules for GPUs, and by the kernel's verifier if this\n"
			 "user may use it. A refusal names the line of the source.\n",
		.options = check_options,
		.least = 1,
		.most = 1,
		.wrong_count = "give a file, or the name of one probe",
	},
	.main = check,
	.lists_shipped = true,
};

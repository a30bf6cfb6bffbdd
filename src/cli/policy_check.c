#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "cli/policy.h"
#include "cli/report.h"

struct verdict {
	bool is_tried, is_taken;
	struct bf_error why;
	char *log;
};

static struct verdict verify(const struct policy_args *args, const struct policy_file *file)
{
	struct policy_options options = { .sets = args->sets, .set_count = args->set_count };
	struct verdict verdict = { .is_tried = false };
	struct policy *policy;

	if (policy_is_possible(&verdict.why))
		return verdict;
	verdict.is_tried = true;
	policy = policy_load(file->bytes, file->size, &options, &verdict.log, &verdict.why);
	verdict.is_taken = policy;
	policy_put(policy);
	return verdict;
}

static void print_tunable(const struct policy_tunable *tunable)
{
	if (tunable->is_signed)
		printf("  tunable: %s=%" PRId64 "\n", tunable->name, tunable->value);
	else
		printf("  tunable: %s=%" PRIu64 "\n", tunable->name, (uint64_t)tunable->value);
}

static void print_description(const char *path, const struct policy_description *what)
{
	printf("%s: policy %s, of ABI %u\n", path, what->policy.name, what->policy.abi);
	if (what->policy.what[0])
		printf("  %s\n", what->policy.what);
	printf("  hooks:");
	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		if (what->hooks >> hook & 1)
			printf(" %s", policy_hook_name((enum belfry_hook)hook));
	printf("\n");
	for (size_t i = 0; i < what->tunable_count; i++)
		print_tunable(&what->tunables[i]);
	for (size_t i = 0; i < what->map_count; i++)
		printf("  map: %s\n", what->maps[i]);
}

static struct json_object *description_json(const char *path, const struct policy_description *what)
{
	struct json_object *top = json_object_new_object(), *hooks = json_object_new_array(),
			   *tunables = json_object_new_object(), *maps = json_object_new_array();

	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		if (what->hooks >> hook & 1)
			json_object_array_add(
				hooks, json_object_new_string(policy_hook_name((enum belfry_hook)hook)));
	for (size_t i = 0; i < what->tunable_count; i++)
		json_add(tunables, what->tunables[i].name,
			 what->tunables[i].is_signed
				 ? json_object_new_int64(what->tunables[i].value)
				 : json_object_new_uint64((uint64_t)what->tunables[i].value));
	for (size_t i = 0; i < what->map_count; i++)
		json_object_array_add(maps, json_object_new_string(what->maps[i]));
	json_add_text(top, "file", path);
	json_add_text(top, "policy", what->policy.name);
	json_add_text(top, "what", what->policy.what);
	json_add_number(top, "abi", what->policy.abi);
	json_add(top, "hooks", hooks);
	json_add(top, "tunables", tunables);
	json_add(top, "maps", maps);
	return top;
}

static void print_json(struct json_object *top, const struct verdict *verdict)
{
	json_add(top, "verified", verdict->is_tried ? json_object_new_boolean(verdict->is_taken) : NULL);
	json_add_text(top, "why", verdict->is_taken ? NULL : verdict->why.text);
	json_add_text(top, "log", verdict->log);
	report_print(top);
}

static void print_verdict(const struct verdict *verdict)
{
	if (verdict->is_taken) {
		puts("the kernel takes it");
	} else if (!verdict->is_tried) {
		printf("not verified: %s\n", verdict->why.text);
	} else {
		fflush(stdout);
		cli_fail(&verdict->why);
		if (verdict->log)
			fputs(bf_plain(verdict->log), stderr);
	}
}

static int check(struct policy_args *args)
{
	struct policy_file file = { .bytes = NULL };
	struct policy_description what;
	struct bf_error err = { 0 }, why = { 0 };
	struct verdict verdict;
	int rc = policy_object_read(args->name, &file, &err);

	if (!rc) {
		rc = policy_describe(file.bytes, file.size, args->sets, args->set_count, &what, &why);
		if (rc)
			bf_fail(&err, why.code, "%.100s: %.270s", file.path, why.text);
	}
	if (rc) {
		free(file.bytes);
		return cli_fail(&err);
	}
	if (!args->is_json)
		print_description(file.path, &what);
	verdict = verify(args, &file);
	free(file.bytes);
	if (args->is_json) {
		struct json_object *top = description_json(file.path, &what);

		print_json(top, &verdict);
		json_object_put(top);
	} else {
		print_verdict(&verdict);
	}
	free(verdict.log);
	return verdict.is_taken || !verdict.is_tried ? CLI_OK : CLI_FAILED;
}

static const struct bf_option check_options[] = {
	{ "set", 0, "K=V", "set a tunable; may be given several times", policy_take_set, 0, NULL },
	BF_OPTION("json", 0, NULL, "print JSON", bf_take_flag, struct policy_args, is_json),
	BF_OPTIONS_END,
};

const struct policy_command policy_check_command = {
	.command = {
		.name = "policy check",
		.about = "usage: belfry policy check FILE|NAME [OPTION...]\n"
			 "\n"
			 "Show what is in a policy, and whether the kernel's verifier accepts it. Nothing is loaded into\n"
			 "belfryd. The log of the verifier is printed with the last lines first.\n",
		.options = check_options,
		.least = 1,
		.most = 1,
		.wrong_count = "give a file, or the name of one policy",
	},
	.main = check,
	.lists_shipped = true,
};

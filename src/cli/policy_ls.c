#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "cli/policy.h"
#include "cli/report.h"

static void print_hook(struct json_object *hook)
{
	printf("  %-16s %10lld %8.1f %9.1f %6lld %8lld %7lld %6lld\n", report_text(hook, "hook", "?"),
	       (long long)report_number(hook, "calls"), report_real(hook, "mean_us"),
	       report_real(hook, "most_us"), (long long)report_number(hook, "late"),
	       (long long)report_number(hook, "defaults"), (long long)report_number(hook, "clamped"),
	       (long long)report_number(hook, "errors"));
}

static void print_since(struct json_object *policy)
{
	time_t since = (time_t)report_number(policy, "since");
	char text[32] = "the start";
	struct tm tm;

	if (since && localtime_r(&since, &tm))
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	printf(", since %s", text);
}

static void print_policy(struct json_object *policy, const char *gpu)
{
	struct json_object *hooks = report_at(policy, "hooks");
	const char *vgpu = report_text(policy, "vgpu", NULL), *why = report_text(policy, "why", NULL);
	const char *decides = report_text(policy, "decides", "built-in");

	printf("%s on %s%s", report_text(policy, "policy", "?"), vgpu ? "" : "GPU ", vgpu ? vgpu : gpu);
	print_since(policy);
	if (why)
		printf("; OUT for %.1f s: %s; %s%s decides", (double)report_number(policy, "out_ns") / 1e9,
		       why, strcmp(decides, "built-in") ? "" : "the ", decides);
	printf("\n");
	if (report_text(policy, "what", "")[0])
		printf("  %s\n", report_text(policy, "what", ""));
	policy_about(policy);
	if (!json_object_is_type(hooks, json_type_array) || !json_object_array_length(hooks))
		return;
	printf("  %-16s %10s %8s %9s %6s %8s %7s %6s\n", "HOOK", "CALLS", "MEAN us", "WORST us", "LATE",
	       "DEFAULTS", "CLAMPED", "ERRORS");
	for (size_t i = 0; i < json_object_array_length(hooks); i++)
		print_hook(json_object_array_get_idx(hooks, i));
}

/* Two software GPUs can have the same number. */
static bool is_alone(struct json_object *lists, const char *gpu)
{
	unsigned count = 0;

	for (size_t i = 0; i < json_object_array_length(lists); i++)
		count += !strcmp(report_text(json_object_array_get_idx(lists, i), "gpu", "?"), gpu);
	return count == 1;
}

static void print_list(struct json_object *lists, size_t at)
{
	struct json_object *list = json_object_array_get_idx(lists, at);
	struct json_object *policies = report_at(list, "policies");
	const char *gpu = report_text(list, "gpu", "?");
	char label[160];

	if (!is_alone(lists, gpu))
		gpu = report_label(gpu, report_text(list, "folder", ""), label, sizeof(label));
	for (size_t i = 0;
	     json_object_is_type(policies, json_type_array) && i < json_object_array_length(policies); i++)
		print_policy(json_object_array_get_idx(policies, i), gpu);
}

/* Add the policies of one GPU to the list. */
static int add(struct json_object *to, const struct protocol_request *request, struct bf_error *err)
{
	struct protocol_reply reply;
	cleanup_free char *body = NULL;
	struct json_object *list;
	char gpu[16];
	int rc = talk_once(request, &reply, &body, err);

	if (rc)
		return rc;
	list = body ? json_tokener_parse(body) : NULL;
	if (!json_object_is_type(list, json_type_object)) {
		json_object_put(list);
		return bf_fail(err, EPROTO, "belfryd's answer makes no sense; restart it");
	}
	json_add_text(list, "gpu", protocol_gpu_name(&reply.gpu, gpu, sizeof(gpu)));
	if (reply.gpu.kind == PROTOCOL_GPU_SOFT)
		json_add_text(list, "folder", reply.gpu.folder);
	json_object_array_add(to, list);
	return 0;
}

static int add_all(struct json_object *to, struct bf_error *err)
{
	struct json_object *hello, *gpus;
	int rc = report_hello(&hello, err);

	gpus = rc ? NULL : report_at(hello, "gpus");
	for (size_t i = 0;
	     json_object_is_type(gpus, json_type_array) && i < json_object_array_length(gpus) && !rc; i++) {
		struct protocol_request request = talk_request(PROTOCOL_POLICY_LIST, NULL);

		request.gpu = gather_gpu(json_object_array_get_idx(gpus, i));
		rc = add(to, &request, err);
	}
	json_object_put(hello);
	return rc;
}

static int ls(struct policy_args *args)
{
	struct protocol_request request = talk_request(PROTOCOL_POLICY_LIST, NULL);
	struct json_object *lists = json_object_new_array();
	struct bf_error err = { 0 };
	int rc;

	if (args->vgpu || args->which.is_option) {
		rc = policy_args_request(args, &request, &err);
		if (!rc)
			rc = add(lists, &request, &err);
	} else {
		rc = add_all(lists, &err);
	}
	if (rc) {
		json_object_put(lists);
		return cli_fail(&err);
	}
	if (args->is_json)
		report_print(lists);
	for (size_t i = 0; !args->is_json && i < json_object_array_length(lists); i++)
		print_list(lists, i);
	if (!args->is_json && !json_object_array_length(lists))
		puts("no GPU is in use, and so no policy");
	json_object_put(lists);
	return CLI_OK;
}

static const struct bf_option ls_options[] = {
	BF_OPTION("gpu", 0, "GPU", "the GPU: a number, soft or soft:N (default: all)", cli_take_gpu,
		  struct policy_args, which),
	BF_OPTION("soft", 0, "CONFIG", "the software GPU, by name=NAME", cli_take_soft, struct policy_args,
		  which),
	BF_OPTION("vgpu", 0, "NAME", "policies of this vGPU", cli_take_name, struct policy_args, vgpu),
	BF_OPTION("json", 0, NULL, "print JSON", bf_take_flag, struct policy_args, is_json),
	BF_OPTIONS_END,
};

const struct policy_command policy_ls_command = {
	.command = {
		.name = "policy ls",
		.about = "usage: belfry policy ls [OPTION...]\n"
			 "\n"
			 "List the loaded policies. For each hook: the number of its calls, what they cost, how many took\n"
			 "too long, how many left the decision to the built-in policy, and how many proposals were changed.\n"
			 "Then the tunables, and where the maps are pinned; or why a policy was disabled.\n",
		.options = ls_options,
	},
	.main = ls,
};

static int dump(struct policy_args *args)
{
	struct protocol_request request = talk_request(PROTOCOL_POLICY_DUMP, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	struct json_object *top;
	cleanup_free char *body = NULL, *text = NULL;

	if (policy_args_request(args, &request, &err) || talk_once(&request, &reply, &body, &err))
		return cli_fail(&err);
	top = body ? json_tokener_parse(body) : NULL;
	text = strdup(report_text(top, "text", ""));
	if (args->is_json)
		report_print(top);
	else if (text && text[0])
		printf("%s%s", bf_plain(text), text[strlen(text) - 1] == '\n' ? "" : "\n");
	else
		printf("%s has nothing to say now\n", report_text(top, "policy", "?"));
	json_object_put(top);
	return CLI_OK;
}

static const struct bf_option dump_options[] = {
	BF_OPTION("gpu", 0, "GPU", "the GPU: a number, soft or soft:N (default: the only one)", cli_take_gpu,
		  struct policy_args, which),
	BF_OPTION("soft", 0, "CONFIG", "the software GPU, by name=NAME", cli_take_soft, struct policy_args,
		  which),
	BF_OPTION("vgpu", 0, "NAME", "the policy of this vGPU", cli_take_name, struct policy_args, vgpu),
	BF_OPTION("json", 0, NULL, "print JSON", bf_take_flag, struct policy_args, is_json),
	BF_OPTIONS_END,
};

const struct policy_command policy_dump_command = {
	.command = {
		.name = "policy dump",
		.about = "usage: belfry policy dump [OPTION...]\n"
			 "\n"
			 "Print what a policy reports about itself.\n",
		.options = dump_options,
	},
	.main = dump,
};

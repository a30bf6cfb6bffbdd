#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "cli/policy.h"
#include "cli/report.h"

enum { LOG_LINES = 16 };

static int fill(const struct policy_args *args, const char *path, struct protocol_policy *policy,
		struct bf_error *err)
{
	const char *base = strrchr(path, '/');
	size_t at = 0;

	*policy = (struct protocol_policy){ .magic = PROTOCOL_MAGIC, .version = PROTOCOL_VERSION };
	snprintf(policy->file, sizeof(policy->file), "%.127s", base ? base + 1 : path);
	for (size_t i = 0; i < args->set_count; i++) {
		at += (size_t)snprintf(policy->sets + at, sizeof(policy->sets) - at, "%s\n", args->sets[i]);
		if (at >= sizeof(policy->sets))
			return bf_fail(err, E2BIG, "--set: more than %zu bytes of them",
				       sizeof(policy->sets) - 1);
	}
	return 0;
}

static void print_log(const char *log)
{
	const char *at = log;

	for (int line = 0; *at && line < LOG_LINES; line++) {
		size_t length = strcspn(at, "\n");

		fprintf(stderr, "  %.*s\n", (int)length, at);
		at += length + (at[length] == '\n');
	}
	if (*at)
		fputs("  ...; belfry policy check shows all of it\n", stderr);
}

static void print_hooks(struct json_object *hooks)
{
	printf("  hooks:");
	for (size_t i = 0; json_object_is_type(hooks, json_type_array) && i < json_object_array_length(hooks);
	     i++)
		printf(" %s", report_text(json_object_array_get_idx(hooks, i), "hook", "?"));
	printf("\n");
}

static int print_loaded(const char *body, bool is_json)
{
	struct json_object *top = body ? json_tokener_parse(body) : NULL;
	const char *vgpu = report_text(top, "vgpu", NULL);

	if (is_json) {
		report_print(top);
	} else {
		printf("%s decides %s %s now, in place of %s\n", report_text(top, "policy", "?"),
		       vgpu ? "about" : "on GPU", vgpu ? vgpu : report_text(top, "gpu", "?"),
		       report_text(top, "replaced", "?"));
		print_hooks(report_at(top, "hooks"));
		policy_about(top);
	}
	json_object_put(top);
	return CLI_OK;
}

/* Select the GPU that is in use, or the GPU that a run would use if none is. */
static int choose(struct policy_args *args, const struct talk_place *place, struct protocol_request *request,
		  struct bf_error *err)
{
	int rc = policy_args_request(args, request, err);

	return rc == -ENOENT && !args->vgpu ? cli_gpu_request(&args->which, place, &request->gpu, err) : rc;
}

static int load(struct policy_args *args)
{
	struct protocol_request request = talk_request(PROTOCOL_POLICY_LOAD, NULL);
	struct policy_file file = { .bytes = NULL };
	struct protocol_policy policy;
	struct protocol_reply reply;
	struct talk_place place;
	struct bf_error err = { 0 };
	cleanup_free char *body = NULL;
	cleanup_close int memory = -1, sock = -1;
	int rc = policy_object_read(args->name, &file, &err);

	if (!rc)
		rc = fill(args, file.path, &policy, &err);
	if (!rc)
		rc = memory = policy_file_seal(&file, &err);
	free(file.bytes);
	if (rc >= 0)
		rc = sock = cli_reach(&place, &err);
	if (rc >= 0)
		rc = choose(args, &place, &request, &err);
	if (rc >= 0)
		rc = cli_ask(&sock, &place, &request, &reply, &err);
	if (rc >= 0)
		rc = talk_give_policy(sock, &policy, memory, &reply, &body, &err);
	if (rc >= 0)
		return print_loaded(body, args->is_json);
	cli_fail(&err);
	if (body)
		print_log(bf_plain(body));
	return CLI_FAILED;
}

static const struct bf_option load_options[] = {
	BF_OPTION("gpu", 0, "GPU", "the GPU: a number, soft or soft:N (default: the only one)", cli_take_gpu,
		  struct policy_args, which),
	BF_OPTION("soft", 0, "CONFIG", "the software GPU, by name=NAME", cli_take_soft, struct policy_args,
		  which),
	BF_OPTION("vgpu", 0, "NAME", "load it for this vGPU only", cli_take_name, struct policy_args, vgpu),
	{ "set", 0, "K=V", "set a tunable, which belfry policy check lists; may be given several times",
	  policy_take_set, 0, NULL },
	BF_OPTION("json", 0, NULL, "print what was loaded as JSON", bf_take_flag, struct policy_args,
		  is_json),
	BF_OPTIONS_END,
};

const struct policy_command policy_load_command = {
	.command = {
		.name = "policy load",
		.about = "usage: belfry policy load FILE|NAME [OPTION...]\n"
			 "\n"
			 "Load a policy, which decides on a GPU, or within the share of one vGPU. It replaces the previous\n"
			 "one without a pause. If it is refused, nothing changes.\n",
		.options = load_options,
		.after = "If there is no file NAME, it is a policy that comes with Belfry.\n",
		.least = 1,
		.most = 1,
		.wrong_count = "give a file, or the name of one policy",
	},
	.main = load,
	.lists_shipped = true,
};

static int unload(struct policy_args *args)
{
	struct protocol_request request = talk_request(PROTOCOL_POLICY_UNLOAD, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	cleanup_free char *body = NULL;
	struct json_object *top;
	const char *name, *decides;

	if (policy_args_request(args, &request, &err) || talk_once(&request, &reply, &body, &err))
		return cli_fail(&err);
	top = body ? json_tokener_parse(body) : NULL;
	name = report_text(top, "policy", "?");
	decides = report_text(top, "decides", "built-in");
	if (args->is_json) {
		struct json_object *answer = json_object_new_object();

		json_add_text(answer, "unloaded", name);
		json_add_text(answer, "decides", decides);
		report_print_line(answer);
	} else if (!strcmp(decides, "built-in")) {
		printf("%s was unloaded; the built-in decides\n", name);
	} else {
		printf("%s was unloaded; %s decides now\n", name, decides);
	}
	json_object_put(top);
	return CLI_OK;
}

static const struct bf_option unload_options[] = {
	BF_OPTION("gpu", 0, "GPU", "the GPU: a number, soft or soft:N (default: the only one)", cli_take_gpu,
		  struct policy_args, which),
	BF_OPTION("soft", 0, "CONFIG", "the software GPU, by name=NAME", cli_take_soft, struct policy_args,
		  which),
	BF_OPTION("vgpu", 0, "NAME", "unload the policy of this vGPU", cli_take_name, struct policy_args,
		  vgpu),
	BF_OPTION("json", 0, NULL, "print what was unloaded as JSON", bf_take_flag, struct policy_args,
		  is_json),
	BF_OPTIONS_END,
};

const struct policy_command policy_unload_command = {
	.command = {
		.name = "policy unload",
		.about = "usage: belfry policy unload [OPTION...]\n"
			 "\n"
			 "Unload the policy of a GPU: the built-in policy decides again. With --vgpu, unload the policy of\n"
			 "the vGPU: the policy of its GPU decides again.\n",
		.options = unload_options,
	},
	.main = unload,
};

#include "cli/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/report.h"

static const char help_text[] =
	"usage: belfry policy COMMAND [OPTION...] [ARG...]\n"
	"\n"
	"Policies in eBPF decide which vGPU has the GPU next, for how long, and which vGPU is stopped.\n"
	"\n"
	"  load FILE|NAME   load a policy; it decides from now on, without a pause\n"
	"  unload           unload a policy; the built-in one decides again\n"
	"  ls               list the loaded policies, the cost of their hooks, and why one was disabled\n"
	"  dump             print what a policy reports\n"
	"  check FILE|NAME  show what is in an object, and whether the kernel accepts it\n"
	"  new NAME         write NAME.bpf.c, a policy to begin with\n"
	"  trace            print decisions as they are made\n"
	"  record           write decisions, and the work they are about, to a file\n"
	"  replay FILE      show what another policy would have decided and changed\n"
	"\n"
	"belfry policy COMMAND --help describes a command.\n";

static const struct policy_command *const commands[] = {
	&policy_load_command,  &policy_unload_command, &policy_ls_command,
	&policy_dump_command,  &policy_check_command,  &policy_new_command,
	&policy_trace_command, &policy_record_command, &policy_replay_command,
};

int policy_take_set(void *member, const struct bf_option *option, const char *set, struct bf_error *err)
{
	const char *equals = strchr(set, '=');
	struct policy_args *args = member;

	(void)option;
	if (!equals || equals == set || strchr(set, '\n'))
		return bf_fail(err, EINVAL, "--set %.64s: not NAME=VALUE", set);
	if (args->set_count == POLICY_SETS_MAX)
		return bf_fail(err, E2BIG, "--set: at most %d of them", POLICY_SETS_MAX);
	args->sets[args->set_count++] = set;
	return 0;
}

int policy_take_most(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option;
	return bf_parse_number("--most", value, 0, 1000000, member, err);
}

static int run(const struct policy_command *command, int argc, char **argv)
{
	struct policy_args args = { .most = 10 };
	struct bf_error err = { 0 };
	char names[256];
	int status, first;

	if (cli_gpu_default(&args.which, &err))
		return cli_usage(command->command.name, err.text);
	first = cli_parse(&command->command, argc, argv, &args, &status);
	if (first) {
		args.name = argv[first];
		return command->main(&args);
	}
	if (status == CLI_OK && command->lists_shipped) /* after --help */
		printf("\nPolicies that come with Belfry: %s.\n", policy_shipped(names, sizeof(names)));
	return status;
}

int policy_args_request(const struct policy_args *args, struct protocol_request *request,
			struct bf_error *err)
{
	if (args->vgpu) {
		snprintf(request->name, sizeof(request->name), "%s", args->vgpu);
		if (!args->which.is_option)
			return 0;
	}
	return report_choose(&args->which, &request->gpu, err);
}

int cli_policy(int argc, char **argv)
{
	char why[96];

	if (argc < 2)
		return cli_usage("policy", "no command given");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		fputs(help_text, stdout);
		return CLI_OK;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i]->command.name + strlen("policy ")))
			return run(commands[i], argc - 1, argv + 1);
	snprintf(why, sizeof(why), "'%.40s': no such command", argv[1]);
	return cli_usage("policy", why);
}

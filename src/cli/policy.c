#include "cli/policy.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "cli/report.h"

static const char help_text[] =
	"usage: belfry policy COMMAND [OPTION...] [ARG...]\n"
	"\n"
	"Policies in eBPF: who has the GPU next, for how long, who is stopped for whom.\n"
	"\n"
	"  load FILE|NAME  have it decide, from now on, without a pause\n"
	"  unload          have the built-in policy decide again; or for a vGPU, its GPU's\n"
	"  ls              which are loaded, what their hooks cost, and why one is out\n"
	"  dump            what a policy says of itself\n"
	"  check FILE|NAME tell what is in an object, and whether the kernel takes it\n"
	"  new NAME        write NAME.bpf.c, to begin with\n"
	"  trace           show decisions as they are made\n"
	"  record          write them to a file, with the work they are about\n"
	"  replay FILE     tell what another policy would have decided, and changed\n"
	"\n"
	"belfry policy COMMAND --help tells about one of them.\n";

static const struct policy_command *const commands[] = {
	&policy_load_command,  &policy_unload_command, &policy_ls_command,
	&policy_dump_command,  &policy_check_command,  &policy_new_command,
	&policy_trace_command, &policy_record_command, &policy_replay_command,
};

static const struct option long_options[] = { { "gpu", required_argument, NULL, 'g' },
					      { "soft", required_argument, NULL, 's' },
					      { "vgpu", required_argument, NULL, 'v' },
					      { "set", required_argument, NULL, 'S' },
					      { "output", required_argument, NULL, 'o' },
					      { "for", required_argument, NULL, 'f' },
					      { "with", required_argument, NULL, 'w' },
					      { "against", required_argument, NULL, 'A' },
					      { "most", required_argument, NULL, 'm' },
					      { "all", no_argument, NULL, 'a' },
					      { "json", no_argument, NULL, 'j' },
					      { "help", no_argument, NULL, 'h' },
					      { NULL, 0, NULL, 0 } };

static int take_set(struct policy_args *args, const char *set, struct bf_error *err)
{
	const char *equals = strchr(set, '=');

	if (!equals || equals == set || strchr(set, '\n'))
		return bf_fail(err, EINVAL, "--set %.64s: not NAME=VALUE", set);
	if (args->set_count == POLICY_SETS_MAX)
		return bf_fail(err, E2BIG, "--set: at most %d of them", POLICY_SETS_MAX);
	args->sets[args->set_count++] = set;
	return 0;
}

static int take_option(struct policy_args *args, int option, struct bf_error *err)
{
	switch (option) {
	case 'g':
		args->is_gpu_said = true;
		return cli_gpu_parse(optarg, &args->which, err);
	case 's':
		args->is_gpu_said = true;
		return cli_gpu_parse_soft(optarg, &args->which, err);
	case 'v':
		args->vgpu = optarg;
		return spec_check_name(optarg, err);
	case 'S':
		return take_set(args, optarg, err);
	case 'o':
		args->output = optarg;
		return optarg[0] ? 0 : bf_fail(err, EINVAL, "-o '': not the name of a file");
	case 'f':
		return bf_parse_time(optarg, &args->for_us, err);
	case 'w':
		args->with = optarg;
		return 0;
	case 'A':
		args->against = optarg;
		return 0;
	case 'm':
		return bf_parse_number("--most", optarg, 0, 1000000, &args->most, err);
	case 'a':
		args->wants_all = true;
		return 0;
	default:
		args->is_json = true;
		return 0;
	}
}

static int usage(const struct policy_command *command, const char *why)
{
	char name[32];

	snprintf(name, sizeof(name), "policy %s", command->name);
	return cli_usage(name, why);
}

static void help(const struct policy_command *command)
{
	char names[256];

	fputs(command->help, stdout);
	if (strchr(command->options, 'S')) /* load, check and replay */
		printf("\nThose that come with Belfry: %s.\n", policy_shipped(names, sizeof(names)));
}

/* Returns 0, or an exit status plus 1, so that --help can succeed. */
static int parse(int argc, char **argv, const struct policy_command *command, struct policy_args *args)
{
	struct bf_error err = { 0 };
	int rc = cli_gpu_default(&args->which, &err);
	char bad[96];

	opterr = 0;
	for (int option; !rc && (option = getopt_long(argc, argv, "o:h", long_options, NULL)) != -1;) {
		if (option == 'h') {
			help(command);
			return CLI_OK + 1;
		}
		if (option == '?' || !strchr(command->options, option))
			return usage(command, bf_bad_option(argv, bad, sizeof(bad))) + 1;
		rc = take_option(args, option, &err);
	}
	if (rc)
		return usage(command, err.text) + 1;
	if (!command->missing && optind != argc)
		return usage(command, "it takes no arguments") + 1;
	if (command->missing && optind + 1 != argc)
		return usage(command, command->missing) + 1;
	args->name = command->missing ? argv[optind] : NULL;
	return 0;
}

int policy_args_request(const struct policy_args *args, struct protocol_request *request,
			struct bf_error *err)
{
	if (args->vgpu) {
		snprintf(request->name, sizeof(request->name), "%s", args->vgpu);
		if (!args->is_gpu_said)
			return 0;
	}
	return report_choose(&args->which, &request->gpu, err);
}

int cli_policy(int argc, char **argv)
{
	struct policy_args args = { .most = 10 };
	char why[96];
	int rc;

	if (argc < 2)
		return cli_usage("policy", "no command given");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		fputs(help_text, stdout);
		return CLI_OK;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i]->name)) {
			rc = parse(argc - 1, argv + 1, commands[i], &args);
			return rc ? rc - 1 : commands[i]->main(&args);
		}
	snprintf(why, sizeof(why), "'%.40s': no such command", argv[1]);
	return cli_usage("policy", why);
}

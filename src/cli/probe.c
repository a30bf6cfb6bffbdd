#include "cli/probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

static const char help_text[] =
	"usage: belfry probe COMMAND [OPTION...] [ARG...]\n"
	"\n"
	"Probes are eBPF programs inside GPU kernels, which count and measure.\n"
	"\n"
	"  attach FILE|NAME  insert a probe into the kernels that programs load from now on\n"
	"  detach NAME       detach a probe, and discard what it has counted\n"
	"  ls                list the probes, the kernels that carry them, and why others do not\n"
	"  dump              print what probes have counted\n"
	"  check FILE|NAME   show what is in a probe, and whether it may run\n"
	"\n"
	"belfry probe COMMAND --help describes a command. Programs that are started with\n"
	"belfry run --probes, or in a shared domain, can carry probes.\n";

static const struct probe_command *const commands[] = {
	&probe_attach_command, &probe_detach_command, &probe_ls_command,
	&probe_dump_command,   &probe_check_command,
};

int probe_take_pid(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option;
	return bf_parse_number("--process", value, 1, 1 << 22, member, err);
}

int probe_take_sample(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option;
	return bf_parse_number("--sample", value, 1, 1 << 30, member, err);
}

static int run(const struct probe_command *command, int argc, char **argv)
{
	struct probe_args args = { 0 };
	char names[256];
	int status, first = cli_parse(&command->command, argc, argv, &args, &status);

	if (first && command->needs_vgpu && !args.vgpu)
		return cli_usage(command->command.name, "give the vGPU, with --vgpu NAME");
	if (first) {
		args.name = argv[first];
		return command->main(&args);
	}
	if (status == CLI_OK && command->lists_shipped) /* after --help */
		printf("\nProbes that come with Belfry: %s.\n", probe_shipped(names, sizeof(names)));
	return status;
}

int cli_probe(int argc, char **argv)
{
	char why[96];

	if (argc < 2)
		return cli_usage("probe", "no command given");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		fputs(help_text, stdout);
		return CLI_OK;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i]->command.name + strlen("probe ")))
			return run(commands[i], argc - 1, argv + 1);
	snprintf(why, sizeof(why), "'%.40s': no such command", argv[1]);
	return cli_usage("probe", why);
}

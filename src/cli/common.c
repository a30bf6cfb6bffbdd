#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/users.h"
#include "cli/cli.h"
#include "cli/report.h"

static int fail(const char *why)
{
	char text[sizeof(((struct bf_error *)0)->text) + BF_USER_ROOM];

	fprintf(stderr, "belfry: %s\n", bf_name_users(why, text, sizeof(text)));
	return CLI_FAILED;
}

int cli_fail(const struct bf_error *err)
{
	return fail(err->text);
}

int cli_fail_library(const struct belfry *b)
{
	return fail(belfry_error(b));
}

int cli_usage(const char *command, const char *why)
{
	fprintf(stderr, "belfry%s%s: %s; belfry %s%s--help tells more\n", command ? " " : "",
		command ? command : "", why, command ? command : "", command ? " " : "");
	return CLI_USAGE;
}

int cli_parse(const struct bf_command *command, int argc, char **argv, void *to, int *status)
{
	struct bf_error err = { 0 };
	int first = bf_command_parse(command, argc, argv, to, &err);

	*status = CLI_OK;
	if (first == BF_COMMAND_HELP)
		bf_command_help(command, stdout);
	if (first < 0)
		*status = cli_usage(command->name, err.text);
	return first < 0 ? 0 : first;
}

const struct bf_option cli_json_options[] = {
	{ "json", 0, NULL, "print JSON", bf_take_flag, 0, NULL },
	BF_OPTIONS_END,
};

int cli_take_gpu(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	struct cli_gpu *gpu = member;

	(void)option;
	gpu->is_option = true;
	return cli_gpu_parse(value, gpu, err);
}

int cli_take_soft(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	struct cli_gpu *gpu = member;

	(void)option;
	gpu->is_option = true;
	return cli_gpu_parse_soft(value, gpu, err);
}

int cli_take_name(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option;
	*(const char **)member = value;
	return spec_check_name(value, err);
}

int cli_take_file(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	*(const char **)member = value;
	return value[0] ? 0 : bf_fail(err, EINVAL, "--%s '': not the name of a file", option->name);
}

int cli_take_word(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)err;
	cli_options_add(member, option->name, value ? value : "yes");
	return 0;
}

#define VGPU_WORD(name, value, help) BF_OPTION(name, 0, value, help, cli_take_word, struct cli_vgpu, words)

const struct bf_option cli_vgpu_options[] = {
	VGPU_WORD("mem", "SIZE",
		  "memory limit, such as 8G, which is also reserved (default: no limit;\n"
		  "the vGPU shares the memory that is not reserved)"),
	VGPU_WORD("time", "REQ:LIMIT",
		  "requested share and limit of the GPU's time, in percent (default: 0:100)"),
	VGPU_WORD("class", "CLASS", "latency or throughput (default: throughput)"),
	VGPU_WORD("objective", "PN=TIME",
		  "latency objective, for class latency, such as p99=2ms (default: none)"),
	VGPU_WORD("domain", "NAME", "vGPUs of one domain hold the token together (default: its own domain)"),
	VGPU_WORD("sm", "REQ:LIMIT",
		  "requested and largest part of the SMs, in percent: the programs of the\n"
		  "domain run side by side (default: none)"),
	BF_OPTION("gpu", 0, "GPU",
		  "N for /dev/nvidiaN, soft or soft:N for the software GPU (default:\n"
		  "BELFRY_GPU; without it, the system's belfryd selects a GPU with enough\n"
		  "room, and a private one takes 0, or soft without an NVIDIA GPU)",
		  cli_take_gpu, struct cli_vgpu, which),
	BF_OPTION("soft", 0, "CONFIG",
		  "use the software GPU, such as gpus=2,sms=16,mem=4G; see belfry-soft(1)", cli_take_soft,
		  struct cli_vgpu, which),
	VGPU_WORD("timeslice", "TIME", "hardware timeslice, such as 200us (default: belfryd sets it)"),
	VGPU_WORD("interleave", "LEVEL",
		  "hardware interleave level: low, medium or high (default: belfryd sets it)"),
	VGPU_WORD("public", "[=yes|no]", "whether other users may run programs on it (default: no)"),
	BF_OPTION("any-driver", 0, NULL, "accept an unknown driver series, and use the nearest known layout",
		  bf_take_flag, struct cli_vgpu, any_driver),
	BF_OPTIONS_END,
};

void cli_options_add(struct cli_options *options, const char *key, const char *value)
{
	if (options->count > CLI_OPTIONS_MAX)
		return;
	options->words[2 * options->count] = key;
	options->words[2 * options->count + 1] = value;
	options->count++;
}

/* An option of another command. Without its row, rm would take --for for an abbreviation of --force. */
static int refuse_other(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)member, (void)value;
	return bf_fail(err, EINVAL, "--%s is an option of %s", option->name,
		       strcmp(option->name, "for") ? "rm" : "hold");
}

const struct bf_option cli_order_options[] = {
	BF_OPTION("verbose", 'v', NULL, "print how long it took", bf_take_flag, struct cli_order_args,
		  is_verbose),
	BF_OPTION("json", 0, NULL, "print how long it took, as JSON", bf_take_flag, struct cli_order_args,
		  is_json),
	{ "for", 0, "TIME", NULL, refuse_other, 0, NULL },
	{ "force", 0, NULL, NULL, refuse_other, 0, NULL },
	BF_OPTIONS_END,
};

static int order_one(struct belfry *b, const struct cli_order *order, const char *name,
		     const struct cli_order_args *args)
{
	if (order->carry_out(b, name, args))
		return cli_fail_library(b);
	if (args->is_json)
		report_print_took(name, belfry_took_ns(b));
	else if (args->is_verbose)
		printf("%s %s in %.0f us\n", name, order->done, (double)belfry_took_ns(b) / 1000);
	return CLI_OK;
}

int cli_order(int argc, char **argv, const struct cli_order *order)
{
	struct cli_order_args args = { .for_us = 0 };
	int status, first = cli_parse(&order->command, argc, argv, &args, &status);
	cleanup_belfry struct belfry *b = NULL;

	if (!first)
		return status;
	if (belfry_open(&b, NULL))
		return cli_fail_library(b);
	for (int i = first; i < argc; i++)
		if (order_one(b, order, argv[i], &args))
			status = CLI_FAILED;
	return status;
}

void cli_say_shared(const char *domain)
{
	if (!*domain)
		return;
	fprintf(stderr,
		"belfry: faults in domain '%s' are shared: a GPU fault in one program ends all programs of the "
		"domain\n",
		domain);
}

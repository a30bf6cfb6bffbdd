#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "cli/cli.h"

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

int cli_bad_option(const char *command, char *const *argv)
{
	char why[96];

	return cli_usage(command, bf_bad_option(argv, why, sizeof(why)));
}

int cli_parse_json(int argc, char **argv, const char *help, int names_max, bool *is_json)
{
	static const struct option long_options[] = { { "json", no_argument, NULL, 'j' },
						      { "help", no_argument, NULL, 'h' },
						      { NULL, 0, NULL, 0 } };

	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;)
		switch (option) {
		case 'j':
			*is_json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return CLI_OK + 1;
		default:
			return cli_bad_option(argv[0], argv) + 1;
		}
	if (argc - optind <= names_max)
		return 0;
	return cli_usage(argv[0], names_max ? "give the name of one vGPU" : "it takes no arguments") + 1;
}

const char cli_spec_help[] =
	"  --mem SIZE          the most device memory, such as 8G, which is set aside for it (what is\n"
	"                      not set aside for others, and none of it set aside)\n"
	"  --time REQ:LIMIT    of the GPU's time, in percent: guaranteed, and at most (0:100)\n"
	"  --class CLASS       latency or throughput (throughput)\n"
	"  --objective PN=TIME for class latency: what is submitted is done within, such as p99=2ms\n"
	"  --domain NAME       with whom it holds the token together (nobody)\n"
	"  --gpu N             which GPU: N of /dev/nvidiaN (0); soft or soft:N for the software GPU,\n"
	"                      which is taken by itself where there is no NVIDIA GPU\n"
	"  --soft CONFIG       the software GPU, such as gpus=2,sms=16,mem=4G; see belfry-soft(1)\n"
	"  --timeslice TIME    how long its turn on the GPU is, such as 200us (as belfryd finds best)\n"
	"  --interleave LEVEL  how often its turn comes: low, medium or high (as belfryd finds best)\n"
	"  --public            others may run programs on it, too\n"
	"  --any-driver        take the nearest known layout if the driver's series is unknown\n";

int cli_spec_option(const struct option *option, struct protocol_request *request, struct bf_error *err)
{
	return spec_parse(&request->spec, &request->parts, option->name, optarg ? optarg : "yes", err);
}

void cli_options_add(struct cli_options *options, const char *key, const char *value)
{
	if (options->count > CLI_OPTIONS_MAX)
		return;
	options->words[2 * options->count] = key;
	options->words[2 * options->count + 1] = value;
	options->count++;
}

static int parse_order(int argc, char **argv, const struct cli_order *order, struct cli_order_args *args)
{
	static const struct option long_options[] = {
		{ "for", required_argument, NULL, 'f' }, { "force", no_argument, NULL, 'F' },
		{ "json", no_argument, NULL, 'j' },	 { "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },	 { NULL, 0, NULL, 0 }
	};
	struct bf_error err = { 0 };

	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "vh", long_options, NULL)) != -1;)
		switch (option) {
		case 'f':
			if (!order->takes_time)
				return cli_usage(order->command, "--for is an option of hold") + 1;
			if (bf_parse_time(optarg, &args->for_us, &err))
				return cli_usage(order->command, err.text) + 1;
			break;
		case 'F':
			if (!order->takes_force)
				return cli_usage(order->command, "--force is an option of rm") + 1;
			args->flags |= BELFRY_FORCE;
			break;
		case 'j':
			args->is_json = true;
			break;
		case 'v':
			args->is_verbose = true;
			break;
		case 'h':
			fputs(order->help, stdout);
			return CLI_OK + 1;
		default:
			return cli_bad_option(order->command, argv) + 1;
		}
	if (optind + 1 == argc || (order->takes_many && optind < argc))
		return 0;
	return cli_usage(order->command, order->takes_many ? "give the name of a vGPU, or of several"
							   : "give the name of one vGPU") +
	       1;
}

static int order_one(struct belfry *b, const struct cli_order *order, const char *name,
		     const struct cli_order_args *args)
{
	if (order->carry_out(b, name, args))
		return cli_fail_library(b);
	if (args->is_json)
		printf("{\"name\": \"%s\", \"us\": %.1f}\n", name, (double)belfry_took_ns(b) / 1000);
	else if (args->is_verbose)
		printf("%s %s in %.0f us\n", name, order->done, (double)belfry_took_ns(b) / 1000);
	return CLI_OK;
}

int cli_order(int argc, char **argv, const struct cli_order *order)
{
	struct cli_order_args args = { .for_us = 0 };
	int rc = parse_order(argc, argv, order, &args), status = CLI_OK;
	cleanup_belfry struct belfry *b = NULL;

	if (rc)
		return rc - 1;
	if (belfry_open(&b, NULL))
		return cli_fail_library(b);
	for (; optind < argc; optind++)
		if (order_one(b, order, argv[optind], &args))
			status = CLI_FAILED;
	return status;
}

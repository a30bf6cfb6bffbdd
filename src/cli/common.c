#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/cli.h"
#include "server/runtime.h"

const char *const cli_interleave_names[3] = { "low", "medium", "high" };
const char *const cli_gate_names[3] = { "open", "held", "stopped" };

int cli_fail(const struct bf_error *err)
{
	fprintf(stderr, "belfry: %s\n", err->text);
	return CLI_FAILED;
}

int cli_usage(const char *command, const char *why)
{
	fprintf(stderr, "belfry%s%s: %s; belfry %s%s--help tells more\n", command ? " " : "",
		command ? command : "", why, command ? command : "", command ? " " : "");
	return CLI_USAGE;
}

int cli_parse_json(int argc, char **argv, const char *help, bool *is_json)
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
			return cli_usage(argv[0], "unknown option") + 1;
		}
	return optind == argc ? 0 : cli_usage(argv[0], "it takes no arguments") + 1;
}

int cli_parse_interleave(const char *text, int *level, struct bf_error *err)
{
	for (int i = 0; i < 3; i++)
		if (!strcmp(text, cli_interleave_names[i])) {
			*level = i;
			return 0;
		}
	return bf_fail(err, EINVAL, "interleave level '%s': not low, medium or high", text);
}

int cli_order(int argc, char **argv, const struct cli_order *order)
{
	static const struct option long_options[] = { { "for", required_argument, NULL, 'f' },
						      { "json", no_argument, NULL, 'j' },
						      { "verbose", no_argument, NULL, 'v' },
						      { "help", no_argument, NULL, 'h' },
						      { NULL, 0, NULL, 0 } };
	struct protocol_request request = { .magic = PROTOCOL_MAGIC,
					    .version = PROTOCOL_VERSION,
					    .op = order->op };
	struct protocol_reply reply;
	bool is_json = false, is_verbose = false;
	struct bf_error err = { 0 };

	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "vh", long_options, NULL)) != -1;)
		switch (option) {
		case 'f':
			if (!order->takes_time)
				return cli_usage(order->command, "--for is an option of hold");
			if (bf_parse_time(optarg, &request.for_us, &err))
				return cli_usage(order->command, err.text);
			break;
		case 'j':
			is_json = true;
			break;
		case 'v':
			is_verbose = true;
			break;
		case 'h':
			fputs(order->help, stdout);
			return CLI_OK;
		default:
			return cli_usage(order->command, "unknown option, or one without its value");
		}
	if (optind + 1 != argc)
		return cli_usage(order->command, "give the name of one vGPU");
	if (runtime_ask(argv[optind], &request, &reply, &err))
		return cli_fail(&err);
	if (is_json)
		printf("{\"name\": \"%s\", \"us\": %.1f}\n", reply.name, (double)reply.took_ns / 1000);
	else if (is_verbose)
		printf("%s %s in %.0f us\n", reply.name, order->done, (double)reply.took_ns / 1000);
	return CLI_OK;
}

#include <getopt.h>
#include <stdio.h>

#include "cli/cli.h"

static const char help_text[] =
	"usage: belfry set NAME [OPTION...]\n"
	"\n"
	"Change vGPU NAME while programs run on it.\n"
	"\n"
	"  --mem SIZE          the most device memory, such as 8G; not less than is in use\n"
	"  --time REQ:LIMIT    of the GPU's time, in percent: guaranteed, and at most\n"
	"  --class CLASS       latency or throughput\n"
	"  --objective PN=TIME for class latency, such as p99=2ms; none takes it away\n"
	"  --domain NAME       with whom it holds the token together\n"
	"  --timeslice TIME    how long its turn on the GPU is, such as 200us\n"
	"  --interleave LEVEL  how often its turn comes among others: low, medium or high\n"
	"  --public[=yes|no]   whether others may run programs on it\n"
	"  --json              tell how long it took, as JSON\n";

int cli_set(int argc, char **argv)
{
	static const struct option long_options[] = { CLI_SPEC_OPTIONS,
						      { "json", no_argument, NULL, 'j' },
						      { "help", no_argument, NULL, 'h' },
						      { NULL, 0, NULL, 0 } };
	struct protocol_request request = talk_request(PROTOCOL_SET, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	bool is_json = false;
	int index = 0;

	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "h", long_options, &index)) != -1;)
		switch (option) {
		case CLI_SPEC_OPTION:
			if (cli_spec_option(&long_options[index], &request, &err))
				return cli_usage("set", err.text);
			break;
		case 'j':
			is_json = true;
			break;
		case 'h':
			fputs(help_text, stdout);
			return CLI_OK;
		default:
			return cli_bad_option("set", argv);
		}
	if (optind + 1 != argc)
		return cli_usage("set", "give the name of one vGPU");
	if (!request.parts)
		return cli_usage("set", "nothing to change was given");
	if (spec_check_name(argv[optind], &err))
		return cli_fail(&err);
	snprintf(request.name, sizeof(request.name), "%s", argv[optind]);
	if (talk_once(&request, &reply, NULL, &err))
		return cli_fail(&err);
	if (is_json)
		printf("{\"name\": \"%s\", \"us\": %.1f}\n", request.name, (double)reply.took_ns / 1000);
	return CLI_OK;
}

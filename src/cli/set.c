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
	struct cli_options options = { .count = 0 };
	cleanup_belfry struct belfry *b = NULL;
	bool is_json = false;
	int index = 0;

	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "h", long_options, &index)) != -1;)
		switch (option) {
		case CLI_SPEC_OPTION:
			cli_options_add(&options, long_options[index].name, optarg ? optarg : "yes");
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
	if (belfry_open(&b, NULL))
		return cli_fail_library(b);
	if (options.count && belfry_vgpu_check(b, NULL, options.words, BELFRY_SET))
		return cli_usage("set", belfry_error(b));
	if (optind + 1 != argc)
		return cli_usage("set", "give the name of one vGPU");
	if (!options.count)
		return cli_usage("set", "nothing to change was given");
	if (belfry_vgpu_set(b, argv[optind], options.words))
		return cli_fail_library(b);
	if (is_json)
		printf("{\"name\": \"%s\", \"us\": %.1f}\n", argv[optind], (double)belfry_took_ns(b) / 1000);
	return CLI_OK;
}

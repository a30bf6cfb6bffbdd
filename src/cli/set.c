#include <getopt.h>
#include <stdio.h>

#include "base/units.h"
#include "cli/cli.h"
#include "server/runtime.h"

static const char help_text[] =
	"usage: belfry set NAME [--mem SIZE] [--timeslice TIME] [--interleave low|medium|high]\n"
	"\n"
	"Change vGPU NAME while programs run on it.\n"
	"\n"
	"  --mem SIZE         the most device memory, such as 8G; not less than is in use\n"
	"  --timeslice TIME   how long its turn on the GPU is, such as 200us\n"
	"  --interleave LEVEL how often its turn comes among others\n";

int cli_set(int argc, char **argv)
{
	static const struct option long_options[] = { { "mem", required_argument, NULL, 'm' },
						      { "timeslice", required_argument, NULL, 't' },
						      { "interleave", required_argument, NULL, 'i' },
						      { "help", no_argument, NULL, 'h' },
						      { NULL, 0, NULL, 0 } };
	struct protocol_request request = { .magic = PROTOCOL_MAGIC,
					    .version = PROTOCOL_VERSION,
					    .op = PROTOCOL_SET };
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	int level;

	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
		int rc = 0;

		switch (option) {
		case 'm':
			rc = bf_parse_size(optarg, &request.mem_bytes, &err);
			request.set |= PROTOCOL_SET_MEM;
			break;
		case 't':
			rc = bf_parse_time(optarg, &request.timeslice_us, &err);
			request.set |= PROTOCOL_SET_TIMESLICE;
			break;
		case 'i':
			rc = cli_parse_interleave(optarg, &level, &err);
			request.interleave = level;
			request.set |= PROTOCOL_SET_INTERLEAVE;
			break;
		case 'h':
			fputs(help_text, stdout);
			return CLI_OK;
		default:
			return cli_usage("set", "unknown option, or one without its value");
		}
		if (rc)
			return cli_usage("set", err.text);
	}
	if (optind + 1 != argc)
		return cli_usage("set", "give the name of one vGPU");
	if (!request.set)
		return cli_usage("set", "nothing to change was given");
	if (runtime_ask(argv[optind], &request, &reply, &err))
		return cli_fail(&err);
	return CLI_OK;
}

/* belfryd: the supervisor of one vGPU. belfry run starts it. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "server/daemon.h"
#include "server/runtime.h"

static const char usage_text[] =
	"usage: belfryd --front FD --name NAME [--mem SIZE] [--gpu N] [--timeslice TIME]\n"
	"               [--interleave LEVEL] [--any-driver] [--log LEVEL] -- PROGRAM [ARG...]\n"
	"\n"
	"Supervises one program on a virtual GPU. It is started by `belfry run`, which holds the\n"
	"other end of the socket FD; see belfryd(8) and belfry-run(1).\n";

static int usage(const char *why)
{
	fprintf(stderr, "belfryd: %s; belfryd --help tells more\n", why);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = { { "front", required_argument, NULL, 'f' },
						      { "name", required_argument, NULL, 'n' },
						      { "mem", required_argument, NULL, 'm' },
						      { "gpu", required_argument, NULL, 'g' },
						      { "timeslice", required_argument, NULL, 't' },
						      { "interleave", required_argument, NULL, 'i' },
						      { "any-driver", no_argument, NULL, 'a' },
						      { "log", required_argument, NULL, 'l' },
						      { "help", no_argument, NULL, 'h' },
						      { "version", no_argument, NULL, 'V' },
						      { NULL, 0, NULL, 0 } };
	struct daemon_options options = { .front_fd = -1, .warden.interleave = -1 };
	enum bf_log_level level = BF_LOG_WARN;
	struct bf_error err = { 0 };
	long number;

	bf_log_setup("belfryd", level);
	for (int option; (option = getopt_long(argc, argv, "+h", long_options, NULL)) != -1;) {
		int rc = 0;

		switch (option) {
		case 'f':
			rc = bf_parse_number("--front", optarg, 0, 1 << 20, &number, &err);
			options.front_fd = (int)number;
			break;
		case 'n':
			rc = runtime_check_name(optarg, &err);
			options.name = optarg;
			break;
		case 'm':
			rc = bf_parse_size(optarg, &options.warden.mem_bytes, &err);
			break;
		case 'g':
			rc = bf_parse_number("--gpu", optarg, 0, 253, &number, &err);
			options.device.index = (unsigned)number;
			break;
		case 't':
			rc = bf_parse_time(optarg, &options.warden.timeslice_us, &err);
			break;
		case 'i':
			rc = bf_parse_number("--interleave", optarg, 0, 2, &number, &err);
			options.warden.interleave = (int)number;
			break;
		case 'a':
			options.device.any_driver = true;
			break;
		case 'l':
			if (bf_log_level_parse(optarg) < 0)
				return usage("--log takes error, warn, info or debug");
			level = (enum bf_log_level)bf_log_level_parse(optarg);
			break;
		case 'h':
			fputs(usage_text, stdout);
			return 0;
		case 'V':
			puts("belfryd " BELFRY_VERSION);
			return 0;
		default:
			return 2;
		}
		if (rc)
			return usage(err.text);
	}
	if (options.front_fd < 0 || !options.name || optind == argc)
		return usage("it is started by belfry run");
	options.argv = argv + optind;
	bf_log_setup("belfryd", level);
	return daemon_run(&options);
}

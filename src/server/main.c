/* belfryd: the supervisor of one vGPU. belfry run starts it, and tells it over a socket what vGPU to make. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/units.h"
#include "server/daemon.h"
#include "server/protocol.h"
#include "server/runtime.h"

static const char usage_text[] =
	"usage: belfryd --front FD [--] PROGRAM [ARG...]\n"
	"\n"
	"Supervises one program on a virtual GPU. It is started by `belfry run`, which holds the\n"
	"other end of the socket FD; see belfryd(8) and belfry-run(1).\n";

static int usage(const char *why)
{
	fprintf(stderr, "belfryd: %s; belfryd --help tells more\n", why);
	return 2;
}

static int receive(int front_fd, struct front_options *options)
{
	struct bf_error err;

	if (recv(front_fd, options, sizeof(*options), 0) != (ssize_t)sizeof(*options) ||
	    options->magic != PROTOCOL_MAGIC || options->version != PROTOCOL_VERSION)
		return -1;
	options->name[sizeof(options->name) - 1] = options->soft_folder[sizeof(options->soft_folder) - 1] = 0;
	return runtime_check_name(options->name, &err) || options->interleave > 2 || options->gpu > 253 ||
			       options->log_level > BF_LOG_DEBUG
		       ? -1
		       : 0;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = { { "front", required_argument, NULL, 'f' },
						      { "help", no_argument, NULL, 'h' },
						      { "version", no_argument, NULL, 'V' },
						      { NULL, 0, NULL, 0 } };
	struct front_options front;
	struct bf_error err = { 0 };
	long front_fd = -1;

	bf_log_setup("belfryd", BF_LOG_WARN);
	for (int option; (option = getopt_long(argc, argv, "+h", long_options, NULL)) != -1;)
		switch (option) {
		case 'f':
			if (bf_parse_number("--front", optarg, 0, 1 << 20, &front_fd, &err))
				return usage(err.text);
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
	if (front_fd < 0 || optind == argc || receive((int)front_fd, &front))
		return usage("it is started by belfry run");
	bf_log_setup("belfryd", (enum bf_log_level)front.log_level);
	struct daemon_options options = {
		.name = front.name,
		.front_fd = (int)front_fd,
		.soft_folder = front.soft_folder[0] ? front.soft_folder : NULL,
		.device = { .index = front.gpu, .any_driver = front.any_driver },
		.warden = { .mem_bytes = front.mem_bytes,
			    .timeslice_us = front.timeslice_us,
			    .interleave = front.interleave < 0 ? -1 : front.interleave },
		.argv = argv + optind,
	};
	return daemon_run(&options);
}

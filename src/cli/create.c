#include <errno.h>
#include <getopt.h>
#include <pwd.h>
#include <stdio.h>

#include "base/own.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli.h"

static const char help_text[] =
	"usage: belfry create NAME [OPTION...]\n"
	"\n"
	"Make virtual GPU NAME, for belfry run NAME -- PROGRAM. It stays until belfry rm NAME.\n"
	"\n"
	"%s"
	"  --owner USER        whose it is to be, by name or number; for root\n"
	"  --json              tell where it is, as JSON\n";

static const struct option long_options[] = { CLI_SPEC_OPTIONS,
					      { "gpu", required_argument, NULL, 'g' },
					      { "soft", required_argument, NULL, 's' },
					      { "any-driver", no_argument, NULL, 'a' },
					      { "owner", required_argument, NULL, 'o' },
					      { "json", no_argument, NULL, 'j' },
					      { "help", no_argument, NULL, 'h' },
					      { NULL, 0, NULL, 0 } };

struct create {
	struct protocol_request request;
	struct cli_gpu which;
	char *const *argv;
	bool is_json;
};

static int parse_owner(const char *text, uint32_t *owner, struct bf_error *err)
{
	const struct passwd *user = getpwnam(text);
	long number;

	if (user) {
		*owner = user->pw_uid;
		return 0;
	}
	if (bf_parse_number("--owner", text, 0, (long)UINT32_MAX - 1, &number, NULL))
		return bf_fail(err, ENOENT,
			       "--owner '%.40s': there is no such user; write a name or a number", text);
	*owner = (uint32_t)number;
	return 0;
}

static int take_option(struct create *create, int option, int index, struct bf_error *err)
{
	char bad[96];

	switch (option) {
	case CLI_SPEC_OPTION:
		return cli_spec_option(&long_options[index], &create->request, err);
	case 'g':
		return cli_gpu_parse(optarg, &create->which, err);
	case 's':
		return cli_gpu_parse_soft(optarg, &create->which, err);
	case 'a':
		create->request.flags |= PROTOCOL_ANY_DRIVER;
		return 0;
	case 'o':
		create->request.flags |= PROTOCOL_OWNER;
		return parse_owner(optarg, &create->request.owner, err);
	case 'j':
		create->is_json = true;
		return 0;
	default:
		return bf_fail(err, EINVAL, "%s", bf_bad_option(create->argv, bad, sizeof(bad)));
	}
}

/* 0, or an exit status plus 1 so that --help can end well. */
static int parse(int argc, char **argv, struct create *create)
{
	struct bf_error err = { 0 };
	int index = 0;

	create->argv = argv;
	if (cli_gpu_default(&create->which, &err))
		return cli_usage("create", err.text) + 1;
	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "h", long_options, &index)) != -1;) {
		if (option == 'h') {
			printf(help_text, cli_spec_help);
			return CLI_OK + 1;
		}
		if (take_option(create, option, index, &err))
			return cli_usage("create", err.text) + 1;
	}
	if (optind + 1 != argc)
		return cli_usage("create", "give the name of one vGPU") + 1;
	if (spec_check_name(argv[optind], &err) || spec_check(&create->request.spec, &err))
		return cli_usage("create", err.text) + 1;
	snprintf(create->request.name, sizeof(create->request.name), "%s", argv[optind]);
	return 0;
}

int cli_create(int argc, char **argv)
{
	struct create create = { .request = talk_request(PROTOCOL_CREATE, NULL) };
	int status = parse(argc, argv, &create);
	struct protocol_reply reply;
	struct talk_place place;
	struct bf_error err = { 0 };

	if (status)
		return status - 1;
	cleanup_close int sock = cli_reach(&place, &err);
	if (sock < 0 || cli_gpu_request(&create.which, &place, &create.request.gpu, &err) ||
	    cli_ask(&sock, &place, &create.request, &reply, &err))
		return cli_fail(&err);
	if (create.is_json)
		printf("{\"name\": \"%s\", \"gpu\": \"%s%u\"}\n", create.request.name,
		       reply.gpu.kind == PROTOCOL_GPU_SOFT ? "soft:" : "", reply.gpu.index);
	return CLI_OK;
}

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
	struct cli_options options;
	const char *name;
	struct cli_gpu which;
	struct protocol_gpu gpu;
	char gpu_name[16], owner[16];
	char *const *argv;
	bool is_json;
};

/* Writes the number of the user: the client library takes no names. */
static int parse_owner(const char *text, char *owner, size_t room, struct bf_error *err)
{
	const struct passwd *user = getpwnam(text);
	long number = 0;

	if (!user && bf_parse_number("--owner", text, 0, (long)UINT32_MAX - 1, &number, NULL))
		return bf_fail(err, ENOENT,
			       "--owner '%.40s': there is no such user; write a name or a number", text);
	snprintf(owner, room, "%ld", user ? (long)user->pw_uid : number);
	return 0;
}

static int take_option(struct create *create, int option, int index, struct bf_error *err)
{
	char bad[96];

	switch (option) {
	case CLI_SPEC_OPTION:
		cli_options_add(&create->options, long_options[index].name, optarg ? optarg : "yes");
		return 0;
	case 'g':
		return cli_gpu_parse(optarg, &create->which, err);
	case 's':
		return cli_gpu_parse_soft(optarg, &create->which, err);
	case 'a':
		cli_options_add(&create->options, "any-driver", "yes");
		return 0;
	case 'o':
		cli_options_add(&create->options, "owner", create->owner);
		return parse_owner(optarg, create->owner, sizeof(create->owner), err);
	case 'j':
		create->is_json = true;
		return 0;
	default:
		return bf_fail(err, EINVAL, "%s", bf_bad_option(create->argv, bad, sizeof(bad)));
	}
}

static int check(int argc, char **argv, struct create *create)
{
	cleanup_belfry struct belfry *b = NULL;

	if (belfry_open(&b, NULL))
		return cli_fail_library(b) + 1;
	create->name = optind + 1 == argc ? argv[optind] : NULL;
	if (belfry_vgpu_check(b, create->name, create->options.words, 0))
		return cli_usage("create", belfry_error(b)) + 1;
	return create->name ? 0 : cli_usage("create", "give the name of one vGPU") + 1;
}

/* Returns 0, or an exit status plus 1, so that --help can succeed. */
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
	return check(argc, argv, create);
}

/* Pass the selected GPU to the client library. */
static int add_gpu(struct create *create, const struct talk_place *place, struct bf_error *err)
{
	int rc = cli_gpu_request(&create->which, place, &create->gpu, err);

	if (rc || create->gpu.kind == PROTOCOL_GPU_ANY)
		return rc;
	cli_options_add(&create->options, "gpu",
			protocol_gpu_name(&create->gpu, create->gpu_name, sizeof(create->gpu_name)));
	if (create->gpu.folder[0])
		cli_options_add(&create->options, "folder", create->gpu.folder);
	return 0;
}

/* A private belfryd may exit between its start and the request. The caller then starts another one. */
static bool has_exited(const struct talk_place *place, int rc)
{
	return place->is_private && (rc == -EAGAIN || rc == -ECONNREFUSED);
}

static int make(struct create *create)
{
	enum { TIMES = 5 };

	for (int i = 1;; i++) {
		cleanup_belfry struct belfry *b = NULL;
		struct bf_error err = { 0 };
		struct talk_place place;
		cleanup_close int sock = cli_reach(&place, &err);
		char *json = NULL;
		int rc;

		if (sock < 0 || (i == 1 && add_gpu(create, &place, &err)))
			return cli_fail(&err);
		rc = belfry_open(&b, place.path);
		if (!rc)
			rc = belfry_vgpu_create(b, create->name, create->options.words, &json);
		if (!rc && create->is_json)
			puts(json);
		belfry_free(json);
		if (!rc || !has_exited(&place, rc) || i == TIMES)
			return rc ? cli_fail_library(b) : CLI_OK;
	}
}

int cli_create(int argc, char **argv)
{
	struct create create = { .name = NULL };
	int status = parse(argc, argv, &create);

	return status ? status - 1 : make(&create);
}

/* belfry run: run a program on an existing vGPU, or on a vGPU made for the run. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/launch.h"

static const char help_text[] =
	"usage: belfry run NAME -- PROGRAM [ARG...]\n"
	"       belfry run [OPTION...] [--] PROGRAM [ARG...]\n"
	"\n"
	"Run PROGRAM, and everything it starts, on virtual GPU NAME, or on one of its own that ends with\n"
	"it. Ends when PROGRAM does.\n"
	"\n"
	"  --name NAME         what to call its own vGPU (PROGRAM-PID)\n"
	"%s"
	"  --log LEVEL         error, warn, info or debug (warn)\n"
	"\n"
	"Exit status: the program's own; 128+N if signal N ended it; 127 not found, 126 not\n"
	"executable; 1 if Belfry failed; 2 for wrong usage.\n";

struct run {
	struct protocol_request request;
	struct cli_gpu which;
	char *const *argv;
	bool is_own; /* an option describes a vGPU made for the run */
	char **program;
};

/* "/usr/bin/Python3" run by process 4711 gives "python3-4711". */
static void default_name(struct protocol_request *request, const char *program)
{
	const char *base = strrchr(program, '/');
	size_t used = 0;

	for (base = base ? base + 1 : program; *base && used < 40; base++) {
		int c = tolower((unsigned char)*base);

		if (isalnum(c) || (used && strchr("._-", c)))
			request->name[used++] = (char)c;
	}
	snprintf(request->name + used, sizeof(request->name) - used, "%s%d", used ? "-" : "", getpid());
}

static int parse_log(const char *text, struct bf_error *err)
{
	int level = bf_log_level_parse(text);

	if (level < 0)
		return bf_fail(err, EINVAL, "log level '%s': not error, warn, info or debug", text);
	bf_log_setup("belfry", (enum bf_log_level)level);
	return 0;
}

static const struct option long_options[] = { CLI_SPEC_OPTIONS,
					      { "name", required_argument, NULL, 'n' },
					      { "gpu", required_argument, NULL, 'g' },
					      { "soft", required_argument, NULL, 's' },
					      { "any-driver", no_argument, NULL, 'a' },
					      { "log", required_argument, NULL, 'l' },
					      { "help", no_argument, NULL, 'h' },
					      { NULL, 0, NULL, 0 } };

static int take_option(struct run *run, int option, int index, struct bf_error *err)
{
	char bad[96];

	run->is_own |= option != 'a' && option != 'l';
	switch (option) {
	case CLI_SPEC_OPTION:
		return cli_spec_option(&long_options[index], &run->request, err);
	case 'n':
		snprintf(run->request.name, sizeof(run->request.name), "%s", optarg);
		return spec_check_name(optarg, err);
	case 'g':
		return cli_gpu_parse(optarg, &run->which, err);
	case 's':
		return cli_gpu_parse_soft(optarg, &run->which, err);
	case 'a':
		run->request.flags |= PROTOCOL_ANY_DRIVER;
		return 0;
	case 'l':
		return parse_log(optarg, err);
	default:
		return bf_fail(err, EINVAL, "%s", bf_bad_option(run->argv, bad, sizeof(bad)));
	}
}

/* `run NAME -- PROGRAM` uses an existing vGPU. `run -- NAME -- ...` runs a program of that name. */
static int take_name(struct run *run, int argc, char **argv)
{
	struct bf_error err = { 0 };
	bool is_named = strcmp(argv[optind - 1], "--") && optind + 1 < argc &&
			!strcmp(argv[optind + 1], "--");

	if (!is_named) {
		run->request.flags |= PROTOCOL_EPHEMERAL;
		return 0;
	}
	if (spec_check_name(argv[optind], &err))
		return cli_usage("run", err.text) + 1;
	if (run->is_own)
		return cli_usage("run", "these options make a vGPU of its own; belfry set changes a vGPU") +
		       1;
	snprintf(run->request.name, sizeof(run->request.name), "%s", argv[optind]);
	optind += 2;
	return 0;
}

/* Returns 0, or an exit status plus 1, so that --help can succeed. */
static int parse(int argc, char **argv, struct run *run)
{
	struct bf_error err = { 0 };
	int index = 0, status;

	run->argv = argv;
	if (cli_gpu_default(&run->which, &err))
		return cli_usage("run", err.text) + 1;
	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "+h", long_options, &index)) != -1;) {
		if (option == 'h') {
			printf(help_text, cli_spec_help);
			return CLI_OK + 1;
		}
		if (take_option(run, option, index, &err))
			return cli_usage("run", err.text) + 1;
	}
	status = optind < argc ? take_name(run, argc, argv) : 0;
	if (status)
		return status;
	if (optind >= argc || !argv[optind][0])
		return cli_usage("run", "no program given") + 1;
	if (spec_check(&run->request.spec, &err))
		return cli_usage("run", err.text) + 1;
	run->program = argv + optind;
	if (!run->request.name[0])
		default_name(&run->request, run->program[0]);
	return 0;
}

static bool is_in(const char *folder, size_t length, const char *program)
{
	char path[PATH_MAX];
	int used = snprintf(path, sizeof(path), "%.*s/%s", (int)length, length ? folder : ".", program);

	return used > 0 && (size_t)used < sizeof(path) && !access(path, F_OK);
}

/* Search as execvp() does. */
static bool is_program(const char *program)
{
	const char *path = getenv("PATH");

	if (strchr(program, '/'))
		return true; /* exec reports the error */
	for (path = path ? path : "/bin:/usr/bin"; *path; path += strcspn(path, ":"), path += *path == ':')
		if (is_in(path, strcspn(path, ":"), program))
			return true;
	return false;
}

/* Detect the name of a vGPU in place of a program: `run NAME PROGRAM` without --, or options after NAME.
 * Returns 0, or an exit status. */
static int check_program(const struct run *run)
{
	const char *name = run->program[0];
	struct protocol_request request = talk_request(PROTOCOL_REPORT, NULL);
	struct protocol_reply reply;
	cleanup_free char *body = NULL;
	char why[256];

	if (!(run->request.flags & PROTOCOL_EPHEMERAL) || is_program(name) || spec_check_name(name, NULL))
		return 0;
	snprintf(request.name, sizeof(request.name), "%s", name);
	if (talk_once(&request, &reply, &body, NULL))
		return 0;
	snprintf(
		why, sizeof(why),
		"%s is a vGPU and no program; write belfry run %s -- PROGRAM, where options are for belfry set %s",
		name, name, name);
	return cli_usage("run", why);
}

int cli_run(int argc, char **argv)
{
	struct run run = { .request = talk_request(PROTOCOL_RUN, NULL) };
	int status = parse(argc, argv, &run);
	struct protocol_reply reply;
	struct talk_place place;
	struct bf_error err = { 0 };
	bool is_soft;

	if (status)
		return status - 1;
	status = check_program(&run);
	if (status)
		return status;
	cleanup_close int sock = cli_reach(&place, &err);
	if (sock < 0)
		return cli_fail(&err);
	if (run.request.flags & PROTOCOL_EPHEMERAL &&
	    cli_gpu_request(&run.which, &place, &run.request.gpu, &err))
		return cli_fail(&err);
	if (cli_ask(&sock, &place, &run.request, &reply, &err))
		return cli_fail(&err);
	is_soft = reply.gpu.kind == PROTOCOL_GPU_SOFT;
	if (is_soft && cli_soft_use(reply.gpu.folder, &err))
		return cli_fail(&err);
	struct launch_options options = { .argv = run.program,
					  .sock = sock,
					  .soft_folder = is_soft ? reply.gpu.folder : NULL };
	return launch_run(&options);
}

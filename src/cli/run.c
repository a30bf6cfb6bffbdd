/* belfry run: run a program on an existing vGPU, or on a vGPU made for the run. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "cli/cli.h"
#include "cli/front.h"
#include "cli/launch.h"

struct run {
	struct protocol_request request;
	struct cli_vgpu vgpu;
	const char *name;
	int log_level; /* -1: the default */
	bool has_no_lease, has_probes;
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

static const struct bf_option options[] = {
	BF_OPTION("name", 0, "NAME", "name of the new vGPU (default: PROGRAM-PID)", cli_take_name, struct run,
		  name),
	BF_OPTIONS_OF(cli_vgpu_options, struct run, vgpu),
	BF_OPTION("no-lease", 0, NULL, "in a shared domain: use all SMs, whatever --sm says", bf_take_flag,
		  struct run, has_no_lease),
	BF_OPTION("probes", 0, NULL, "let belfry probe insert probes into its GPU kernels", bf_take_flag,
		  struct run, has_probes),
	BF_OPTION("log", 0, "LEVEL", "error, warn, info or debug (default: warn)", bf_take_log, struct run,
		  log_level),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "run",
	.about =
		"usage: belfry run NAME -- PROGRAM [ARG...]\n"
		"       belfry run [OPTION...] [--] PROGRAM [ARG...]\n"
		"\n"
		"Run PROGRAM, and all processes that it starts, on vGPU NAME. Without NAME, create a vGPU for\n"
		"PROGRAM, and remove it when PROGRAM ends.\n",
	.options = options,
	.after = "Exit status: the program's own; 128+N if signal N ended it; 127 not found, 126 not\n"
		 "executable; 1 if Belfry failed; 2 for wrong usage.\n",
	.most = -1,
	.stops_at_argument = true,
};

/* `run NAME -- PROGRAM` uses an existing vGPU. `run -- NAME -- ...` runs a program of that name. */
static bool is_named(char *const *argv, int first)
{
	return strcmp(argv[first - 1], "--") && argv[first] && argv[first + 1] &&
	       !strcmp(argv[first + 1], "--");
}

static int use_vgpu(struct run *run, const char *name, struct bf_error *err)
{
	int rc = spec_check_name(name, err);

	if (rc)
		return rc;
	if (run->vgpu.words.count || run->vgpu.which.is_option || run->name)
		return bf_fail(err, EINVAL,
			       "these options make a vGPU of its own; belfry set changes a vGPU");
	snprintf(run->request.name, sizeof(run->request.name), "%s", name);
	return 0;
}

static int make_vgpu(struct run *run, struct bf_error *err)
{
	const struct cli_options *words = &run->vgpu.words;
	int rc = 0;

	run->request.flags |= PROTOCOL_EPHEMERAL;
	if (words->count > CLI_OPTIONS_MAX)
		return bf_fail(err, E2BIG, "too many options; the most is %d", CLI_OPTIONS_MAX);
	for (size_t i = 0; !rc && i < words->count; i++)
		rc = spec_parse(&run->request.spec, &run->request.parts, words->words[2 * i],
				words->words[2 * i + 1], err);
	if (run->name)
		snprintf(run->request.name, sizeof(run->request.name), "%s", run->name);
	return rc ? rc : spec_check(&run->request.spec, err);
}

/* `words` are the arguments. */
static int take_arguments(struct run *run, char **words, bool has_name, struct bf_error *err)
{
	int rc = has_name ? use_vgpu(run, words[0], err) : make_vgpu(run, err);

	if (rc)
		return rc;
	run->program = has_name ? words + 2 : words;
	if (!run->program[0] || !run->program[0][0])
		return bf_fail(err, EINVAL, "no program given");
	if (run->has_probes)
		run->request.flags |= PROTOCOL_PROBES;
	if (run->vgpu.any_driver)
		run->request.flags |= PROTOCOL_ANY_DRIVER;
	if (run->log_level >= 0)
		bf_log_setup("belfry", (enum bf_log_level)run->log_level);
	if (!run->request.name[0])
		default_name(&run->request, run->program[0]);
	return 0;
}

/* False: *status is the exit status. */
static bool parse(int argc, char **argv, struct run *run, int *status)
{
	struct bf_error err = { 0 };
	int first, rc = cli_gpu_default(&run->vgpu.which, &err);

	if (!rc) {
		first = cli_parse(&command, argc, argv, run, status);
		if (!first)
			return false;
		rc = take_arguments(run, argv + first, is_named(argv, first), &err);
	}
	if (rc)
		*status = cli_usage("run", err.text);
	return !rc;
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

/* The program is a client of the MPS server of its domain, whatever the caller's environment says. */
static int use_mps(struct protocol_reply *reply, struct bf_error *err)
{
	char log[sizeof(reply->mps_folder) + 8];

	reply->mps_folder[sizeof(reply->mps_folder) - 1] = 0;
	if (!reply->mps_folder[0])
		return 0;
	snprintf(log, sizeof(log), "%s/log", reply->mps_folder);
	if (setenv("CUDA_MPS_PIPE_DIRECTORY", reply->mps_folder, 1) ||
	    setenv("CUDA_MPS_LOG_DIRECTORY", log, 1))
		return bf_fail(err, ENOMEM, "out of memory");
	return 0;
}

/* A program with leases has the library already. */
static int use_probes(const struct run *run, struct protocol_reply *reply, struct bf_error *err)
{
	bool has_lease = !run->has_no_lease && reply->mps_folder[0];

	reply->probe_socket[sizeof(reply->probe_socket) - 1] = 0;
	unsetenv("BELFRY_PROBES");
	if (!run->has_probes && !has_lease)
		return 0;
	if (!reply->probe_socket[0])
		return run->has_probes
			       ? bf_fail(err, ENOTSUP, "--probes: the GPU server has no socket for probes")
			       : 0;
	if (run->has_probes && front_use_ptxas(err))
		return -ENOMEM;
	return front_use_probes(reply->probe_socket, has_lease, err);
}

int cli_run(int argc, char **argv)
{
	struct run run = { .request = talk_request(PROTOCOL_RUN, NULL), .log_level = -1 };
	int status;
	struct protocol_reply reply;
	struct talk_place place;
	struct bf_error err = { 0 };
	bool is_soft;

	if (!parse(argc, argv, &run, &status))
		return status;
	status = check_program(&run);
	if (status)
		return status;
	cleanup_close int sock = cli_reach(&place, &err);
	if (sock < 0)
		return cli_fail(&err);
	if (run.request.flags & PROTOCOL_EPHEMERAL &&
	    cli_gpu_request(&run.vgpu.which, &place, &run.request.gpu, &err))
		return cli_fail(&err);
	if (cli_ask(&sock, &place, &run.request, &reply, &err))
		return cli_fail(&err);
	if (reply.flags & PROTOCOL_NOW_SHARED)
		cli_say_shared(run.request.spec.domain);
	if (use_mps(&reply, &err))
		return cli_fail(&err);
	is_soft = reply.gpu.kind == PROTOCOL_GPU_SOFT;
	if (is_soft && cli_soft_use(reply.gpu.folder, &err))
		return cli_fail(&err);
	if (run.has_no_lease)
		unsetenv("BELFRY_LEASE");
	else if (reply.mps_folder[0] && front_use_lease(reply.mps_folder, &err))
		return cli_fail(&err);
	if (use_probes(&run, &reply, &err))
		return cli_fail(&err);
	struct launch_options launch = { .argv = run.program,
					 .sock = sock,
					 .soft_folder = is_soft ? reply.gpu.folder : NULL };
	return launch_run(&launch);
}

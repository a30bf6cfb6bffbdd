/* belfry soft: use the software GPU directly, without a vGPU. */
#include "cli/soft.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/units.h"
#include "cli/cli.h"

struct request {
	struct cli_gpu gpu; /* of which only the configuration of the software GPU is used */
	bool is_json;
};

static const struct bf_option options[] = {
	BF_OPTION("soft", 0, "CONFIG",
		  "gpus=N,sms=N,mem=SIZE,rate=N,pace=on|off,cores=N,linger=SECONDS,name=NAME\n"
		  "(default: gpus=1,sms=16,mem=4G,rate=20M,pace=on,cores=0,linger=10,name=default)",
		  cli_take_soft, struct request, gpu),
	BF_OPTION("json", 0, NULL, "print JSON", bf_take_flag, struct request, is_json),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "soft",
	.about =
		"usage: belfry soft run [--soft CONFIG] [--] PROGRAM [ARG...]\n"
		"       belfry soft env [--soft CONFIG]\n"
		"       belfry soft status [--soft name=NAME] [--json]\n"
		"       belfry soft stop [--soft name=NAME]\n"
		"\n"
		"The software GPU computes on the CPUs of this machine. It starts when the first program needs it,\n"
		"and ends when it was not used for a while. `run` runs PROGRAM directly on it, without a vGPU;\n"
		"`belfry run --gpu soft` runs it on a vGPU. `env` starts it and prints the environment for\n"
		"programs. `status` shows it, and `stop` ends it.\n",
	.options = options,
	.most = -1,
	.stops_at_argument = true,
};

static int run(const struct request *request, char **argv)
{
	struct bf_error err = { 0 };
	char folder[108];

	if (!argv[0])
		return cli_usage("soft", "no program given");
	if (cli_soft_prepare(&request->gpu.soft, folder, sizeof(folder), &err))
		return cli_fail(&err);
	execvp(argv[0], argv);
	bf_fail(&err, errno, "%.300s: %s", argv[0], strerror(errno));
	cli_fail(&err);
	return errno == ENOENT ? CLI_NOT_FOUND : CLI_NOT_EXECUTABLE;
}

static int env(const struct request *request)
{
	struct bf_error err = { 0 };
	char folder[108];

	if (cli_soft_prepare(&request->gpu.soft, folder, sizeof(folder), &err))
		return cli_fail(&err);
	printf("LD_LIBRARY_PATH=%s\nBELFRY_SOFT_DIR=%s\n", getenv("LD_LIBRARY_PATH"), folder);
	return CLI_OK;
}

static void print(const struct soft_status *status)
{
	char a[24], b[24], cores[12];

	snprintf(cores, sizeof(cores), "%u", status->cores);
	printf("%u GPU%s of %u SMs, %s each; %llu thread-instructions a second and SM, %s; %s%s; process %u\n",
	       status->gpu_count, status->gpu_count == 1 ? "" : "s", status->sm_count,
	       bf_format_size(status->mem_bytes, a, sizeof(a)), (unsigned long long)status->rate,
	       status->is_paced ? "paced" : "not paced", status->cores ? cores : "all",
	       status->cores == 1 ? " core" : " cores", status->pid);
	for (unsigned i = 0; i < status->gpu_count && i < SOFT_GPUS_MAX; i++)
		printf("GPU %u    %s of %s in use, busy %.3f s of %.3f s\n", i,
		       bf_format_size(status->used_bytes[i], a, sizeof(a)),
		       bf_format_size(status->mem_bytes, b, sizeof(b)), (double)status->busy_ns[i] / 1e9,
		       (double)status->gpu_ns[i] / 1e9);
	printf("open     %u files, %u clients, %u channels\n", status->file_count, status->client_count,
	       status->channel_count);
}

static void print_json(const struct soft_status *status)
{
	struct json_object *top = json_object_new_object(), *gpus = json_object_new_array();

	for (unsigned i = 0; i < status->gpu_count && i < SOFT_GPUS_MAX; i++) {
		struct json_object *gpu = json_object_new_object();

		json_add_number(gpu, "index", i);
		json_add_number(gpu, "mem", status->mem_bytes);
		json_add_number(gpu, "used", status->used_bytes[i]);
		json_add_number(gpu, "clock_ns", status->gpu_ns[i]);
		json_add_number(gpu, "busy_ns", status->busy_ns[i]);
		json_object_array_add(gpus, gpu);
	}
	json_add_number(top, "pid", status->pid);
	json_add_number(top, "sms", status->sm_count);
	json_add_number(top, "rate", status->rate);
	json_add_bool(top, "paced", status->is_paced != 0);
	json_add_number(top, "cores", status->cores);
	json_add_number(top, "files", status->file_count);
	json_add_number(top, "clients", status->client_count);
	json_add_number(top, "channels", status->channel_count);
	json_add(top, "gpus", gpus);
	puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED));
	json_object_put(top);
}

static int tell(const struct request *request)
{
	struct soft_status status;
	struct bf_error err = { 0 };
	char folder[108];

	if (link_folder(request->gpu.soft.name, folder, sizeof(folder), &err) ||
	    link_status(folder, &status, &err))
		return cli_fail(&err);
	if (request->is_json)
		print_json(&status);
	else
		print(&status);
	return CLI_OK;
}

static int stop(const struct request *request)
{
	struct bf_error err = { 0 };
	char folder[108];

	if (link_folder(request->gpu.soft.name, folder, sizeof(folder), &err) || link_stop(folder, &err))
		return cli_fail(&err);
	return CLI_OK;
}

int cli_soft(int argc, char **argv)
{
	struct request request = { .is_json = false };
	const char *what = argc > 1 ? argv[1] : "";
	struct bf_error err = { 0 };
	int status, first;

	if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
		bf_command_help(&command, stdout);
		return CLI_OK;
	}
	if (strcmp(what, "run") && strcmp(what, "env") && strcmp(what, "status") && strcmp(what, "stop"))
		return cli_usage("soft", "say run, env, status or stop");
	if (cli_gpu_default(&request.gpu, &err))
		return cli_usage("soft", err.text);
	first = cli_parse(&command, argc - 1, argv + 1, &request, &status);
	if (!first)
		return status;
	if (!strcmp(what, "run"))
		return run(&request, argv + 1 + first);
	if (first != argc - 1)
		return cli_usage("soft", "it takes no arguments");
	if (!strcmp(what, "env"))
		return env(&request);
	return !strcmp(what, "stop") ? stop(&request) : tell(&request);
}

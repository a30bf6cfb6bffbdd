#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/process.h"
#include "cli/cli.h"
#include "cli/oci.h"

enum { HELP_WORDS = 2 }; /* such as "policy load" */

static const struct cli_command commands[] = {
	{ "create", cli_create, "create a vGPU" },
	{ "run", cli_run, "run a program on a vGPU" },
	{ "ls", cli_ls, "list the vGPUs" },
	{ "top", cli_top, "show the vGPUs once a second: shares, and which vGPU waits for which" },
	{ "set", cli_set, "change a vGPU while programs run on it" },
	{ "explain", cli_explain, "explain why a vGPU waits" },
	{ "stats", cli_stats, "print all counters" },
	{ "events", cli_events, "print events as they happen: runs, limits, faults, policies, GPU servers" },
	{ "trace", cli_trace, "write the last seconds to a file for Perfetto" },
	{ "hold", cli_hold, "close the gate of a vGPU: new work waits" },
	{ "open", cli_open, "open the gate of a vGPU" },
	{ "stop", cli_stop, "stop the work of a vGPU, in mid-kernel" },
	{ "resume", cli_resume, "resume the work of a vGPU" },
	{ "rm", cli_rm, "remove vGPUs" },
	{ "policy", cli_policy, "scheduling policies in eBPF: load, show, record and replay them" },
	{ "probe", cli_probe, "eBPF probes in GPU kernels: attach them, show what they count" },
	{ "reload", cli_reload, "make belfryd read its configuration again" },
	{ "verify", cli_verify, "check that sharing does not change what a program computes" },
	{ "soft", cli_soft, "the software GPU: run programs directly on it, show it, stop it" },
	{ "cdi", cli_cdi, "write the CDI file by which containers name vGPUs" },
	{ "oci", cli_oci, "edit the configuration of a container for its vGPU" },
	{ "info", cli_info, "show what Belfry finds on this machine" },
};

static void help(void)
{
	puts("usage: belfry COMMAND [OPTION...] [ARG...]\n"
	     "\n"
	     "Divides an NVIDIA GPU into virtual GPUs (vGPUs) for unmodified programs, on the stock driver.\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].summary);
	puts("\n"
	     "belfry help COMMAND and belfry COMMAND --help describe a command.\n"
	     "First steps: belfry info; belfry create NAME --mem 1G; belfry run NAME -- PROGRAM");
}

/* argv[0] is the name of the command. */
static int run_one(int argc, char **argv)
{
	char why[96];

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[0], commands[i].name))
			return commands[i].main(argc, argv);
	snprintf(why, sizeof(why), "'%.40s': no such command", argv[0]);
	return cli_usage(NULL, why);
}

/* "help create" is "create --help", and "help policy load" is "policy load --help". */
static int help_with(int argc, char **argv)
{
	static char option[] = "--help";
	char *words[HELP_WORDS + 2] = { 0 };

	if (argc == 0) {
		help();
		return CLI_OK;
	}
	if (argc > HELP_WORDS)
		return cli_usage(NULL, "help: too many words; give the name of one command");
	for (int i = 0; i < argc; i++)
		words[i] = argv[i];
	words[argc] = option;
	return run_one(argc + 1, words);
}

static int run_command(int argc, char **argv)
{
	if (argc < 2)
		return cli_usage(NULL, "no command given");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return help_with(0, NULL);
	if (!strcmp(argv[1], "help"))
		return help_with(argc - 2, argv + 2);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		puts("belfry " BELFRY_VERSION);
		return CLI_OK;
	}
	return run_one(argc - 1, argv + 1);
}

/* The errno for incomplete output, or 0. stdio does not keep the errno of an earlier failed write: the last
 * errno is used if it is one that a write sets. */
static int why_not_written(int last)
{
	if (fflush(stdout))
		return errno;
	if (!ferror(stdout))
		return 0;
	return last == ENOSPC || last == EDQUOT || last == EFBIG || last == EPIPE ? last : EIO;
}

/* Installed as a link to belfry. */
static bool is_runtime(const char *name)
{
	const char *base = strrchr(name, '/');

	return !strcmp(base ? base + 1 : name, "belfry-oci");
}

/* belfry run and belfry soft run print nothing: they return the program's status. */
int main(int argc, char **argv)
{
	struct bf_error err = { 0 };
	int status, why;

	bf_hold_standard_files();
	bf_log_setup("belfry", BF_LOG_WARN);
	if (argc > 0 && is_runtime(argv[0]))
		return oci_runtime_main(argc, argv);
	status = run_command(argc, argv);
	why = why_not_written(errno);
	if (status != CLI_OK || !why)
		return status;
	bf_fail(&err, why, "cannot write: %s", strerror(why));
	return cli_fail(&err);
}

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/process.h"
#include "cli/cli.h"
#include "cli/oci.h"

enum { HELP_WORDS = 2 }; /* such as "policy load" */

static const struct cli_command commands[] = {
	{ "create", cli_create, "make a virtual GPU" },
	{ "run", cli_run, "run a program on a virtual GPU, or on one of its own" },
	{ "ls", cli_ls, "list the virtual GPUs" },
	{ "top", cli_top, "watch them: who has the GPU, and who waits for whom" },
	{ "set", cli_set, "change a virtual GPU while programs run on it" },
	{ "explain", cli_explain, "tell why a virtual GPU waits" },
	{ "stats", cli_stats, "everything that was counted" },
	{ "events", cli_events, "watch what happens: runs, limits, faults, policies, GPU servers" },
	{ "trace", cli_trace, "write what happened lately to a file, for Perfetto" },
	{ "hold", cli_hold, "close a gate: what is submitted from now on waits" },
	{ "open", cli_open, "open it again" },
	{ "stop", cli_stop, "stop what runs on a virtual GPU, in mid-kernel" },
	{ "resume", cli_resume, "let it run again" },
	{ "rm", cli_rm, "remove a virtual GPU" },
	{ "policy", cli_policy, "policies in eBPF: load, watch, record and replay them" },
	{ "probe", cli_probe, "probes in eBPF inside GPU kernels: attach them, show what they count" },
	{ "reload", cli_reload, "have belfryd read its configuration again" },
	{ "verify", cli_verify, "check that sharing does not change what a program computes" },
	{ "soft", cli_soft, "the software GPU: run on it directly, status, stop" },
	{ "cdi", cli_cdi, "write the device file by which containers name virtual GPUs" },
	{ "oci", cli_oci, "edit the configuration of a container for its virtual GPU" },
	{ "info", cli_info, "tell what Belfry finds on this machine" },
};

static void help(void)
{
	puts("usage: belfry COMMAND [OPTION...] [ARG...]\n"
	     "\n"
	     "Many virtual GPUs on one NVIDIA GPU, for unmodified programs, on the stock driver.\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].summary);
	puts("\n"
	     "belfry help COMMAND and belfry COMMAND --help describe one of them.\n"
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

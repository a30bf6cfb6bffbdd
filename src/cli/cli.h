/* cli: the command belfry, one file per subcommand. Only this module prints and exits. */
#ifndef BELFRY_CLI_H
#define BELFRY_CLI_H

#include <getopt.h>
#include <stdbool.h>

#include "base/error.h"
#include "belfry/belfry.h"
#include "cli/soft.h"
#include "client/protocol.h"
#include "client/talk.h"

/* Exit statuses; see belfry-run(1). */
enum cli_status { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NOT_EXECUTABLE = 126, CLI_NOT_FOUND = 127 };

struct cli_command {
	const char *name;
	int (*main)(int argc, char **argv); /* argv[0] is the subcommand */
	const char *summary;
};

int cli_create(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_ls(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_stats(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_events(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_hold(int argc, char **argv);
int cli_open(int argc, char **argv);
int cli_stop(int argc, char **argv);
int cli_resume(int argc, char **argv);
int cli_set(int argc, char **argv);
int cli_rm(int argc, char **argv);
int cli_policy(int argc, char **argv);
int cli_reload(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_soft(int argc, char **argv);

/* Print "belfry: <why>" on stderr. */
int cli_fail(const struct bf_error *err);
/* Print the last error of the client library on stderr. */
int cli_fail_library(const struct belfry *b);

static inline void cli_close_library(struct belfry **b)
{
	belfry_close(*b);
}
#define cleanup_belfry __attribute__((cleanup(cli_close_library)))
int cli_usage(const char *command, const char *why);
int cli_bad_option(const char *command, char *const *argv); /* after getopt_long returned '?' */

/* Parse a command line that has no options but --json and --help, and at most `names_max` arguments. The
 * result is 0, or an exit status plus 1, so that --help can succeed. The arguments start at argv[optind]. */
int cli_parse_json(int argc, char **argv, const char *help, int names_max, bool *is_json);

/* The options of create, run and set that describe a vGPU. Each name is a key of spec_parse. */
enum { CLI_SPEC_OPTION = 256 };
#define CLI_SPEC_OPTIONS \
	{ "mem", required_argument, NULL, CLI_SPEC_OPTION }, \
		{ "time", required_argument, NULL, CLI_SPEC_OPTION }, \
		{ "class", required_argument, NULL, CLI_SPEC_OPTION }, \
		{ "objective", required_argument, NULL, CLI_SPEC_OPTION }, \
		{ "domain", required_argument, NULL, CLI_SPEC_OPTION }, \
		{ "timeslice", required_argument, NULL, CLI_SPEC_OPTION }, \
		{ "interleave", required_argument, NULL, CLI_SPEC_OPTION }, \
	{ \
		"public", optional_argument, NULL, CLI_SPEC_OPTION \
	}
/* The help text of these options and of those that select the GPU. */
extern const char cli_spec_help[];
int cli_spec_option(const struct option *option, struct protocol_request *request, struct bf_error *err);

/* Options for the client library, in the order given. */
enum { CLI_OPTIONS_MAX = 64 };
struct cli_options {
	size_t count; /* pairs */
	/* One pair more than the library accepts: the library reports the error. */
	const char *words[2 * (CLI_OPTIONS_MAX + 1) + 1];
};
void cli_options_add(struct cli_options *options, const char *key, const char *value);

/* Connect to belfryd. A private belfryd is started if none runs. */
int cli_reach(struct talk_place *place, struct bf_error *err);
/* Fill `gpu` for a request to the belfryd at `place`. Starts the user's software GPU if that is selected. */
int cli_gpu_request(struct cli_gpu *which, const struct talk_place *place, struct protocol_gpu *gpu,
		    struct bf_error *err);

/* Send a request on a connection of cli_reach. If a private belfryd is about to exit, another one is started
 * and asked, and *sock becomes the connection to it. */
int cli_ask(int *sock, struct talk_place *place, const struct protocol_request *request,
	    struct protocol_reply *reply, struct bf_error *err);

/* The common code of hold, open, stop, resume and rm: one request per vGPU, and its duration. */
struct cli_order_args {
	uint64_t for_us; /* --for */
	unsigned flags;	 /* --force: BELFRY_FORCE */
	bool is_json, is_verbose;
};
struct cli_order {
	const char *command, *done; /* "stop", "stopped" */
	const char *help;
	int (*carry_out)(struct belfry *b, const char *name, const struct cli_order_args *args);
	bool takes_time;  /* --for TIME */
	bool takes_force; /* --force */
	bool takes_many;  /* several vGPUs: a failure does not stop the loop */
};
int cli_order(int argc, char **argv, const struct cli_order *order);

#endif

/* cli: the command belfry, one file a subcommand. The only place that prints and exits. */
#ifndef BELFRY_CLI_H
#define BELFRY_CLI_H

#include <stdbool.h>

#include "base/error.h"
#include "server/protocol.h"

/* Exit statuses, as usual for a command that runs another (see belfry-run(1)). */
enum cli_status { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NOT_EXECUTABLE = 126, CLI_NOT_FOUND = 127 };

struct cli_command {
	const char *name;
	int (*main)(int argc, char **argv); /* argv[0] is the subcommand */
	const char *summary;
};

int cli_run(int argc, char **argv);
int cli_ls(int argc, char **argv);
int cli_hold(int argc, char **argv);
int cli_open(int argc, char **argv);
int cli_stop(int argc, char **argv);
int cli_resume(int argc, char **argv);
int cli_set(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_soft(int argc, char **argv);

/* "belfry: <why>" on stderr. */
int cli_fail(const struct bf_error *err);
int cli_usage(const char *command, const char *why);

/* For commands that take --json and --help and nothing else: 0, or an exit status plus 1 so that --help can end
 * well. */
int cli_parse_json(int argc, char **argv, const char *help, bool *is_json);

/* "low", "medium", "high" to 0..2. */
int cli_parse_interleave(const char *text, int *level, struct bf_error *err);
extern const char *const cli_interleave_names[3];
extern const char *const cli_gate_names[3];

/* The common shape of hold, open, stop and resume: one request about one vGPU, and how long it took. */
struct cli_order {
	const char *command, *done; /* "stop", "stopped" */
	const char *help;
	enum protocol_op op;
	bool takes_time; /* --for TIME */
};
int cli_order(int argc, char **argv, const struct cli_order *order);

#endif

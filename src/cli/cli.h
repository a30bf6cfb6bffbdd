/* cli: the command belfry, one file per subcommand. Only this module prints and exits. */
#ifndef BELFRY_CLI_H
#define BELFRY_CLI_H

#include <stdbool.h>

#include "base/error.h"
#include "base/options.h"
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
int cli_probe(int argc, char **argv);
int cli_reload(int argc, char **argv);
int cli_verify(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_soft(int argc, char **argv);
int cli_cdi(int argc, char **argv);
int cli_oci(int argc, char **argv);

/* Print "belfry: <why>" on stderr. */
int cli_fail(const struct bf_error *err);
/* Print the last error of the client library on stderr. */
int cli_fail_library(const struct belfry *b);

static inline void cli_close_library(struct belfry **b)
{
	belfry_close(*b);
}
#define cleanup_belfry __attribute__((cleanup(cli_close_library)))
/* The domain has just become a shared one; empty: none has. */
void cli_say_shared(const char *domain);
int cli_usage(const char *command, const char *why);

/* Parse the command line of a subcommand, whose name is command->name. Returns the index of the first argument; or 0
 * after --help or an error, which are printed, and *status is the exit status. */
int cli_parse(const struct bf_command *command, int argc, char **argv, void *to, int *status);

/* A command with --json only. Fills a bool. */
extern const struct bf_option cli_json_options[];

/* For bf_option::take. The member is a struct cli_gpu (--gpu, --soft), or a const char * (the name of a vGPU, of a file). */
int cli_take_gpu(void *member, const struct bf_option *option, const char *value, struct bf_error *err);
int cli_take_soft(void *member, const struct bf_option *option, const char *value, struct bf_error *err);
int cli_take_name(void *member, const struct bf_option *option, const char *value, struct bf_error *err);
int cli_take_file(void *member, const struct bf_option *option, const char *value, struct bf_error *err);

/* Options for the client library, in the order given. */
enum { CLI_OPTIONS_MAX = 64 };
struct cli_options {
	size_t count; /* pairs */
	/* One pair more than the library accepts: the library reports the error. */
	const char *words[2 * (CLI_OPTIONS_MAX + 1) + 1];
};
void cli_options_add(struct cli_options *options, const char *key, const char *value);
/* For bf_option::take: the name of the option and its value, or "yes". The member is a struct cli_options. */
int cli_take_word(void *member, const struct bf_option *option, const char *value, struct bf_error *err);

/* The options of create and run that describe a new vGPU. */
struct cli_vgpu {
	struct cli_options words; /* keys of spec_parse */
	struct cli_gpu which;
	bool any_driver;
};
extern const struct bf_option cli_vgpu_options[];

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
	bool is_forced, is_json, is_verbose;
};
extern const struct bf_option cli_order_options[]; /* -v and --json */
struct cli_order {
	struct bf_command command; /* with several vGPUs, a failure does not stop the loop */
	const char *done;	   /* "stopped" */
	int (*carry_out)(struct belfry *b, const char *name, const struct cli_order_args *args);
};
int cli_order(int argc, char **argv, const struct cli_order *order);

#endif

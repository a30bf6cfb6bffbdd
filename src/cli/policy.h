/* belfry policy: what its subcommands share. */
#ifndef BELFRY_CLI_POLICY_H
#define BELFRY_CLI_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"
#include "client/policy_file.h"
#include "policy/policy.h"

enum { POLICY_SETS_MAX = 64 };

/* A command line. */
struct policy_args {
	struct cli_gpu which;
	const char *vgpu; /* NULL: none was named */
	const char *sets[POLICY_SETS_MAX];
	size_t set_count;
	const char *output, *with, *against;
	uint64_t for_us;
	long most;
	bool is_json, wants_all, is_gpu_said; /* on the command line, not by the environment */
	const char *name;		      /* its argument; NULL: none */
};

struct policy_command {
	const char *name, *help;
	const char *options; /* the letters of those it takes: see policy.c */
	const char *missing; /* what to say if its argument is missing; NULL: it takes none */
	int (*main)(struct policy_args *args);
};
extern const struct policy_command policy_load_command, policy_unload_command, policy_ls_command,
	policy_dump_command, policy_check_command, policy_new_command, policy_trace_command,
	policy_record_command, policy_replay_command;

/* The vGPU that was named, or the GPU, in a request. */
int policy_args_request(const struct policy_args *args, struct protocol_request *request,
			struct bf_error *err);

/* policy_shipped.c: the names of those that come with Belfry, "edf, fair"; and an object, as policy_file_read does. */
const char *policy_shipped(char *to, size_t room);
int policy_object_read(const char *name, struct policy_file *file, struct bf_error *err);
bool policy_is_shipped(const char *name);
/* policy_about.c: lines about a policy of belfryd's answer: what is never asked, tunables, maps. */
struct json_object;
void policy_about(struct json_object *policy);

/* policy_names.c: who is meant by a number of a decision. */
struct policy_names;
struct policy_names *policy_names_new(const struct protocol_gpu *gpu);
void policy_names_free(struct policy_names *names);
void policy_names_learn(struct policy_names *names, uint64_t id, const char *name);
const char *policy_names_of(struct policy_names *names, uint64_t id); /* "-" for 0, "?" if nobody knows */
/* The policy that decided about this vGPU: its own, or the GPU's. */
const char *policy_names_decider(struct policy_names *names, uint64_t id, bool is_own);

#endif

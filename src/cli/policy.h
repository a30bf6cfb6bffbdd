/* belfry policy: declarations shared by its subcommands. */
#ifndef BELFRY_CLI_POLICY_H
#define BELFRY_CLI_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"
#include "client/policy_file.h"
#include "policy/policy.h"

enum { POLICY_SETS_MAX = 64 };

/* A parsed command line. */
struct policy_args {
	struct cli_gpu which;
	const char *vgpu; /* NULL: none */
	const char *sets[POLICY_SETS_MAX];
	size_t set_count;
	const char *output, *with, *against;
	uint64_t for_us;
	long most;
	bool is_json, wants_all;
	const char *name; /* its argument; NULL: none */
};

struct policy_command {
	struct bf_command command; /* "policy load"; fills a struct policy_args */
	bool lists_shipped;	   /* --help lists the policies that come with Belfry */
	int (*main)(struct policy_args *args);
};
extern const struct policy_command policy_load_command, policy_unload_command, policy_ls_command,
	policy_dump_command, policy_check_command, policy_new_command, policy_trace_command,
	policy_record_command, policy_replay_command;

/* For bf_option::take. The member is the whole struct policy_args (--set), or a long (--most). */
int policy_take_set(void *member, const struct bf_option *option, const char *value, struct bf_error *err);
int policy_take_most(void *member, const struct bf_option *option, const char *value, struct bf_error *err);

/* Put the named vGPU, or else the GPU, into a request. */
int policy_args_request(const struct policy_args *args, struct protocol_request *request,
			struct bf_error *err);

/* policy_shipped.c: the names of the policies that come with Belfry, such as "edf, fair"; and a function that
 * reads an object as policy_file_read does. */
const char *policy_shipped(char *to, size_t room);
int policy_object_read(const char *name, struct policy_file *file, struct bf_error *err);
bool policy_is_shipped(const char *name);
/* policy_about.c: print hooks that are never called, tunables and maps of a policy, from belfryd's reply. */
struct json_object;
void policy_about(struct json_object *policy);

/* policy_names.c: the names of the vGPU ids in decisions. */
struct policy_names;
struct policy_names *policy_names_new(const struct protocol_gpu *gpu);
void policy_names_free(struct policy_names *names);
void policy_names_learn(struct policy_names *names, uint64_t id, const char *name);
const char *policy_names_of(struct policy_names *names, uint64_t id); /* "-" for 0, "?" if unknown */
/* The name of the policy that decided about this vGPU: the vGPU's own, or that of the GPU. */
const char *policy_names_decider(struct policy_names *names, uint64_t id, bool is_own);

#endif

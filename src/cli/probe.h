/* belfry probe: declarations shared by its subcommands. */
#ifndef BELFRY_CLI_PROBE_H
#define BELFRY_CLI_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"
#include "client/policy_file.h"

/* A parsed command line. */
struct probe_args {
	const char *vgpu;   /* NULL: none */
	const char *kernel; /* NULL: all kernels */
	long pid, sample;   /* 0: not given */
	bool is_json, wants_all;
	const char *name; /* its argument; NULL: none */
};

struct probe_command {
	struct bf_command command; /* "probe attach"; fills a struct probe_args */
	bool lists_shipped;	   /* --help lists the probes that come with Belfry */
	bool needs_vgpu;
	int (*main)(struct probe_args *args);
};
extern const struct probe_command probe_attach_command, probe_detach_command, probe_ls_command,
	probe_dump_command, probe_check_command;

/* For bf_option::take. The member is a long. */
int probe_take_pid(void *member, const struct bf_option *option, const char *value, struct bf_error *err);
int probe_take_sample(void *member, const struct bf_option *option, const char *value, struct bf_error *err);

/* probe_shipped.c */
/* A file, or a probe that comes with Belfry. The caller frees file->bytes. */
int probe_object_read(const char *name, struct policy_file *file, struct bf_error *err);
/* "blocktime" for "/usr/share/belfry/probes/blocktime.bpf.o". */
void probe_base_name(const char *path, char *to, size_t room);
const char *probe_shipped(char *to, size_t room); /* their names */

/* probe_ls.c */
struct json_object;
/* The probes of a vGPU. The caller puts *top. */
int probe_list(const char *vgpu, struct json_object **top, struct bf_error *err);
/* The number of the probe with this name or number. */
int probe_number(const char *vgpu, const char *name, uint32_t *number, struct bf_error *err);

/* probe_table.c: the tables of a probe, by the columns that its object describes. */
/* Adds "tables" to the probe of a dump. Values of all processes are added up; pid: of this one only, 0: all. */
void probe_tables(struct json_object *probe, long pid);
void probe_tables_print(struct json_object *probe);

#endif

/* belfry verify: runs a program alone and shared, and compares what it computed. */
#ifndef BELFRY_CLI_VERIFY_H
#define BELFRY_CLI_VERIFY_H

#include <limits.h>

#include "cli/cli.h"
#include "verify/verify.h"

enum {
	VERIFY_RUNS_MOST = 1000,
	VERIFY_BUFFERS_ROOM = 1024,
};

/* Exit statuses; see belfry-verify(1). */
enum verify_status {
	VERIFY_IS_IDENTICAL = 0,
	VERIFY_IS_CHANGED = 1,
	VERIFY_IS_UNSTABLE = 3,
	VERIFY_IS_UNKNOWN = 4,
};

/* The options of belfry run, which the runs are made with. */
struct verify_place {
	struct cli_options words;
	struct cli_gpu which;
	bool is_direct; /* without a vGPU */
};

struct verify_seed {
	uint64_t value; /* of the first shared run */
	bool is_given;
};

struct verify {
	struct verify_place place;
	const char *vgpu; /* NULL: each run has a vGPU of its own */
	char **program;
	long runs;
	struct verify_seed seed;
	bool is_json;
	const char *keep, *control;
	char buffers[VERIFY_BUFFERS_ROOM]; /* names, separated by commas */
	bool is_inside, is_load;
};

struct verify_run {
	char name[32]; /* "alone 1", "shared 2"; its folder has a hyphen in place of the space */
	bool is_shared;
	uint64_t seed;
	int status; /* 128+N: ended by signal N */
	uint64_t launches, graphs, copies;
	size_t processes;
	struct verify_difference difference; /* from the first run; only its way is valid later */
	char text[1024], kernel[512];
};

/* ---- verify_run.c */
/* Make a run in a folder of its own below `folder`, with neighbours if it is shared. */
int verify_run(const struct verify *verify, const char *folder, struct verify_run *run, struct bf_error *err);
void verify_run_folder(const char *folder, const struct verify_run *run, char path[PATH_MAX]);
/* The signal that ended the command before its runs did, or 0. */
int verify_signal(void);
void verify_take_signals(void);

/* ---- verify_inside.c: inside a run */
#define VERIFY_BEGUN "begun" /* a file in the folder of the run: the program was started */
/* Become the program, with the library for traces in front of the driver's. Returns an exit status if that fails. */
int verify_inside(char **program);
/* Be a neighbour: keep the GPU busy until standard output is closed. */
int verify_load(void);

/* ---- verify_print.c */
void verify_print_run(const struct verify_run *run);
/* `telling`: the run that the verdict is about. */
void verify_print_verdict(enum verify_status status, const struct verify_run *runs, size_t count,
			  const struct verify_run *telling, size_t loose);
/* error: why there is no verdict; NULL: there is one. */
void verify_print_json(enum verify_status status, const struct verify *verify, const struct verify_run *runs,
		       size_t count, size_t loose, const char *error);

#endif

/* The software GPU: find its files, start it, and set up the environment of programs that use it. */
#ifndef BELFRY_CLI_SOFT_H
#define BELFRY_CLI_SOFT_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/link/link.h"

/* The GPU that a command line selects. */
struct cli_gpu {
	bool is_soft;
	bool is_said;	  /* by --gpu, --soft or BELFRY_GPU; otherwise the hardware of the machine decides */
	bool is_option;	  /* by --gpu or --soft */
	bool is_fallback; /* set by cli_gpu_settle: the software GPU, as there is no other */
	uint32_t index;
	struct link_config soft;
};
/* Parse the value of --gpu or BELFRY_GPU: "0", "soft", "soft:1". */
int cli_gpu_parse(const char *text, struct cli_gpu *gpu, struct bf_error *err);
/* Parse the value of --soft or BELFRY_SOFT: see link_config_parse. */
int cli_gpu_parse_soft(const char *text, struct cli_gpu *gpu, struct bf_error *err);
/* Set the defaults and apply the environment; call this first. */
int cli_gpu_default(struct cli_gpu *gpu, struct bf_error *err);
/* If no GPU was selected and the machine has no NVIDIA GPU, select the software GPU. */
void cli_gpu_settle(struct cli_gpu *gpu);
/* Start the selected software GPU if it does not run. Says so on stderr if the user did not select it. */
int cli_gpu_start(const struct cli_gpu *gpu, char *folder, size_t room, struct bf_error *err);

/* Whether belfry-soft and its libcuda.so.1 are installed. */
bool cli_soft_is_here(void);
/* Start the software GPU if it does not run. */
int cli_soft_start(const struct link_config *config, char *folder, size_t room, struct bf_error *err);
/* Put the folder in front of those in the environment variable. */
void cli_put_first(const char *variable, const char *folder);
/* The folder of libcuda.so.1. */
int cli_soft_library(char *path, size_t room, struct bf_error *err);
/* Set the environment of this process, so that programs load its libcuda.so.1 and find the software GPU in
 * that folder. */
int cli_soft_use(const char *folder, struct bf_error *err);
/* cli_soft_start and cli_soft_use. */
int cli_soft_prepare(const struct link_config *config, char *folder, size_t room, struct bf_error *err);

#endif

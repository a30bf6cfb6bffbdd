/* The software GPU, as commands use it: where its parts are, starting it, and what a program needs to find it. */
#ifndef BELFRY_CLI_SOFT_H
#define BELFRY_CLI_SOFT_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/link/link.h"

/* Which GPU a command line means. */
struct cli_gpu {
	bool is_soft,
		is_said; /* is_said: by --gpu, --soft or BELFRY_GPU; otherwise what the machine has decides */
	uint32_t index;
	struct link_config soft;
};
/* --gpu's and BELFRY_GPU's value: "0", "soft", "soft:1". */
int cli_gpu_parse(const char *text, struct cli_gpu *gpu, struct bf_error *err);
/* --soft's and BELFRY_SOFT's: see link_config_parse. */
int cli_gpu_parse_soft(const char *text, struct cli_gpu *gpu, struct bf_error *err);
/* What the environment says; call first. */
int cli_gpu_default(struct cli_gpu *gpu, struct bf_error *err);
/* Settle it: if nothing was said and the machine has no NVIDIA GPU, the software one; says so on stderr. */
void cli_gpu_settle(struct cli_gpu *gpu);

/* Whether its parts are installed. */
bool cli_soft_is_here(void);
/* Start it if it does not run. */
int cli_soft_start(const struct link_config *config, char *folder, size_t room, struct bf_error *err);
/* Set this process's environment so that programs find its libcuda.so.1, and the software GPU in that folder. */
int cli_soft_use(const char *folder, struct bf_error *err);
/* Both. */
int cli_soft_prepare(const struct link_config *config, char *folder, size_t room, struct bf_error *err);

#endif

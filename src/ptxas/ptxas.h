/* ptxas: belfry-ptxas, a program in front of NVIDIA's assembler ptxas. Triton runs it (TRITON_PTXAS_PATH) in programs that were
 * started by `belfry run --probes`. It runs the real ptxas with the same arguments, and adds the PTX to the machine code that
 * came out, so that probes can be inserted. It never makes an assembly fail that would succeed without it. */
#ifndef BELFRY_PTXAS_PTXAS_H
#define BELFRY_PTXAS_PTXAS_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda/fatbin.h"

/* What a command line of ptxas asks for. */
struct ptxas_job {
	bool is_version;   /* only the version */
	const char *input; /* PTX; NULL: none, or several */
	const char *output;
	struct fatbin_target target;
	const char *why_not; /* why the output must stay as it is; NULL: PTX can be added to it */
};
/* is_text: whether a file is PTX. */
void ptxas_read_arguments(char *const *argv, bool (*is_text)(const char *path), struct ptxas_job *job);

/* The real ptxas: BELFRY_PTXAS; else that of the Triton that has started this process; else that of CUDA. */
bool ptxas_find(char *path, size_t room);
/* The ptxas of the Triton whose library is mapped in a process, by the text of its /proc/PID/maps. */
bool ptxas_find_mapped(const char *maps, char *path, size_t room);

/* Replaces the output by a fat binary with the output and the input. */
int ptxas_add_text(const struct ptxas_job *job, struct bf_error *err);

#endif

/* Options of the functions that take PTX: arrays of kinds and values. Only the logs and the time have an
 * effect: nothing is compiled. */
#ifndef BELFRY_SOFT_CUDA_JIT_H
#define BELFRY_SOFT_CUDA_JIT_H

#include "base/error.h"
#include "cuda/api.h"

struct jit {
	unsigned count;
	CUjit_option *options;
	void **values;
};
CUresult jit_check(const struct jit *jit);
/* Write the logs. If the program gave no error log, an error is printed as one line on stderr, with `path`,
 * the file of the module, or NULL. */
void jit_report(const struct jit *jit, const char *path, const struct bf_error *err);

#endif

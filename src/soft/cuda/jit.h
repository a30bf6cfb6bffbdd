/* Options of the functions that take PTX: arrays of kinds and values. Of all of them only the logs and the time mean
 * something here: nothing is compiled. */
#ifndef BELFRY_SOFT_CUDA_JIT_H
#define BELFRY_SOFT_CUDA_JIT_H

#include "base/error.h"
#include "soft/cuda/api.h"

struct jit {
	unsigned count;
	CUjit_option *options;
	void **values;
};
CUresult jit_check(const struct jit *jit);
/* Fill in the logs. Without an error log of the program's own, an error is one line on stderr, which names `path`, the
 * module's file, or NULL. */
void jit_report(const struct jit *jit, const char *path, const struct bf_error *err);

#endif

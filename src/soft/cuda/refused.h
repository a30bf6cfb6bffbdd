/* What a person is told of a module that is refused. */
#ifndef BELFRY_SOFT_CUDA_REFUSED_H
#define BELFRY_SOFT_CUDA_REFUSED_H

#include "base/error.h"

/* `path`: the module's file, or NULL if it came from memory. Nothing if err holds no error. */
void refused_tell(const char *path, const struct bf_error *err);

#endif

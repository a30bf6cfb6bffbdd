/* The message for a module that is refused. */
#ifndef BELFRY_SOFT_CUDA_REFUSED_H
#define BELFRY_SOFT_CUDA_REFUSED_H

#include "base/error.h"

/* `path`: the file of the module; NULL: from memory. Prints nothing without an error in err. */
void refused_tell(const char *path, const struct bf_error *err);

#endif

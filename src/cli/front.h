/* The library of src/coro, which stands in front of libcuda.so.1 in a program. */
#ifndef BELFRY_CLI_FRONT_H
#define BELFRY_CLI_FRONT_H

#include <stdbool.h>

#include "base/error.h"

/* Put it in front, in the environment of the program: LD_LIBRARY_PATH and BELFRY_LIBCUDA. -ENOENT: it is not installed, or there
 * is no libcuda.so.1 behind it. */
int front_use(struct bf_error *err);
/* Have the program load modules through the library, which connects to this socket for probes. has_library: it is used
 * already. */
int front_use_probes(const char *socket, bool has_library, struct bf_error *err);
/* The same for a program of a shared domain, whose folder has the socket for leases. A library that is not there is no error:
 * a warning says that the program uses all SMs. */
int front_use_lease(const char *mps_folder, struct bf_error *err);
/* Have Triton assemble through belfry-ptxas, which keeps the PTX of its kernels for probes: TRITON_PTXAS_PATH, unless the
 * environment has it. */
int front_use_ptxas(struct bf_error *err);

#endif

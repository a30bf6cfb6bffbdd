/* Shared by port.c and port_open.c. */
#ifndef BELFRY_SOFT_CUDA_PORT_H
#define BELFRY_SOFT_CUDA_PORT_H

#include "soft/cuda/core.h"

extern char port_folder[]; /* of the software GPU */
CUresult port_result(int rc, uint32_t status);

#endif

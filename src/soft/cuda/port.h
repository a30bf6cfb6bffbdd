/* Shared by port.c, port_open.c and domain.c. */
#ifndef BELFRY_SOFT_CUDA_PORT_H
#define BELFRY_SOFT_CUDA_PORT_H

#include "soft/cuda/core.h"

extern char port_folder[]; /* of the software GPU */
CUresult port_result(int rc, uint32_t status);
/* domain.c: joins the shared domain of the environment, if there is one. */
CUresult port_join_domain(void);

#endif

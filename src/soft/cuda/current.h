/* Shared by the files about contexts. */
#ifndef BELFRY_SOFT_CUDA_CURRENT_H
#define BELFRY_SOFT_CUDA_CURRENT_H

#include "soft/cuda/core.h"

CUresult current_find(struct context **context); /* also a context with an error */
CUresult current_push(struct context *context);
CUresult current_pop(struct context **context);
CUresult current_set(struct context *context);

#endif

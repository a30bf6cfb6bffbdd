/* What event.c and event_api.c share. */
#ifndef BELFRY_SOFT_CUDA_EVENT_H
#define BELFRY_SOFT_CUDA_EVENT_H

#include "soft/cuda/core.h"

CUresult event_new(struct context *context, unsigned flags, struct event **event);
void event_destroy(struct event *event); /* freed when nothing keeps it and its time has been written */
/* What cuEventRecord does, under the lock. */
CUresult event_record(CUevent handle, CUstream stream, unsigned flags);

#endif

/* Shared by event.c and event_api.c. */
#ifndef BELFRY_SOFT_CUDA_EVENT_H
#define BELFRY_SOFT_CUDA_EVENT_H

#include "soft/cuda/core.h"

CUresult event_new(struct context *context, unsigned flags, struct event **event);
void event_destroy(struct event *event); /* freed when it has no users and its time has been written */
/* cuEventRecord, under the lock. */
CUresult event_record(CUevent handle, CUstream stream, unsigned flags);

#endif

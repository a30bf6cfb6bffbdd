/* Whether what a configuration promises can be kept: memory and time of its vGPUs, added up for each GPU. Pure. */
#ifndef BELFRY_ROUTER_PROMISES_H
#define BELFRY_ROUTER_PROMISES_H

#include "router/config.h"
#include "router/router.h"

enum { PROMISES_ANYWHERE = -1, PROMISES_UNKNOWN = -2 };

/* On which of the rooms a vGPU of the configuration is or is to be: an index, PROMISES_ANYWHERE if it may choose, or
 * PROMISES_UNKNOWN if its GPU is none of them. *spec, which is the configuration's, may be changed to what it will be. */
typedef int (*promises_where)(void *context, const struct config_vgpu *vgpu, struct spec *spec);

/* rooms: what there is without the vGPUs of the configuration; it is used up. The error names file and line. */
int promises_check(const struct config *config, struct router_room *rooms, unsigned count,
		   promises_where where, void *context, struct bf_error *err);

#endif

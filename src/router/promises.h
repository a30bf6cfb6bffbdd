/* Whether the promises of a configuration can be kept: memory and time of its vGPUs, added up for each GPU. Pure. */
#ifndef BELFRY_ROUTER_PROMISES_H
#define BELFRY_ROUTER_PROMISES_H

#include "router/config.h"
#include "router/router.h"

enum { PROMISES_ANYWHERE = -1, PROMISES_UNKNOWN = -2 };

/* Where a vGPU of the configuration is or will be: an index in `rooms`, PROMISES_ANYWHERE for any of them, or
 * PROMISES_UNKNOWN if its GPU is not among them. *spec is the configuration's, and may be changed to the spec that
 * the vGPU will have. */
typedef int (*promises_where)(void *context, const struct config_vgpu *vgpu, struct spec *spec);

/* rooms: what is free without the vGPUs of the configuration; it is modified. The error has file and line. */
int promises_check(const struct config *config, struct router_room *rooms, unsigned count,
		   promises_where where, void *context, struct bf_error *err);

#endif

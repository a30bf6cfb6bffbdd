/* belfryd --check: whether the GPUs of this machine can keep what a configuration promises. */
#ifndef BELFRY_ROUTER_CHECK_H
#define BELFRY_ROUTER_CHECK_H

#include "router/config.h"

struct check_options {
	const struct protocol_gpu *gpus; /* the GPUs of the configuration */
	unsigned gpu_count;
	uint64_t soft_mem_bytes;
	const char *socket; /* of a belfryd that may run and know its GPUs; NULL: the default */
	bool any_driver;
};

/* Add up memory and time of the vGPUs for each GPU. A GPU whose memory is not known has no limit: `unchecked` lists
 * such GPUs and the reasons. It is empty if there are none. */
int check_promises(const struct config *config, const struct check_options *options, char *unchecked,
		   size_t room, struct bf_error *err);

#endif

/* belfryd --check: whether the GPUs of this machine can keep what a configuration promises. */
#ifndef BELFRY_ROUTER_CHECK_H
#define BELFRY_ROUTER_CHECK_H

#include "router/config.h"

struct check_options {
	const struct protocol_gpu *gpus; /* those of the configuration */
	unsigned gpu_count;
	uint64_t soft_mem_bytes;
	const char *socket; /* of a belfryd that may run and know its GPUs; NULL: the usual one */
	bool any_driver;
};

/* Memory and time of the vGPUs, added up for each GPU. A GPU whose memory is not known is no limit to it: `unchecked` says
 * which that are, and why; it is empty if there are none. */
int check_promises(const struct config *config, const struct check_options *options, char *unchecked,
		   size_t room, struct bf_error *err);

#endif

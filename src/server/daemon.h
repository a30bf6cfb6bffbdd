/* One vGPU and the program on it, from start to end. */
#ifndef BELFRY_SERVER_DAEMON_H
#define BELFRY_SERVER_DAEMON_H

#include <stdbool.h>

#include "warden/warden.h"

struct daemon_options {
	const char *name;
	int front_fd;		 /* the belfry that started us; its end is ours */
	const char *soft_folder; /* of the software GPU, or NULL: a real one */
	struct device_options device;
	struct warden_options warden;
	char *const *argv;
};

/* Returns belfryd's exit status. What went wrong has been said to the front. */
int daemon_run(const struct daemon_options *options);

#endif

/* A program on a vGPU, from its start to its end. */
#ifndef BELFRY_CLI_LAUNCH_H
#define BELFRY_CLI_LAUNCH_H

struct launch_options {
	char *const *argv;
	int sock; /* the connection on which the program was allowed: it is the run from now on */
	const char *soft_folder; /* of the software GPU, if the vGPU is on that; else NULL */
};

/* Returns belfry's exit status. What went wrong has been said. */
int launch_run(const struct launch_options *options);

#endif

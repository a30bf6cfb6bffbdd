/* Run a program on a vGPU. */
#ifndef BELFRY_CLI_LAUNCH_H
#define BELFRY_CLI_LAUNCH_H

struct launch_options {
	char *const *argv;
	int sock;		 /* the connection on which belfryd accepted the run */
	const char *soft_folder; /* the software GPU of the vGPU; NULL: an NVIDIA GPU */
};

/* Returns belfry's exit status. Errors have been printed. */
int launch_run(const struct launch_options *options);

#endif

/* Start a program under supervision. */
#ifndef BELFRY_SERVER_PROGRAM_H
#define BELFRY_SERVER_PROGRAM_H

#include <sys/types.h>

#include "base/error.h"
#include "warden/device.h"

struct program {
	pid_t pid;
	int listener; /* its seccomp notifications */
	int go_fd;    /* the program waits until this is written to */
	int exec_fd;  /* end of file once it runs; four bytes of errno if it could not be started */
};

/* Fork, and have the child install the filter and wait. `group` is the process group it belongs to; files of
 * `device` are not inherited. */
int program_prepare(char *const *argv, pid_t group, struct device *device, struct program *program,
		    struct bf_error *err);
/* Let it go. 0 once it runs; the errno of exec otherwise. Its notifications must be answered meanwhile only by
 * those it makes after exec. */
int program_go(struct program *program);

#endif

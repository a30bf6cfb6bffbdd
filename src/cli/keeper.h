/* The keeper is the parent of the program. belfry, the keeper and the program form a chain: when belfry or
 * the keeper dies, the other kills the program and all its descendants. */
#ifndef BELFRY_CLI_KEEPER_H
#define BELFRY_CLI_KEEPER_H

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct keeper {
	pid_t pid, program_pid;
	int sock;     /* reports of the keeper; closed when the keeper exits */
	int listener; /* the program's seccomp notifications */
	int go_fd;    /* the program waits for a byte written here */
	int exec_fd;  /* end of file once the program runs; the errno of exec on failure */
};

/* A report of the keeper. */
enum keeper_kind { KEEPER_STARTED = 1, KEEPER_ENDED };
struct keeper_report {
	uint32_t kind;
	int32_t value; /* the program's pid, or its wait status */
};

/* Fork the keeper, which forks the program's process, which installs the filter and waits. The keeper closes
 * `private_fd`, a descriptor of the caller. The caller must be a child subreaper. */
int keeper_start(char *const *argv, int private_fd, struct keeper *keeper, struct bf_error *err);
/* Let the program run. Returns 0 once it runs or if it ended before, otherwise the errno of exec. */
int keeper_go(struct keeper *keeper);
/* Read the next report. Returns -EPIPE if the keeper has died. */
int keeper_read(const struct keeper *keeper, struct keeper_report *report);
/* Kill the keeper and all its descendants. */
void keeper_end(struct keeper *keeper);

/* Returns -EBUSY if this process is supervised already: a program that it starts cannot be supervised
 * again. */
int keeper_check_free(struct bf_error *err);

#endif

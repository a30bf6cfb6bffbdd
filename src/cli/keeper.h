/* The keeper: the parent of the program. belfry, the keeper and the program are a chain: whichever of the first two
 * dies, for whatever reason, the other ends the program and all it has started. */
#ifndef BELFRY_CLI_KEEPER_H
#define BELFRY_CLI_KEEPER_H

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct keeper {
	pid_t pid, program_pid;
	int sock;     /* what it reports; its end is the keeper's */
	int listener; /* the program's seccomp notifications */
	int go_fd;    /* the program waits until this is written to */
	int exec_fd;  /* end of file once it runs; four bytes of errno if it could not be started */
};

/* What it reports. */
enum keeper_kind { KEEPER_STARTED = 1, KEEPER_ENDED };
struct keeper_report {
	uint32_t kind;
	int32_t value; /* the program's number, or its wait status */
};

/* Fork the keeper, which forks the program's process, which installs the filter and waits. `private_fd` is a
 * descriptor that is the caller's alone. The caller must be a child subreaper. */
int keeper_start(char *const *argv, int private_fd, struct keeper *keeper, struct bf_error *err);
/* Let the program go. 0 once it runs, or has ended before it did; the errno of exec otherwise. */
int keeper_go(struct keeper *keeper);
/* The next report; -EPIPE if the keeper has died. */
int keeper_read(const struct keeper *keeper, struct keeper_report *report);
/* End the keeper and everything below it. */
void keeper_end(struct keeper *keeper);

/* -EBUSY if this process is supervised already, and what it starts cannot be. */
int keeper_check_free(struct bf_error *err);

#endif

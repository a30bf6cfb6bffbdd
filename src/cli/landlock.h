/* landlock: restrict the signals of a run. A program of a run can signal only processes of its own run: not
 * belfryd, a GPU server, the front, the keeper or other processes of its user. The same holds for tracing.
 * The ruleset handles no access to files: a ruleset that does would forbid mount() and break containers
 * inside a run. */
#ifndef BELFRY_CLI_LANDLOCK_H
#define BELFRY_CLI_LANDLOCK_H

#include "base/error.h"

/* The Landlock ABI of the kernel; 0: the kernel has no Landlock, or Landlock is off. */
int landlock_abi(void);
/* Restrict this thread and its descendants permanently. Sets no_new_privs. Does nothing and returns 0 if the
 * kernel does not support it: belfry info reports that. */
int landlock_scope_signals(struct bf_error *err);

#endif

/* landlock: the wall around a run's signals. A program of a run signals and traces processes of its own run only, not
 * belfryd, a GPU server, the front, the keeper or any other process of its user. It handles no access to files: a ruleset
 * that does would forbid mount() and break containers inside a run. */
#ifndef BELFRY_CLI_LANDLOCK_H
#define BELFRY_CLI_LANDLOCK_H

#include "base/error.h"

/* The kernel's; 0: it has no Landlock, or Landlock is off. */
int landlock_abi(void);
/* For this thread and all that it starts, for ever; sets no_new_privs. Where the kernel cannot do it nothing is done and 0 is
 * returned: belfry info tells. */
int landlock_scope_signals(struct bf_error *err);

#endif

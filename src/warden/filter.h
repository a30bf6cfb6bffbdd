/* The seccomp filter: which system calls of a supervised program are reported to the warden. */
#ifndef BELFRY_WARDEN_FILTER_H
#define BELFRY_WARDEN_FILTER_H

#include "base/error.h"

/* Install the filter on this thread and on all its descendants, permanently. Returns the descriptor of the
 * listener. Sets no_new_privs: a supervised program cannot gain privileges by exec. -EBUSY: another
 * supervisor has a listener already. */
int filter_install(struct bf_error *err);

#endif

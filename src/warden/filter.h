/* Which system calls of a supervised program reach the warden. */
#ifndef BELFRY_WARDEN_FILTER_H
#define BELFRY_WARDEN_FILTER_H

#include "base/error.h"

/* Install the filter on this thread and everything it starts, for ever. Returns the listener's descriptor.
 * Sets no_new_privs: a supervised program cannot gain privileges by exec. -EBUSY: another supervisor listens
 * already. */
int filter_install(struct bf_error *err);

#endif

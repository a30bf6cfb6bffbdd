/* The seccomp filter: which system calls of a supervised program are reported to the warden. */
#ifndef BELFRY_WARDEN_FILTER_H
#define BELFRY_WARDEN_FILTER_H

#include "base/error.h"

/* Install the filter on this thread and on all its descendants, permanently. Returns the descriptor of the
 * listener. Sets no_new_privs: a supervised program cannot gain privileges by exec. -EBUSY: another
 * supervisor has a listener already. */
int filter_install(struct bf_error *err);
/* The same without no_new_privs, so that setuid programs keep working: for processes that another program starts as root
 * and that become another user later. Needs CAP_SYS_ADMIN. docs/security.md says what a setuid program can do then. */
int filter_install_as_root(struct bf_error *err);

#endif

/* Supervision. A supervisor names roots and acts for the descendants of each root (not for the root itself).
 * Their own requests are refused. A root that is its descendants' subreaper keeps all of them. Private to the
 * module; has its own lock. */
#ifndef BELFRY_SOFT_DRIVER_FAMILY_H
#define BELFRY_SOFT_DRIVER_FAMILY_H

#include <stdbool.h>
#include <sys/types.h>

struct family;

struct family *family_new(void);
void family_free(struct family *family);
/* `owner` identifies the pair for family_remove. -errno: -EPERM if the supervisor is supervised itself,
 * -EINVAL if it is below the root, -ESRCH if there is no such root, -EACCES if /proc hides it, -EBUSY if it
 * has another supervisor or is below such a root, -ENOMEM. */
int family_add(struct family *family, const void *owner, pid_t supervisor, pid_t root);
void family_remove(struct family *family, const void *owner); /* removes all roots of the owner */
bool family_is_empty(struct family *family);
bool family_has_supervisor(struct family *family, pid_t pid); /* whether the process has named a root */
/* Whether `sender` may act for itself (on_behalf 0) or for that process: 0, or -EPERM. */
int family_check(struct family *family, pid_t sender, pid_t on_behalf);

#endif

/* Who supervises whom. A supervisor names roots: it speaks for the descendants of each (not for the root itself), and
 * they do not speak for themselves: what they ask goes through it, or is refused. A root that is its descendants'
 * subreaper loses none of them. Private to the room; has a lock of its own. */
#ifndef BELFRY_SOFT_DRIVER_FAMILY_H
#define BELFRY_SOFT_DRIVER_FAMILY_H

#include <stdbool.h>
#include <sys/types.h>

struct family;

struct family *family_new(void);
void family_free(struct family *family);
/* `owner` is whatever the pair goes with. -errno: -EPERM if the supervisor is supervised itself, -EINVAL if it is below
 * the root, -ESRCH if there is no such root, -EACCES if /proc hides it, -EBUSY if that is another supervisor's or below
 * one of those, -ENOMEM. */
int family_add(struct family *family, const void *owner, pid_t supervisor, pid_t root);
void family_remove(struct family *family, const void *owner); /* with all its roots */
bool family_is_empty(struct family *family);
/* May `sender` speak for itself (on_behalf 0) or for that process? 0, or -EPERM. */
int family_check(struct family *family, pid_t sender, pid_t on_behalf);

#endif

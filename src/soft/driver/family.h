/* Who supervises whom. A process that supervises speaks for its descendants, and they do not speak for themselves:
 * what they ask goes through it, or is refused. Private to the room; has a lock of its own. */
#ifndef BELFRY_SOFT_DRIVER_FAMILY_H
#define BELFRY_SOFT_DRIVER_FAMILY_H

#include <stdbool.h>
#include <sys/types.h>

struct family;

struct family *family_new(void);
void family_free(struct family *family);
/* -errno: -ENOMEM. As often as it was added it must be removed. */
int family_add(struct family *family, pid_t supervisor);
void family_remove(struct family *family, pid_t supervisor);
bool family_is_empty(struct family *family);
/* May `sender` speak for itself (on_behalf 0) or for that process? 0, or -EPERM. */
int family_check(struct family *family, pid_t sender, pid_t on_behalf);

#endif

/* Private to the module. */
#ifndef BELFRY_SOFT_ALONE_H
#define BELFRY_SOFT_ALONE_H

#include <stdbool.h>

/* A socket supports neither these ioctls nor mmap, so a refused one shows that no warden supervises this
 * process. That never changes in the life of a process, because the filter is installed before the program
 * starts. */
extern _Atomic bool link_is_alone;

#endif

/* Private to the room. */
#ifndef BELFRY_SOFT_ALONE_H
#define BELFRY_SOFT_ALONE_H

#include <stdbool.h>

/* A socket has no ioctls and no mmap of ours, so one that was refused says that no warden stands before this process.
 * That does not change while the process lives: filters come before the program does. */
extern _Atomic bool link_is_alone;

#endif

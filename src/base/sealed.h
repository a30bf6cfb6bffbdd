#ifndef BASE_SEALED_H
#define BASE_SEALED_H

#include <stddef.h>

/* A memory file with these bytes, positioned at its start. It is sealed: no process that gets the file can change it.
 * Returns its descriptor, or -errno. The name is for /proc. */
int bf_sealed_file(const char *name, const void *bytes, size_t size);

#endif

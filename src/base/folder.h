/* Directories for sockets and locks that only their owner can write, and the paths of Belfry's own files. */
#ifndef BELFRY_BASE_FOLDER_H
#define BELFRY_BASE_FOLDER_H

#include <stddef.h>

#include "base/error.h"

/* Creates the directory if it does not exist, and checks that only this user can write it. `variable` is the
 * environment variable that the message names for choosing another directory. */
int bf_own_folder(const char *path, const char *variable, struct bf_error *err);
/* The directory for this user's sockets and locks, created if it does not exist: BELFRY_RUNTIME_DIR, else
 * XDG_RUNTIME_DIR/belfry, else /run/belfry for root and /tmp/belfry-UID for other users. */
int bf_runtime_folder(char *to, size_t room, struct bf_error *err);
/* Finds a file of Belfry: the path in the environment variable `variable` (if not NULL), else the first
 * candidate that exists. Candidates are relative to the directory of this executable, which differs between
 * the build tree, an installation and the portable archive. Returns 0, -ENOENT or -ENAMETOOLONG. */
int bf_find_beside(const char *variable, const char *const *candidates, char *path, size_t room);

#endif

/* Where things are: folders for sockets and locks, one user's and nobody else's to write; and the parts of Belfry. */
#ifndef BELFRY_BASE_FOLDER_H
#define BELFRY_BASE_FOLDER_H

#include <stddef.h>

#include "base/error.h"

/* Make the folder if need be, and check that it is ours alone. `variable` names what a person can set to choose
 * another one. */
int bf_own_folder(const char *path, const char *variable, struct bf_error *err);
/* The folder for everything of this user's that runs, made if need be: BELFRY_RUNTIME_DIR, else below
 * XDG_RUNTIME_DIR, else /run/belfry for root and /tmp/belfry-UID for others. */
int bf_runtime_folder(char *to, size_t room, struct bf_error *err);
/* What the environment says in `variable` (unless that is NULL), else the first of these that exists, counted from the
 * folder this program is in: in the build folder, where it is installed, and in the portable folder. -ENOENT,
 * -ENAMETOOLONG. */
int bf_find_beside(const char *variable, const char *const *candidates, char *path, size_t room);

#endif

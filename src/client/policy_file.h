/* Policy objects, from a file or by the name of a policy that Belfry ships. */
#ifndef BELFRY_CLIENT_POLICY_FILE_H
#define BELFRY_CLIENT_POLICY_FILE_H

#include <stddef.h>

#include "base/error.h"

struct policy_file {
	char path[4096];
	void *bytes; /* to be freed */
	size_t size;
};
/* A file of that name takes precedence. Otherwise a name without a slash is looked up beside this program. */
int policy_file_read(const char *name, struct policy_file *file, struct bf_error *err);
/* A sealed memory file with the object, to be sent. */
int policy_file_seal(const struct policy_file *file, struct bf_error *err);

enum { POLICY_FILE_SETS_MAX = 64 };
/* Split a text of NAME=VALUE at the separators in `between`, in place. Returns their number. */
size_t policy_file_sets(char *text, const char *between, const char **sets);

#endif

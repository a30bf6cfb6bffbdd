/* Objects of policies, by a file or by the name of one that comes with Belfry. */
#ifndef BELFRY_CLIENT_POLICY_FILE_H
#define BELFRY_CLIENT_POLICY_FILE_H

#include <stddef.h>

#include "base/error.h"

struct policy_file {
	char path[4096];
	void *bytes; /* to be freed */
	size_t size;
};
/* A file of that name comes first; a name without a slash that is none is looked for beside this program. */
int policy_file_read(const char *name, struct policy_file *file, struct bf_error *err);

enum { POLICY_FILE_SETS_MAX = 64 };
/* A text of NAME=VALUE, cut up: what is between them becomes their ends. How many there are. */
size_t policy_file_sets(char *text, const char *between, const char **sets);

#endif

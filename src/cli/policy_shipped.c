/* The policies that come with Belfry. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "cli/policy.h"
#include "cli/policy_list.h" /* generated: BELFRY_POLICIES, the names of policies, a blank after each */

static bool is_here(const char *name, int length)
{
	char beside[96], installed[96], path[4096];
	const char *const candidates[] = { beside, installed, NULL };

	snprintf(beside, sizeof(beside), "policies/%.*s.bpf.o", length, name);
	snprintf(installed, sizeof(installed), "../share/belfry/policies/%.*s.bpf.o", length, name);
	return !bf_find_beside(NULL, candidates, path, sizeof(path));
}

bool policy_is_shipped(const char *name)
{
	size_t length = strlen(name);

	for (const char *one = BELFRY_POLICIES; *one; one += strcspn(one, " ") + 1)
		if (strcspn(one, " ") == length && !memcmp(one, name, length))
			return is_here(name, (int)length);
	return false;
}

const char *policy_shipped(char *to, size_t room)
{
	size_t used = 0;

	to[0] = 0;
	for (const char *name = BELFRY_POLICIES; *name; name += strcspn(name, " ") + 1) {
		int length = (int)strcspn(name, " ");

		if (used < room && is_here(name, length))
			used += (size_t)snprintf(to + used, room - used, "%s%.*s", used ? ", " : "", length,
						 name);
	}
	return to[0] ? to : "none, as none is installed";
}

int policy_object_read(const char *name, struct policy_file *file, struct bf_error *err)
{
	int rc = policy_file_read(name, file, err);
	char names[256];

	if (rc != -ENOENT || strchr(name, '/'))
		return rc;
	if (!strcmp(name, "built-in"))
		return bf_fail(err, ENOENT,
			       "built-in: what decides where no policy is loaded, and no object; "
			       "belfry policy unload has it decide again");
	return bf_fail(err, ENOENT, "%.64s: neither a file nor a policy that comes with Belfry; those are %s",
		       name, policy_shipped(names, sizeof(names)));
}

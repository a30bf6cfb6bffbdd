#include "cli/landlock.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/landlock.h"
#include "base/own.h"

int landlock_abi(void)
{
	long abi = syscall(BF_LANDLOCK_SYS_CREATE_RULESET, NULL, 0, BF_LANDLOCK_CREATE_RULESET_VERSION);

	return abi > 0 ? (int)abi : 0;
}

int landlock_scope_signals(struct bf_error *err)
{
	struct bf_landlock_ruleset scope = { .scoped = BF_LANDLOCK_SCOPE_SIGNAL };
	cleanup_close int ruleset = -1;

	if (landlock_abi() < BF_LANDLOCK_ABI_SCOPE)
		return 0;
	ruleset = (int)syscall(BF_LANDLOCK_SYS_CREATE_RULESET, &scope, sizeof(scope), 0);
	if (ruleset < 0)
		return bf_fail(err, errno, "Landlock: no ruleset: %s", strerror(errno));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return bf_fail(err, errno, "no_new_privs: %s", strerror(errno));
	if (syscall(BF_LANDLOCK_SYS_RESTRICT_SELF, ruleset, 0))
		return bf_fail(err, errno, "Landlock: the program's signals cannot be restricted: %s",
			       errno == E2BIG ? "it is in 16 domains already" : strerror(errno));
	return 0;
}

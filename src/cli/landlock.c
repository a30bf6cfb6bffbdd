#include "cli/landlock.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/own.h"

/* include/uapi/linux/landlock.h of Linux 6.12: headers may be older than the kernel. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif
enum { CREATE_RULESET_VERSION = 1, SCOPE_SIGNAL = 2 };
struct ruleset {
	uint64_t handled_fs, handled_net, scoped;
};

int landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);

	return abi > 0 ? (int)abi : 0;
}

int landlock_scope_signals(struct bf_error *err)
{
	struct ruleset scope = { .scoped = SCOPE_SIGNAL };
	cleanup_close int ruleset = -1;

	if (landlock_abi() < LANDLOCK_ABI_SIGNALS)
		return 0;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &scope, sizeof(scope), 0);
	if (ruleset < 0)
		return bf_fail(err, errno, "Landlock: no ruleset: %s", strerror(errno));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return bf_fail(err, errno, "no_new_privs: %s", strerror(errno));
	if (syscall(SYS_landlock_restrict_self, ruleset, 0))
		return bf_fail(err, errno, "Landlock: the program's signals cannot be restricted: %s",
			       errno == E2BIG ? "it is in 16 domains already" : strerror(errno));
	return 0;
}

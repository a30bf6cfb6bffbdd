/* Landlock's system calls and constants, from include/uapi/linux/landlock.h and asm-generic/unistd.h of Linux
 * 6.12: the installed headers may be older than the running kernel. */
#ifndef BELFRY_BASE_LANDLOCK_H
#define BELFRY_BASE_LANDLOCK_H

#include <stdint.h>

enum {
	BF_LANDLOCK_SYS_CREATE_RULESET = 444,
	BF_LANDLOCK_SYS_RESTRICT_SELF = 446,
	BF_LANDLOCK_CREATE_RULESET_VERSION = 1 << 0, /* flag: return the ABI version */
	BF_LANDLOCK_ACCESS_FS_IOCTL_DEV = 1 << 15,
	BF_LANDLOCK_SCOPE_SIGNAL = 1 << 1,
	BF_LANDLOCK_ABI_IOCTL_DEV = 5, /* Linux 6.10: device files on which every ioctl is refused */
	BF_LANDLOCK_ABI_SCOPE = 6,     /* Linux 6.12: signals only within the domain */
};

/* struct landlock_ruleset_attr */
struct bf_landlock_ruleset {
	uint64_t handled_access_fs, handled_access_net, scoped;
};

#endif

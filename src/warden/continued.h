/* continued: the calls that the kernel makes itself after the warden has examined them
 * (SECCOMP_USER_NOTIF_FLAG_CONTINUE). A program can change its memory and its descriptors between the
 * examination and the call. So a call is on this list only if it is harmless whatever is in memory and
 * whatever file is at the descriptor by then, and each entry says why. The warden refuses to continue a call
 * that is not on it. Data only. */
#ifndef BELFRY_WARDEN_CONTINUED_H
#define BELFRY_WARDEN_CONTINUED_H

#include <stdbool.h>
#include <stdint.h>

#include "rm/rm.h"
#include "warden/device.h"

/* What the warden knows of a call that is about to be continued. */
struct continued_call {
	int nr;		       /* of the system call */
	uint32_t cmd;	       /* SYS_ioctl */
	bool is_seen;	       /* the call has a descriptor, and the file at it could be examined */
	enum device_file kind; /* of that file */
	bool is_prepared;      /* mmap: the file at the descriptor is one that the warden has put there */
};

enum continued_when {
	CONTINUED_ALWAYS,
	CONTINUED_IF_PREPARED,	/* is_prepared */
	CONTINUED_NOT_DRIVERS,	/* an ioctl that no driver file accepts */
	CONTINUED_ALLOC_MEMORY, /* RM_ESC_ALLOC_MEMORY with its exact size */
};

/* One bit for each kind of file to which an entry applies, and one for a file that cannot be examined. */
#define CONTINUED_ON(kind) (1u << (kind))
#define CONTINUED_ON_UNSEEN (1u << 31)

struct continued_entry {
	const char *name;
	int nr;
	uint32_t files;
	enum continued_when when;
	const char *reason;
};

/* NULL: the call must not be continued. */
const struct continued_entry *continued_find(const struct rm_layout *layout,
					     const struct continued_call *call);
/* The list in order; NULL past the end. */
const struct continued_entry *continued_at(unsigned index);

#endif

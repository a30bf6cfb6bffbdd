/* continued: the calls that the kernel itself makes after the warden has looked at them (SECCOMP_USER_NOTIF_FLAG_CONTINUE).
 * A program can change its memory and its descriptors between the look and the call. So a call is on this list only if it
 * is harmless whatever is in memory and whatever file is at the descriptor by then, and each entry says why. The warden
 * refuses to continue a call that is not on it. Data only. */
#ifndef BELFRY_WARDEN_CONTINUED_H
#define BELFRY_WARDEN_CONTINUED_H

#include <stdbool.h>
#include <stdint.h>

#include "rm/rm.h"
#include "warden/device.h"

/* What the warden knows of a call that is about to be continued. */
struct continued_call {
	int nr;	      /* of the system call */
	uint32_t cmd; /* SYS_ioctl */
	bool is_seen; /* the file at the descriptor could be looked at; a call that names none has none */
	enum device_file kind; /* of that file */
	bool is_prepared; /* mmap: a file of the warden's was put at the descriptor, or was there already */
};

enum continued_when {
	CONTINUED_ALWAYS,
	CONTINUED_IF_PREPARED,	/* is_prepared */
	CONTINUED_NOT_DRIVERS,	/* an ioctl that no file of the driver's takes */
	CONTINUED_ALLOC_MEMORY, /* RM_ESC_ALLOC_MEMORY, of its exact size */
};

/* A bit for each kind of file that an entry holds for, and one for a file that cannot be looked at. */
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

/* One request and its answer. Private to the room. */
#ifndef BELFRY_SOFT_ASK_H
#define BELFRY_SOFT_ASK_H

#include <stddef.h>
#include <sys/types.h>

#include "soft/abi.h"

struct ask {
	struct soft_request request; /* magic is filled in */
	void *arg, *params;	     /* request.arg_bytes and request.params_bytes; answered in place */
	int files[SOFT_FILES_MAX];   /* that the call names; borrowed */
	unsigned file_count;
	int reply_file; /* out: the file the answer brought, the caller's to close, or -1 */
};

/* The answer's rc, or -errno: -ENODEV if the other side has ended. */
int ask(int sock, struct ask *a);
/* A connection to the listening socket in the folder; -errno. */
int ask_connect(const char *folder);

#endif

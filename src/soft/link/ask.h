/* One request and its answer. Private to the module. */
#ifndef BELFRY_SOFT_ASK_H
#define BELFRY_SOFT_ASK_H

#include <stddef.h>
#include <sys/types.h>

#include "soft/abi.h"

struct ask {
	struct soft_request request; /* ask() fills in magic */
	void *arg, *params;	     /* request.arg_bytes and params_bytes; the answer overwrites them */
	int files[SOFT_FILES_MAX];   /* the files that the call names; borrowed */
	unsigned file_count;
	int reply_file; /* out: the file in the answer, which the caller closes, or -1 */
};

/* Returns the answer's rc, or -errno: -ENODEV if the other side has ended. */
int ask(int sock, struct ask *a);
/* Connects to the listening socket in the directory. Returns the socket or -errno. */
int ask_connect(const char *folder);

#endif

/* inside: whether a client is a program of a run. Such a program may make queries, but change nothing: neither its
 * own limits nor anything else. Reads /proc; takes no lock and never waits for the client. docs/security.md has the
 * reasons. */
#ifndef BELFRY_CLIENT_INSIDE_H
#define BELFRY_CLIENT_INSIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "client/protocol.h"

/* The keeper of every run has this name (PR_SET_NAME). A process below it cannot change it. */
#define INSIDE_KEEPER "belfry-keeper"

enum inside_where {
	INSIDE_NOT,
	/* Below the keeper of a run, of this belfryd or another. */
	INSIDE_RUN,
	/* Below no keeper, but with a filter and no_new_privs, as programs of a run have: it may be left over from
	 * one. */
	INSIDE_LEFT,
	/* With a filter, and in a PID namespace below belfryd's: it may be in a container that is attached to a vGPU. */
	INSIDE_NESTED,
	/* Of an ordinary user, with a filter and without no_new_privs: it may be in a job that is attached to a vGPU. */
	INSIDE_ATTACHED,
	/* The process that connected has ended, or cannot be examined. */
	INSIDE_UNKNOWN,
};

/* Where the process is that connected `sock`. *pid: its PID. `floor`: see inside_floor(). */
enum inside_where inside_look(int sock, unsigned floor, pid_t *pid);
/* How many seccomp filters a process outside all runs may have: as many as process 1, which has some in a container;
 * with `counts_own`, as many as this process if it has more. */
unsigned inside_floor(bool counts_own);

/* Whether a request of this kind changes nothing. */
bool inside_is_query(uint32_t op);
/* Returns -EPERM or -EBUSY if the client at `sock` must not make this request. */
int inside_check(int sock, const struct protocol_request *request, unsigned floor, struct bf_error *err);

#endif

#include "client/inside.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"

enum {
	GENERATIONS_MAX = 256,
	TRIES = 3, /* ancestors may exit while they are read */
};

/* The PIDs of a process and its ancestors, nearest first; 0 after the last. */
struct line {
	pid_t pids[GENERATIONS_MAX + 1];
	bool has_keeper;
};

static int walk(pid_t pid, struct line *line)
{
	unsigned count = 0;

	*line = (struct line){ 0 };
	while (pid > 0) {
		struct bf_status status;
		int rc = count == GENERATIONS_MAX ? -ELOOP : bf_status_read(pid, &status);

		if (rc)
			return rc;
		line->has_keeper |= !strcmp(status.name, INSIDE_KEEPER);
		line->pids[count++] = pid;
		pid = status.parent;
	}
	return 0;
}

/* 1 if a keeper is among the ancestors, 0 if not, -errno if this cannot be determined. A process whose parent exits
 * gets another parent at that moment. If two walks find the same line, every PID in it was that of the actual parent. */
static int is_kept(pid_t pid)
{
	struct line line, again;
	int rc = -ESRCH;

	for (int i = 0; i < TRIES; i++) {
		rc = walk(pid, &line);
		if (!rc && line.has_keeper)
			return 1;
		if (!rc)
			rc = walk(pid, &again);
		if (!rc && !memcmp(line.pids, again.pids, sizeof(line.pids)))
			return again.has_keeper;
	}
	return rc ? rc : -EAGAIN;
}

enum inside_where inside_look(int sock, unsigned floor, pid_t *pid)
{
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);
	struct bf_status status;
	int kept = 0;

	*pid = 0;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length))
		return INSIDE_UNKNOWN;
	*pid = who.pid;
	cleanup_close int process = bf_pidfd_open_peer(sock, who.pid);
	if (process < 0 || bf_status_read(who.pid, &status) || strchr("ZX", status.state))
		return INSIDE_UNKNOWN;
	/* Every process of a run has its filter, and cannot remove it. */
	if (status.filters && status.has_no_new_privs)
		kept = is_kept(who.pid);
	/* If the process is still alive, the values are its own. */
	if (kept < 0 || bf_pidfd_has_ended(process))
		return INSIDE_UNKNOWN;
	if (kept)
		return INSIDE_RUN;
	if (status.filters <= floor)
		return INSIDE_NOT;
	/* Programs of an attached container may lack no_new_privs, but not the PID namespace of the container. */
	if (status.is_nested)
		return INSIDE_NESTED;
	if (status.has_no_new_privs)
		return INSIDE_LEFT;
	/* Only root installs a filter without no_new_privs. The program of another user that has one was started so: by
	 * Slurm, in a job that is attached to a vGPU. */
	return who.uid ? INSIDE_ATTACHED : INSIDE_NOT;
}

unsigned inside_floor(bool counts_own)
{
	struct bf_status first, own;
	unsigned floor = bf_status_read(1, &first) ? 0 : first.filters;

	if (counts_own && !bf_status_read(getpid(), &own) && own.filters > floor)
		floor = own.filters;
	return floor;
}

/* The command that makes this request, for messages; NULL: the request changes nothing. */
static const char *change_of(uint32_t op)
{
	static const char *const changes[PROTOCOL_OPS] = {
		[PROTOCOL_CREATE] = "create",
		[PROTOCOL_REMOVE] = "rm",
		[PROTOCOL_SET] = "set",
		[PROTOCOL_RUN] = "run",
		[PROTOCOL_ATTACH] = "attach",
		[PROTOCOL_HOLD] = "hold",
		[PROTOCOL_OPEN] = "open",
		[PROTOCOL_STOP] = "stop",
		[PROTOCOL_RESUME] = "resume",
		[PROTOCOL_RELOAD] = "reload",
		[PROTOCOL_POLICY_LOAD] = "policy load",
		[PROTOCOL_POLICY_UNLOAD] = "policy unload",
		[PROTOCOL_PROBE_ATTACH] = "probe attach",
		[PROTOCOL_PROBE_DETACH] = "probe detach",
	};

	switch (op) {
	case PROTOCOL_HELLO:
	case PROTOCOL_REPORT:
	case PROTOCOL_EXPLAIN:
	case PROTOCOL_TRACE:
	case PROTOCOL_POLICY_LIST:
	case PROTOCOL_POLICY_DUMP:
	case PROTOCOL_POLICY_FOLLOW:
	case PROTOCOL_PROBE_LIST:
	case PROTOCOL_PROBE_DUMP:
	case PROTOCOL_EVENTS:
	case PROTOCOL_ACCOUNT:
		return NULL;
	default:
		return op < PROTOCOL_OPS && changes[op] ? changes[op] : "this request";
	}
}

bool inside_is_query(uint32_t op)
{
	return !change_of(op);
}

int inside_check(int sock, const struct protocol_request *request, unsigned floor, struct bf_error *err)
{
	const char *change = change_of(request->op);
	pid_t pid;

	if (!change)
		return 0;
	switch (inside_look(sock, floor, &pid)) {
	case INSIDE_NOT:
		return 0;
	case INSIDE_RUN:
		if (request->op == PROTOCOL_RUN)
			return bf_fail(err, EBUSY,
				       "this program is supervised already; one belfry run is enough");
		return bf_fail(err, EPERM,
			       "%s: refused inside a run: its programs may ask and change nothing; do it "
			       "outside",
			       change);
	case INSIDE_LEFT:
		if (request->op == PROTOCOL_RUN) /* the new run has limits of its own */
			return 0;
		/* fall through */
	case INSIDE_NESTED:
	case INSIDE_ATTACHED:
		return bf_fail(
			err, EPERM,
			"%s: process %d has a seccomp filter, as programs of a run have, and cannot be told from one; "
			"do it in a process without a filter",
			change, pid);
	default:
		return bf_fail(
			err, EPERM,
			"%s: cannot tell whether process %d is inside a run: it has ended, or cannot be "
			"looked at; ask on a connection of your own",
			change, pid);
	}
}

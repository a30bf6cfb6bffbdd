/* The client's side of the protocol: find belfryd, and send requests to it. */
#ifndef BELFRY_CLIENT_TALK_H
#define BELFRY_CLIENT_TALK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "client/protocol.h"

/* Where belfryd is: BELFRY_SOCKET if it is set; else belfryd.sock in BELFRY_RUNTIME_DIR if that is set; else the
 * system's, /run/belfry/belfryd.sock, if it answers; else the private one in the user's runtime folder. */
struct talk_place {
	char path[108];
	bool is_private; /* if it does not run, one may be started */
	bool is_barred;	 /* the system's belfryd runs, but does not admit this user */
	uid_t barred_by; /* the user of that belfryd */
};
/* barred.c: whether connect() has failed with `rc` because the belfryd at `path` does not admit this user. *by: the user
 * of that belfryd. */
bool talk_is_barred(const char *path, int rc, uid_t *by);
/* What its administrator can do; follows "of user UID". */
#define TALK_BARRED \
	"does not admit this user; set access = group NAME or access = everyone in its belfryd.conf(5)"
int talk_find(struct talk_place *place, struct bf_error *err);
/* Start a private belfryd there if none answers; it exits when it has nothing to do. `daemon` is the path of belfryd.
 * Several processes may do this at the same time. */
int talk_start(const struct talk_place *place, const char *daemon, struct bf_error *err);
/* A connected socket, or -errno. Refuses a belfryd that is neither root's nor the user's own. -ENOENT and
 * -ECONNREFUSED: no belfryd is there. */
int talk_connect(const struct talk_place *place, struct bf_error *err);
bool talk_is_absent(int rc); /* whether rc is -ENOENT or -ECONNREFUSED */

/* One request and its reply. An error that belfryd reports is returned. `body`, if not NULL: the body of the reply as
 * text, to be freed; NULL if it has none. */
int talk_ask(int sock, const struct protocol_request *request, struct protocol_reply *reply, char **body,
	     struct bf_error *err);
/* After a granted PROTOCOL_POLICY_LOAD. The body of a refusal is the verifier's log. */
int talk_give_policy(int sock, const struct protocol_policy *policy, int file, struct protocol_reply *reply,
		     char **body, struct bf_error *err);
/* After a granted PROTOCOL_PROBE_ATTACH, likewise. */
int talk_give_probe(int sock, const struct protocol_probe *probe, int file, struct protocol_reply *reply,
		    char **body, struct bf_error *err);
/* After a granted PROTOCOL_ATTACH. The listener stays the caller's, who closes it. */
int talk_give_listener(int sock, const struct protocol_attached *attached, int listener,
		       struct protocol_reply *reply, struct bf_error *err);

/* Which belfryd to ask, and the time limit of a request and its reply. Zeroed fields take their defaults. */
struct talk_way {
	const char *socket; /* NULL: as talk_find() does */
	unsigned limit_ms;  /* 0: 20 s */
};
int talk_find_way(const struct talk_way *way, struct talk_place *place, struct bf_error *err);
/* Send one request on a new connection and receive the reply. -ECONNREFUSED: no belfryd runs there. -ETIMEDOUT: no reply
 * arrived in time; belfryd may still carry the request out. */
int talk_by(const struct talk_way *way, const struct protocol_request *request, struct protocol_reply *reply,
	    char **body, struct bf_error *err);
/* -ENOENT: no private belfryd runs, so the vGPU does not exist. */
int talk_fail_unknown(const struct talk_place *place, const char *name, struct bf_error *err);
/* talk_by() with the defaults. */
int talk_once(const struct protocol_request *request, struct protocol_reply *reply, char **body,
	      struct bf_error *err);
struct protocol_request talk_request(enum protocol_op op, const char *name);

#endif

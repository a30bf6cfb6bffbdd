/* The client's side of the protocol: find belfryd, ask it. */
#ifndef BELFRY_CLIENT_TALK_H
#define BELFRY_CLIENT_TALK_H

#include <stdbool.h>
#include <stddef.h>

#include "client/protocol.h"

/* Where belfryd is to be found: BELFRY_SOCKET if it is set; else belfryd.sock in BELFRY_RUNTIME_DIR if that is set; else
 * the system's, /run/belfry/belfryd.sock, if somebody answers there; else the user's own, in his runtime folder. */
struct talk_place {
	char path[108];
	bool is_private; /* if nobody is there one may be started */
};
int talk_find(struct talk_place *place, struct bf_error *err);
/* Start a private belfryd there if nobody answers; it ends by itself when it has nothing to do. `daemon` is the path of
 * belfryd. Safe against others who do the same at the same time. */
int talk_start(const struct talk_place *place, const char *daemon, struct bf_error *err);
/* Connected, or -errno with a reason. Refuses a belfryd that is neither root's nor the user's own. -ENOENT and
 * -ECONNREFUSED: nobody is there. */
int talk_connect(const struct talk_place *place, struct bf_error *err);
bool talk_is_absent(int rc); /* whether rc is -ENOENT or -ECONNREFUSED */

/* One request and its reply. An error the daemon reports is returned as one. `body`, if not NULL: the reply's body as
 * text, to be freed; NULL if it has none. */
int talk_ask(int sock, const struct protocol_request *request, struct protocol_reply *reply, char **body,
	     struct bf_error *err);
/* After a PROTOCOL_POLICY_LOAD that was granted. The body of a refusal is what the verifier said. */
int talk_give_policy(int sock, const struct protocol_policy *policy, int file, struct protocol_reply *reply,
		     char **body, struct bf_error *err);

/* Which belfryd to ask, and the time limit of a request and its reply. Zeroed fields take their defaults. */
struct talk_way {
	const char *socket; /* NULL: where talk_find() finds it */
	unsigned limit_ms;  /* 0: 20 s */
};
int talk_find_way(const struct talk_way *way, struct talk_place *place, struct bf_error *err);
/* Send one request on a new connection and receive the reply. -ECONNREFUSED: no belfryd runs there. -ETIMEDOUT: no reply
 * arrived in time; belfryd may still carry the request out. */
int talk_by(const struct talk_way *way, const struct protocol_request *request, struct protocol_reply *reply,
	    char **body, struct bf_error *err);
/* talk_by() with the defaults. */
int talk_once(const struct protocol_request *request, struct protocol_reply *reply, char **body,
	      struct bf_error *err);
struct protocol_request talk_request(enum protocol_op op, const char *name);

#endif

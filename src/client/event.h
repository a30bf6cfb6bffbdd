/* event: what happened, on which GPU and vGPU, and which user owns the vGPU. Created by belfryd and by its GPU
 * servers, shown by `belfry events`, and passed to the command of the configuration. Pure. */
#ifndef BELFRY_CLIENT_EVENT_H
#define BELFRY_CLIENT_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/spec.h"

enum event_kind {
	EVENT_VGPU_CREATED,
	EVENT_VGPU_CHANGED,
	EVENT_VGPU_REMOVED,
	EVENT_RUN_STARTED,
	EVENT_RUN_ENDED,
	EVENT_MEMORY_REFUSED,
	EVENT_TIME_LIMITED,
	EVENT_FAULT,
	EVENT_MPS_ENDED,
	EVENT_POLICY_LOADED,
	EVENT_POLICY_UNLOADED,
	EVENT_SERVER_STARTED,
	EVENT_SERVER_ADOPTED,
	EVENT_SERVER_DIED,
	EVENT_SERVER_FAILED,
	EVENT_CONFIG_RELOADED,
	EVENT_CONFIG_REFUSED,
	EVENT_KINDS,
};

enum event_flag {
	EVENT_HAS_OWNER = 1,  /* the event concerns a vGPU of `owner` */
	EVENT_HAS_STATUS = 2, /* of a run that has ended: `status` is set, as of waitpid(2) */
};

/* Sent over sockets: fixed sizes, no pointers. */
struct event {
	uint32_t kind;
	uint32_t flags;
	uint32_t lost;	 /* events of the same GPU server that were dropped before this one */
	uint32_t owner;	 /* a user ID */
	int32_t pid;	 /* of the program; 0: none */
	int32_t status;	 /* see EVENT_HAS_STATUS */
	uint64_t at_ns;	 /* CLOCK_REALTIME */
	uint64_t number; /* assigned by belfryd, from 1 */
	char gpu[24];	 /* "0", "soft:0"; empty: none */
	char vgpu[SPEC_NAME_MAX + 1];
	char subject[64]; /* the program or the policy */
	char kind_of[16]; /* of an attached run: "container", "pod" or "job"; else empty */
	char id[128];	  /* its ID */
	char text[256];	  /* one line for the operator */
};

/* The name of a kind, such as "run_ended". */
const char *event_name(uint32_t kind);
/* The kind of that name, or -1. */
int event_find(const char *name);

struct event event_make(enum event_kind kind);
/* Set the text, as printf does. */
void event_say(struct event *event, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Check an event that came over a socket: terminate its texts and make them printable. False: its kind is not known. */
bool event_check(struct event *event);

/* Whether a user may see it. About a vGPU: its owner and root, as with `belfry explain`. About the configuration:
 * root and `daemon`, the user of belfryd. About a GPU: every user. */
bool event_is_for(const struct event *event, uid_t uid, uid_t daemon);

/* "2026-11-16T15:03:12.123456Z". room: at least 32 bytes. */
const char *event_time(const struct event *event, char *to, size_t room);
/* One line of JSON without the newline, to be freed. NULL: out of memory. */
char *event_json(const struct event *event, size_t *bytes);

#endif

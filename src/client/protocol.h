/* The protocol of belfryd: whole messages over SOCK_SEQPACKET, one request, one reply. The body of a reply, if any,
 * is a sealed memory file that is sent along (SCM_RIGHTS), so no server waits for a slow reader. docs/protocol.md
 * lists which user may make which request. */
#ifndef BELFRY_CLIENT_PROTOCOL_H
#define BELFRY_CLIENT_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/spec.h"

#define PROTOCOL_MAGIC 0xbe1f7a11u
#define PROTOCOL_VERSION 6u

enum protocol_op {
	PROTOCOL_HELLO = 1, /* body: the daemon and its GPUs */
	PROTOCOL_CREATE,    /* name, spec, parts, gpu */
	PROTOCOL_REMOVE,    /* name; PROTOCOL_FORCE: end the programs on it */
	PROTOCOL_SET,	    /* name, spec, parts */
	PROTOCOL_RUN, /* name; with PROTOCOL_EPHEMERAL also spec, parts, gpu. The connection stays: see below */
	PROTOCOL_REPORT,  /* body: the vGPUs of one GPU (gpu), or one of them (name) */
	PROTOCOL_EXPLAIN, /* name; body: why it waits */
	PROTOCOL_TRACE,	  /* gpu; body: recent events, for Perfetto */
	PROTOCOL_HOLD,	  /* name, for_us */
	PROTOCOL_OPEN,
	PROTOCOL_STOP,
	PROTOCOL_RESUME,
	PROTOCOL_RELOAD, /* read the configuration again */
	/* The policy of a vGPU (name), or of a GPU (gpu). */
	PROTOCOL_POLICY_LOAD,	/* the object comes with the next message: see below */
	PROTOCOL_POLICY_UNLOAD, /* body: which policy it was, and which one decides now */
	PROTOCOL_POLICY_LIST,	/* body: all policies of a GPU, or those that are called for a vGPU */
	PROTOCOL_POLICY_DUMP,	/* body: the text of its dump hook */
	PROTOCOL_POLICY_FOLLOW, /* decisions as they are made: see below */
	PROTOCOL_EVENTS,	/* events as they happen: see below */
	PROTOCOL_ACCOUNT,	/* body: the use of removed vGPUs, and the numbers of events */
	PROTOCOL_STATUS,	/* not used */
	PROTOCOL_OPS,
};

enum protocol_flag {
	PROTOCOL_FORCE = 1,
	PROTOCOL_EPHEMERAL = 2, /* the vGPU is created for this run, and removed with it */
	PROTOCOL_ANY_DRIVER = 4,
	PROTOCOL_ALL = 8,    /* PROTOCOL_POLICY_FOLLOW: also decisions of the built-in policy */
	PROTOCOL_OWNER = 32, /* PROTOCOL_CREATE, root only: for the user `owner` */
	PROTOCOL_WORK = 16,  /* PROTOCOL_POLICY_FOLLOW: also records of the work */
};

enum protocol_gpu_kind { PROTOCOL_GPU_ANY = 0, PROTOCOL_GPU_NV, PROTOCOL_GPU_SOFT };

struct protocol_gpu {
	uint32_t kind, index;
	char folder[108]; /* of the software GPU that it belongs to */
};

/* As users write it: "0", "soft:0". */
static inline const char *protocol_gpu_name(const struct protocol_gpu *gpu, char *to, size_t room)
{
	snprintf(to, room, gpu->kind == PROTOCOL_GPU_SOFT ? "soft:%u" : "%u", gpu->index);
	return to;
}

struct protocol_request {
	uint32_t magic, version, op, flags;
	uint32_t parts;	 /* enum spec_part: the parts of spec that are set */
	uint32_t owner;	 /* PROTOCOL_CREATE with PROTOCOL_OWNER: the owner of the vGPU */
	uint64_t for_us; /* PROTOCOL_HOLD: open the gate after this time; 0: never. PROTOCOL_EVENTS: below */
	char name[SPEC_NAME_MAX + 1];
	struct protocol_gpu gpu;
	struct spec spec;
};

struct protocol_reply {
	uint32_t magic, version;
	int32_t code; /* 0, or a positive errno and a text */
	uint32_t server_pid;
	uint64_t took_ns;	 /* to carry out the request, without the transport */
	struct protocol_gpu gpu; /* PROTOCOL_CREATE and PROTOCOL_RUN: where the vGPU is */
	char name[SPEC_NAME_MAX + 1];
	char text[512];
};

/* A run. After the reply to PROTOCOL_RUN the client starts the program's process, which installs the filter and
 * waits. The client then sends this message with the filter's listener, and receives a reply once the program may
 * start. From then on the connection is the run: when one side closes it, the other ends the program. The server
 * closes it when everything of the run is released, including its vGPU with PROTOCOL_EPHEMERAL. */
struct protocol_started {
	uint32_t magic, version;
	int32_t front_pid, keeper_pid, program_pid;
	uint32_t wants_steward; /* the server cannot access the program itself: Yama */
	char program[64];	/* for display */
};

/* Before it closes the connection of a run, the client may send how the program ended: a status of waitpid(2). */
struct protocol_ended {
	uint32_t magic, version;
	int32_t status;
};

/* The server may send these at any time during a run. */
enum protocol_notice_kind {
	PROTOCOL_NOTICE_END = 1,     /* end the program; text: the reason */
	PROTOCOL_NOTICE_GET_FD,	     /* steward: duplicate descriptor `number` of process `pid` */
	PROTOCOL_NOTICE_OPEN_MEMORY, /* steward: open /proc/PID/mem for reading and writing */
};
struct protocol_notice {
	uint32_t magic, kind;
	int32_t pid, number;
	char text[256];
};
/* The steward's answer, with the descriptor if rc is 0. */
struct protocol_stewarded {
	uint32_t magic;
	int32_t rc; /* 0 or -errno */
};

/* A policy. After the reply to PROTOCOL_POLICY_LOAD the client sends this message with the object: a regular file or
 * a memory file of at most PROTOCOL_POLICY_BYTES. The reply says whether the policy is loaded. If the verifier
 * refused it, the body is the verifier's log. */
#define PROTOCOL_POLICY_BYTES (16u << 20)
struct protocol_policy {
	uint32_t magic, version;
	char file[128];	 /* the origin of the object, for display */
	char sets[3072]; /* NAME=VALUE, one per line */
};

/* PROTOCOL_EVENTS: of a vGPU (name), a GPU (gpu), or all. for_us: also the events of this last period, which are the
 * body of the reply, one line of JSON each. After the reply belfryd sends each event as one message, a line of JSON
 * (src/client/event.h), until the client closes the connection. A client that does not keep up receives {"event":
 * "dropped", "count": N}. */
#define PROTOCOL_EVENT_BYTES 4096u

/* After the reply to PROTOCOL_POLICY_FOLLOW the server sends a struct record_entry (src/replay/record.h) for each
 * decision, until the client closes the connection. If a client does not keep up, its next entry has the number of
 * entries that it missed. */

#endif

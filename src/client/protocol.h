/* What is said to belfryd, and by it: whole messages over SOCK_SEQPACKET, one request, one reply. A reply's body, where
 * it has one, is a sealed memory file that comes along (SCM_RIGHTS): nobody waits for a slow reader.
 * docs/protocol.md says who may ask what. */
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
	PROTOCOL_REMOVE,    /* name; PROTOCOL_FORCE: end what runs on it */
	PROTOCOL_SET,	    /* name, spec, parts */
	PROTOCOL_RUN, /* name; with PROTOCOL_EPHEMERAL also spec, parts, gpu. The connection stays: see below */
	PROTOCOL_REPORT,  /* body: the vGPUs of one GPU (gpu), or one of them (name) */
	PROTOCOL_EXPLAIN, /* name; body: why it waits */
	PROTOCOL_TRACE,	  /* gpu; body: what happened lately, for Perfetto */
	PROTOCOL_HOLD,	  /* name, for_us */
	PROTOCOL_OPEN,
	PROTOCOL_STOP,
	PROTOCOL_RESUME,
	PROTOCOL_RELOAD, /* read the configuration again */
	/* The policy of a vGPU (name), or of a GPU (gpu). */
	PROTOCOL_POLICY_LOAD,	/* the object comes with the next message: see below */
	PROTOCOL_POLICY_UNLOAD, /* body: which it was, and who decides from now on */
	PROTOCOL_POLICY_LIST,	/* body: all of a GPU, or those that are asked about a vGPU */
	PROTOCOL_POLICY_DUMP,	/* body: what it says of itself */
	PROTOCOL_POLICY_FOLLOW, /* decisions as they are made: see below */
	PROTOCOL_EVENTS,	/* events as they happen: see below */
	PROTOCOL_ACCOUNT,	/* body: what vGPUs that are gone have used, and how many events there were */
	PROTOCOL_STATUS,	/* internal: daemon to GPU server */
	PROTOCOL_OPS,
};

enum protocol_flag {
	PROTOCOL_FORCE = 1,
	PROTOCOL_EPHEMERAL = 2, /* the vGPU is made for this run, and ends with it */
	PROTOCOL_ANY_DRIVER = 4,
	PROTOCOL_ALL = 8,    /* PROTOCOL_POLICY_FOLLOW: also what the built-in policy decides */
	PROTOCOL_OWNER = 32, /* PROTOCOL_CREATE, by root: for the user `owner` */
	PROTOCOL_WORK = 16,  /* PROTOCOL_POLICY_FOLLOW: also the work that is decided about */
};

enum protocol_gpu_kind { PROTOCOL_GPU_ANY = 0, PROTOCOL_GPU_NV, PROTOCOL_GPU_SOFT };

/* Which GPU. */
struct protocol_gpu {
	uint32_t kind, index;
	char folder[108]; /* of the software GPU it is one of */
};

/* As people give it: "0", "soft:0". */
static inline const char *protocol_gpu_name(const struct protocol_gpu *gpu, char *to, size_t room)
{
	snprintf(to, room, gpu->kind == PROTOCOL_GPU_SOFT ? "soft:%u" : "%u", gpu->index);
	return to;
}

struct protocol_request {
	uint32_t magic, version, op, flags;
	uint32_t parts;	 /* enum spec_part: what of the spec was said */
	uint32_t owner;	 /* PROTOCOL_CREATE with PROTOCOL_OWNER: whose it is to be */
	uint64_t for_us; /* PROTOCOL_HOLD: open again after this long; 0: not by itself */
	char name[SPEC_NAME_MAX + 1];
	struct protocol_gpu gpu;
	struct spec spec;
};

struct protocol_reply {
	uint32_t magic, version;
	int32_t code; /* 0, or a positive errno and a text */
	uint32_t server_pid;
	uint64_t took_ns;	 /* what was asked, without the talking */
	struct protocol_gpu gpu; /* PROTOCOL_CREATE and RUN: where it is */
	char name[SPEC_NAME_MAX + 1];
	char text[512];
};

/* A run. After the reply to PROTOCOL_RUN the client starts the program's process, which installs the filter and waits;
 * then it sends this, with the filter's listener, and gets a reply once the program may go. From then on the
 * connection is the run: when either side closes it, the other ends the program. The server closes it when what was the run's
 * is gone, and its vGPU with PROTOCOL_EPHEMERAL. */
struct protocol_started {
	uint32_t magic, version;
	int32_t front_pid, keeper_pid, program_pid;
	uint32_t wants_steward; /* the server cannot reach the program itself: Yama */
	char program[64];	/* for people */
};

/* The client may say, before it closes the connection of a run, how the program has ended: a status of waitpid(2). */
struct protocol_ended {
	uint32_t magic, version;
	int32_t status;
};

/* The server may say, at any time of a run: */
enum protocol_notice_kind {
	PROTOCOL_NOTICE_END = 1,     /* the program is to be ended, for the reason in text */
	PROTOCOL_NOTICE_GET_FD,	     /* steward: a copy of descriptor `number` of process `pid` */
	PROTOCOL_NOTICE_OPEN_MEMORY, /* steward: /proc/PID/mem, open for reading and writing */
};
struct protocol_notice {
	uint32_t magic, kind;
	int32_t pid, number;
	char text[256];
};
/* A steward's answer; the file comes along if rc is 0. */
struct protocol_stewarded {
	uint32_t magic;
	int32_t rc; /* 0 or -errno */
};

/* A policy. After the reply to PROTOCOL_POLICY_LOAD the client sends this, with the object: a plain file or memory file of
 * at most PROTOCOL_POLICY_BYTES. The reply to it says whether it was loaded; if the verifier refused it its log is the body. */
#define PROTOCOL_POLICY_BYTES (16u << 20)
struct protocol_policy {
	uint32_t magic, version;
	char file[128];	 /* where it came from, for people */
	char sets[3072]; /* NAME=VALUE, a line each */
};

/* PROTOCOL_EVENTS: of a vGPU (name), a GPU (gpu), or all. for_us: also those of so long ago; they are the body of the reply, a
 * line of JSON each. After the reply belfryd sends a line of JSON (src/client/event.h) a message, until the client closes the
 * connection. A client that does not keep up is told {"event": "dropped", "count": N}. */
#define PROTOCOL_EVENT_BYTES 4096u

/* After the reply to PROTOCOL_POLICY_FOLLOW the server sends a struct record_entry (src/replay/record.h) for each decision,
 * until the client closes the connection. A client that does not keep up is told how many it has missed. */

#endif

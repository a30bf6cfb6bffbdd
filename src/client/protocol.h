/* The protocol of belfryd: whole messages over SOCK_SEQPACKET, one request, one reply. The body of a reply, if any,
 * is a sealed memory file that is sent along (SCM_RIGHTS), so no server waits for a slow reader. docs/protocol.md
 * lists which user may make which request. */
#ifndef BELFRY_CLIENT_PROTOCOL_H
#define BELFRY_CLIENT_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/spec.h"

#define PROTOCOL_MAGIC 0xbe1f7a11u
#define PROTOCOL_VERSION 9u

enum protocol_op {
	PROTOCOL_HELLO = 1, /* body: the daemon and its GPUs; name: and its section in the configuration */
	PROTOCOL_CREATE,    /* name, spec, parts, gpu; PROTOCOL_EPHEMERAL: removed with its last run */
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
	PROTOCOL_ATTACH,	/* as PROTOCOL_RUN, for programs that Belfry did not start: see below */
	/* The probes of a vGPU (name). for_us: the number of the probe; 0: all. */
	PROTOCOL_PROBE_ATTACH, /* the object comes with the next message: see below */
	PROTOCOL_PROBE_DETACH, /* body: which probes they were */
	PROTOCOL_PROBE_LIST,   /* body: the probes, the processes, and the kernels that carry them */
	PROTOCOL_PROBE_DUMP,   /* body: what the probes have counted, by process */
	PROTOCOL_OPS,
};

static inline bool protocol_is_run(uint32_t op)
{
	return op == PROTOCOL_RUN || op == PROTOCOL_ATTACH;
}

enum protocol_flag {
	PROTOCOL_FORCE = 1,
	PROTOCOL_EPHEMERAL = 2, /* the vGPU is created for runs, and removed with the last of them */
	PROTOCOL_ANY_DRIVER = 4,
	PROTOCOL_ALL = 8,   /* PROTOCOL_POLICY_FOLLOW: also decisions of the built-in policy */
	PROTOCOL_WORK = 16, /* PROTOCOL_POLICY_FOLLOW: also records of the work */
	/* Root only. PROTOCOL_CREATE: for the user `owner`; PROTOCOL_ATTACH: programs of that user. */
	PROTOCOL_OWNER = 32,
	/* PROTOCOL_RUN: the program loads modules through the library that can insert probes. */
	PROTOCOL_PROBES = 64,
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
	uint32_t parts; /* enum spec_part: the parts of spec that are set */
	uint32_t
		owner; /* with PROTOCOL_OWNER: the owner of the vGPU, or the user of the programs to attach */
	uint64_t for_us; /* PROTOCOL_HOLD: open the gate after this time; 0: never. PROTOCOL_EVENTS: below */
	char name[SPEC_NAME_MAX + 1];
	struct protocol_gpu gpu;
	struct spec spec;
};

enum protocol_reply_flag {
	PROTOCOL_NOW_SHARED = 1, /* CREATE, RUN, SET: the domain that `text` names has become a shared one */
};

struct protocol_reply {
	uint32_t magic, version;
	int32_t code; /* 0, or a positive errno and a text */
	uint32_t server_pid;
	uint32_t flags;		 /* enum protocol_reply_flag */
	uint64_t took_ns;	 /* to carry out the request, without the transport */
	struct protocol_gpu gpu; /* PROTOCOL_CREATE and PROTOCOL_RUN: where the vGPU is */
	char name[SPEC_NAME_MAX + 1];
	char text[512];
	char mps_folder
		[108]; /* PROTOCOL_RUN in a shared domain: CUDA_MPS_PIPE_DIRECTORY; its logs are in log/ */
	char probe_socket[108]; /* PROTOCOL_RUN: where the library of the program connects for probes */
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

/* An attached run: a container, a pod or a job whose processes belfry has not started. After the reply to PROTOCOL_ATTACH
 * the client sends this message with the listener of the processes' filter. The reply says whether the run has begun;
 * then the server closes the connection. The run ends when the last process with the filter has ended. */
#define PROTOCOL_ID_MAX 127
#define PROTOCOL_POD_MAX 253 /* limits of Kubernetes */
#define PROTOCOL_SPACE_MAX 63
enum protocol_attached_kind { PROTOCOL_CONTAINER = 1, PROTOCOL_POD, PROTOCOL_JOB, PROTOCOL_ATTACHED_KINDS };
struct protocol_attached {
	uint32_t magic, version;
	uint32_t kind; /* enum protocol_attached_kind */
	int32_t pid;   /* the first process, such as the init of a container; 0: not known */
	char id[PROTOCOL_ID_MAX + 1];
	char name[64];			    /* for display, of the container or the job; empty: the ID */
	char pod[PROTOCOL_POD_MAX + 1];	    /* PROTOCOL_POD: the pod of the container, and its namespace */
	char space[PROTOCOL_SPACE_MAX + 1]; /* for display */
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

/* A probe. After the reply to PROTOCOL_PROBE_ATTACH the client sends this message with the object, as for a policy. The
 * reply says whether the probe is attached. If the verifier refused it, the body is the verifier's log. */
#define PROTOCOL_PROBE_BYTES (1u << 20)
struct protocol_probe {
	uint32_t magic, version;
	int32_t pid;	 /* only this process; 0: all of the vGPU */
	uint32_t sample; /* one of so many memory accesses; 0: the default */
	char file[128];	 /* the origin of the object, for display */
	char name[64];
	char kernel[128]; /* a pattern of kernel names; empty: all kernels */
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

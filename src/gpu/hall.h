/* Messages between belfryd and its GPU servers, over SOCK_SEQPACKET. belfryd accepts clients on its socket, knows
 * which vGPU is on which GPU, and hands each connection to the GPU server that it concerns. GPU servers are separate
 * processes, so that they and their programs can outlive belfryd. */
#ifndef BELFRY_GPU_HALL_H
#define BELFRY_GPU_HALL_H

#include "client/event.h"
#include "client/protocol.h"
#include "gpu/settings.h"

#define HALL_MAGIC 0xbe1fba11u
#define HALL_CLIENTS 1u /* the request was a client's, and the client is answered */
#define HALL_PRIVATE 2u /* belfryd is private */
#define HALL_OWN 4u	/* HALL_REQUEST: the client is a process of belfryd itself */

enum hall_kind {
	/* belfryd to a GPU server */
	HALL_START = 1, /* the first message to a new server: its GPU and settings */
	HALL_SETTINGS,	/* changed settings, also for a server that was found running */
	/* A client's request, with its connection (SCM_RIGHTS), which the GPU server answers and keeps. Without a connection:
	 * a request of belfryd's own (vGPUs of the configuration), answered by HALL_DONE or HALL_REFUSED. */
	HALL_REQUEST,
	HALL_END,   /* end all runs, and exit */
	HALL_SAVED, /* the answer to HALL_SAVE: the same ticket; flags: 0, or the errno of the text */
	/* a GPU server to belfryd */
	HALL_READY,  /* the GPU is open; sent again to each belfryd that connects later, with all vGPUs */
	HALL_FAILED, /* the GPU cannot be opened: text; the server exits */
	HALL_VGPU,   /* a vGPU is new or has changed */
	HALL_GONE,   /* name: the vGPU is removed */
	/* request: its name, op and flags; text: why it was refused. For belfryd's own requests, and for CREATE, RUN and SET of
	 * clients (flags: HALL_CLIENTS). */
	HALL_REFUSED,
	HALL_USE,  /* gpu: its values have changed */
	HALL_DONE, /* request, flags: likewise; belfryd's own request, or SET of a client, is done */
	HALL_SAVE, /* ticket: a client waits until belfryd has saved the changes before it */
	HALL_EVENT,
};

struct hall_gpu {
	struct protocol_gpu gpu;
	uint64_t mem_bytes, mem_reserved_bytes;
	uint32_t request_ppm, vgpus, runs;
	int32_t server_pid;
	char driver[32];
};

/* What a vGPU has used since it was created. */
struct hall_account {
	uint64_t made_s; /* CLOCK_REALTIME */
	uint64_t gpu_ns, waited_ns, mem_most_bytes, mem_promised_bytes, runs;
};

struct hall_message {
	uint32_t magic, version; /* PROTOCOL_VERSION */
	uint32_t kind;
	uint32_t uid, gid; /* HALL_REQUEST: of the client; HALL_VGPU and HALL_GONE: of the owner */
	int32_t pid;
	/* HALL_VGPU: PROTOCOL_EPHEMERAL; HALL_START: PROTOCOL_ANY_DRIVER, HALL_PRIVATE, log level << 8;
	 * HALL_REFUSED and HALL_DONE: HALL_CLIENTS; HALL_SAVED: an errno; HALL_REQUEST: HALL_OWN */
	uint32_t flags;
	uint32_t ticket; /* HALL_SAVE, HALL_SAVED */
	struct settings settings;
	struct hall_gpu gpu;
	struct hall_account account;	 /* HALL_GONE */
	struct protocol_request request; /* HALL_REQUEST; HALL_VGPU: name, spec, gpu */
	struct event event;		 /* HALL_EVENT */
	char socket[108];		 /* HALL_START: where the next belfryd connects */
	char text[512];
};

/* The GPU server: serves until HALL_END, or as its settings say if belfryd dies. Returns the exit status. */
int gpu_server_main(int hall_fd);

#endif

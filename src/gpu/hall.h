/* What belfryd and its GPU servers say to each other: whole messages over SOCK_SEQPACKET. belfryd answers clients at its
 * socket, knows which vGPU is on which GPU, and hands each connection to the GPU server it is about; GPU servers are
 * processes of their own, so that they and their programs can outlive it. */
#ifndef BELFRY_GPU_HALL_H
#define BELFRY_GPU_HALL_H

#include "client/event.h"
#include "client/protocol.h"
#include "gpu/settings.h"

#define HALL_MAGIC 0xbe1fba11u
#define HALL_CLIENTS 1u /* it was a client's request, and he was told */
#define HALL_PRIVATE 2u /* belfryd is private */

enum hall_kind {
	/* belfryd to a GPU server */
	HALL_START = 1, /* first, to one that is new: its GPU and settings */
	HALL_SETTINGS,	/* changed, or: to one that was found running */
	HALL_REQUEST, /* a client's request, with its connection (SCM_RIGHTS), which the GPU server answers and
			 * keeps; without a connection: belfryd's own (vGPUs of the configuration), answered by
			 * HALL_VGPU or HALL_REFUSED */
	HALL_END,     /* end what runs, and exit */
	HALL_SAVED,   /* the answer to HALL_SAVE: the same ticket; flags: 0, or the errno of the text */
	/* a GPU server to belfryd */
	HALL_READY,   /* it has its GPU; again to every belfryd that finds it running, vGPUs after it */
	HALL_FAILED,  /* it could not: text; it exits */
	HALL_VGPU,    /* a vGPU is there or has changed */
	HALL_GONE,    /* name: it is there no more */
	HALL_REFUSED, /* name, text: a request of belfryd's own was refused */
	HALL_USE,     /* gpu: what is set aside has changed */
	HALL_DONE,    /* name: a request of belfryd's own was carried out */
	HALL_SAVE,    /* ticket: a client waits until what was told before is remembered */
	HALL_EVENT,   /* event */
};

struct hall_gpu {
	struct protocol_gpu gpu;
	uint64_t mem_bytes, mem_reserved_bytes;
	uint32_t request_ppm, vgpus, runs;
	int32_t server_pid;
	char driver[32];
};

/* What a vGPU has used since it was made. */
struct hall_account {
	uint64_t made_s; /* CLOCK_REALTIME */
	uint64_t gpu_ns, waited_ns, mem_most_bytes, mem_promised_bytes, runs;
};

struct hall_message {
	uint32_t magic, version; /* PROTOCOL_VERSION */
	uint32_t kind;
	uint32_t uid, gid; /* HALL_REQUEST: whose it is; HALL_VGPU and HALL_GONE: the owner's */
	int32_t pid;
	/* HALL_VGPU: PROTOCOL_EPHEMERAL; HALL_START: PROTOCOL_ANY_DRIVER, HALL_PRIVATE, log level << 8; HALL_REFUSED: HALL_CLIENTS */
	uint32_t flags;
	uint32_t ticket; /* HALL_SAVE, HALL_SAVED */
	struct settings settings;
	struct hall_gpu gpu;
	struct hall_account account;	 /* HALL_GONE */
	struct protocol_request request; /* HALL_REQUEST; HALL_VGPU: name, spec, gpu */
	struct event event;		 /* HALL_EVENT */
	char socket[108];		 /* HALL_START: where the next belfryd is to find it */
	char text[512];
};

/* The GPU server: serves until HALL_END, or, when belfryd has died, as its settings say. Returns the exit status. */
int gpu_server_main(int hall_fd);

#endif

/* The MPS server of a shared domain, as the GPU server sees it: a keeper process, which is `belfryd --mps-keeper`. The keeper
 * starts the control program of MPS as the owner of the domain and under the warden's filter, says when it is ready, and
 * ends it with everything that it has started: when it is told to, and when the GPU server dies. The GPU server itself
 * never waits. */
#ifndef BELFRY_GPU_MPS_H
#define BELFRY_GPU_MPS_H

#include <stdint.h>

/* For the longest name that MPS makes in the folder, "/control_privileged", there must be room in a socket's address. */
enum { MPS_FOLDER_BYTES = 88 };

/* From the GPU server, the first message: what to start. */
struct mps_start {
	uint32_t uid, gid;
	char control[256];	       /* the program, an absolute path */
	char folder[MPS_FOLDER_BYTES]; /* of its sockets; its logs are in log/ */
	char devices[48];	       /* CUDA_VISIBLE_DEVICES */
};

enum mps_order {
	MPS_GO = 1, /* the program is supervised and may start */
	MPS_QUIT,   /* end it */
};

enum mps_news_kind {
	MPS_SUPERVISED = 1, /* with the listener of its filter; pid: of the control program */
	MPS_READY,	    /* programs may connect */
	MPS_FAILED,	    /* it cannot be started: text */
	MPS_ENDED,	    /* text: how */
};

/* From the keeper. */
struct mps_news {
	uint32_t kind;
	int32_t pid;
	char text[256];
};

/* The keeper: serves until the program has ended. Returns the exit status. */
int mps_keeper_main(int sock);

#endif

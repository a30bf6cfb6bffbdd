/* What belfry and belfryd say to each other: whole, over SOCK_SEQPACKET, one request, one reply. */
#ifndef BELFRY_SERVER_PROTOCOL_H
#define BELFRY_SERVER_PROTOCOL_H

#include <stdint.h>

#include "warden/warden.h"

#define PROTOCOL_MAGIC 0xbe1f7a11u
#define PROTOCOL_VERSION 2u

enum protocol_op {
	PROTOCOL_REPORT = 1,
	PROTOCOL_HOLD,
	PROTOCOL_OPEN,
	PROTOCOL_STOP,
	PROTOCOL_RESUME,
	PROTOCOL_SET,
};

enum protocol_set { PROTOCOL_SET_MEM = 1, PROTOCOL_SET_TIMESLICE = 2, PROTOCOL_SET_INTERLEAVE = 4 };

struct protocol_request {
	uint32_t magic, version, op;
	uint32_t set; /* PROTOCOL_SET: which of the following */
	uint64_t mem_bytes, timeslice_us;
	uint64_t for_us; /* PROTOCOL_HOLD: open again after this long; 0: not by itself */
	int32_t interleave;
	uint32_t reserved;
};

struct protocol_reply {
	uint32_t magic, version;
	int32_t code; /* 0, or a positive errno and a text */
	uint32_t supervisor_pid;
	uint64_t took_ns; /* what was asked, without the talking */
	char text[384];
	char name[64];
	struct warden_report report;
};

/* belfry to the belfryd it starts, first thing on the socket they share: what vGPU to make. */
struct front_options {
	uint32_t magic, version;
	char name[64];
	uint64_t mem_bytes;    /* 0: the whole card */
	uint64_t timeslice_us; /* 0: as the program asks */
	int32_t interleave;    /* 0..2; -1: as the program asks */
	uint32_t gpu;
	uint32_t any_driver, log_level;
	char soft_folder[108]; /* of the software GPU; empty: a real one */
};

/* And back. */
enum front_kind { FRONT_STARTED = 1, FRONT_ENDED, FRONT_FAILED };
struct front_message {
	uint32_t kind;
	int32_t value; /* STARTED: the program's pid; ENDED: its wait status; FAILED: belfry's exit status */
	char text[384];
};

#endif

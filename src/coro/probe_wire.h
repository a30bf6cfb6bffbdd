/* The messages between the GPU server and the library in a process about probes, over a SOCK_SEQPACKET connection that the
 * process opens (BELFRY_PROBES). The GPU server identifies the process by its connection, and applies what the process sends to
 * that process only. A process may answer late or never: the GPU server does not block for it. */
#ifndef BELFRY_CORO_PROBE_WIRE_H
#define BELFRY_CORO_PROBE_WIRE_H

#include <stdint.h>

#define PROBE_WIRE_MAGIC 0xbe1f94e5u
enum {
	PROBE_WIRE_VERSION = 2,
	PROBE_WIRE_PROBES = 8,		 /* on a vGPU */
	PROBE_WIRE_PACK_BYTES = 4 << 20, /* a packed probe */
	PROBE_WIRE_KERNEL = 128,	 /* a pattern, or the name of a kernel */
};

/* From the GPU server. */
enum probe_order_kind {
	PROBE_ORDER_ADD = 1, /* with the packed probe: a sealed memory file */
	PROBE_ORDER_READY,   /* all probes that are attached now were sent: modules may be loaded */
	PROBE_ORDER_REMOVE,
	PROBE_ORDER_DUMP,  /* answer with PROBE_NOTE_AREA and this ticket */
	PROBE_ORDER_WATCH, /* number 1: report each module with PROBE_NOTE_LOADED; 0: do not */
};
struct probe_order {
	uint32_t magic, version, kind;
	uint32_t number; /* of the probe; never used again */
	uint32_t sample; /* one of so many memory accesses; 0: the default */
	uint32_t reserved;
	uint64_t ticket;
	char name[64];
	char kernel[PROBE_WIRE_KERNEL]; /* the kernels that carry it; empty: all */
};

/* From the process. */
enum probe_note_kind {
	PROBE_NOTE_KERNEL = 1, /* a kernel carries the probe: name, id */
	PROBE_NOTE_MODULE,     /* a module was loaded: outcome, and a text or a kernel's name */
	PROBE_NOTE_AREA, /* with a copy of the area, a sealed memory file; or without, and a text that says why */
	PROBE_NOTE_LAST, /* the same, before the process ends, without a ticket */
	PROBE_NOTE_LOADED, /* a module was loaded, with or without probes: is_text, woven, kernels, id: its bytes */
};
enum probe_outcome {
	PROBE_WOVEN = 1, /* some of its kernels carry the probe */
	PROBE_NO_MATCH,	 /* the pattern matches none of its kernels */
	PROBE_NO_TEXT,	 /* it has machine code only */
	PROBE_REFUSED,	 /* it was loaded without the probe */
	PROBE_OUTCOMES,
};
struct probe_note {
	uint32_t magic, version, kind;
	uint32_t number;
	uint64_t ticket;
	uint64_t id; /* of the kernel: belfry_probe_ctx::kernel; LOADED: bytes of the PTX */
	uint32_t outcome;
	uint32_t woven;		   /* kernels of the module that carry the probe */
	uint32_t kernels, is_text; /* LOADED: kernels of its PTX; whether it has PTX that can be woven */
	char kernel[PROBE_WIRE_KERNEL];
	char text[256];
};

#endif

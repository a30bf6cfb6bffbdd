/* The ABI between the two sides of the software GPU's kernel interface. Where the real driver's numbers are
 * public, they are used: calls and structures are those of rm/rm.h, series 580; methods are those of
 * clc86f.h, clc8b5.h and clc6c0.h. The others are Belfry's own. Declarations only. */
#ifndef BELFRY_SOFT_ABI_H
#define BELFRY_SOFT_ABI_H

#include <stdint.h>

#define SOFT_DRIVER_VERSION "580.0.0" /* the series of its layouts */
enum {
	SOFT_GPUS_MAX = 8,
	SOFT_USERS_MAX = 32,
	SOFT_SMS_MAX = 256,
	SOFT_CHANNELS_MAX = 4096, /* per GPU; a token is a channel's number */
	SOFT_PAGE_BYTES = 4096,
	SOFT_VIDMEM_ROUND = 1 << 16, /* device memory is allocated in units of 64 KiB */
	SOFT_BELL_BYTES = 0x10000,
	SOFT_ADDRESS_BITS = 47, /* of a GPU address: as many as a CPU address has, so both can be equal */
};

/* A device file is a socket (SOCK_SEQPACKET): one end of a pair that the driver creates on a request at its
 * listening socket. Closing the socket closes the file. Each request carries (SCM_RIGHTS) the socket for its
 * answer, then the files that the call names, in the order in which they appear. SCM_CREDENTIALS identify the
 * sender. */
#define SOFT_MAGIC 0xbe1f50f7u
#define SOFT_REPLY_MAGIC 0xbe1f50f8u /* differs: an answer sent to a device file is no request */
enum soft_request_kind {
	SOFT_REQUEST_OPEN = 1, /* at the listening socket. nr: SOFT_FILE_*; the answer carries the file */
	SOFT_REQUEST_CALL,     /* an ioctl: nr; the argument and its parameters follow */
	SOFT_REQUEST_MAP,      /* an mmap: offset, bytes; the answer carries the memory */
	SOFT_REQUEST_WHAT_IS,  /* inode: is this socket a device file? Answers rc: SOFT_FILE_*, or -ENOENT */
	/* nr: a process. As long as this file is open, calls of its descendants, but not its own, are
	 * accepted only from the sender. May be repeated. */
	SOFT_REQUEST_SUPERVISE,
	SOFT_REQUEST_STATUS, /* the answer carries struct soft_status as its argument */
	SOFT_REQUEST_STOP,   /* end the software GPU; only for its owner */
};
enum { SOFT_FILE_GPU_0 = 0, SOFT_FILE_CONTROL = 255 }; /* minor numbers, like those of the real files */

struct soft_request {
	uint32_t magic, kind, nr;
	int32_t on_behalf; /* SOFT_REQUEST_CALL and MAP from a supervisor: the process it acts for, else 0 */
	uint32_t arg_bytes, params_bytes; /* follow in this order */
	uint64_t offset, bytes, inode;
};
struct soft_reply {
	uint32_t magic;
	int32_t rc;			  /* 0 or -errno */
	uint32_t arg_bytes, params_bytes; /* follow; the same sizes as in the request */
};
enum { SOFT_ARG_MAX = 16384, SOFT_PARAMS_MAX = 64 << 10, SOFT_FILES_MAX = 4 };

struct soft_status {
	uint32_t gpu_count, sm_count; /* of each GPU */
	uint64_t mem_bytes, used_bytes[SOFT_GPUS_MAX];
	uint64_t rate; /* thread-instructions per second and SM */
	uint32_t is_paced, cores, pid, file_count, client_count, channel_count;
	uint64_t gpu_ns[SOFT_GPUS_MAX];	 /* the GPU's clock */
	uint64_t busy_ns[SOFT_GPUS_MAX]; /* of it, time with work on any SM or copy engine */
	uint32_t user_count, reserved;	 /* processes with channels */
	struct soft_user {
		int32_t pid;
		uint32_t gpu;
		uint64_t held_ns, mem_bytes, thread_instructions;
		uint32_t has_turn, reserved;
	} users[SOFT_USERS_MAX];
};

/* Classes. Real ones: 0x41 client, 0x80 device, 0x2080 subdevice, 0x40 device memory, 0x3e host memory,
 * 0x90f1 address space, 0xa06c channel group, 0xc86f channel, 0xcbc0 compute, 0xc8b5 copy, 0xc661 doorbell.
 * Belfry's own, as child of a device: a program for the GPU. Freeing it unloads it; a running launch keeps
 * it. */
#define SOFT_CLASS_CODE 0xbe1fc0deu
struct soft_code_params {
	uint32_t space;	 /* handle of the address space whose launches refer to it */
	uint32_t memory; /* handle of host memory with the text, followed by the addresses of its variables */
	uint64_t text_offset, text_bytes;
	uint64_t variables_offset;
	uint32_t variable_count, reserved;
};

/* Controls of Belfry's own. On a channel: the SMs it may use; initially all. */
#define SOFT_CTRL_CHANNEL_SET_SMS 0xc86fbe01u
struct soft_sms_params {
	uint64_t mask[SOFT_SMS_MAX / 64];
};
/* On a client, before its first channel group: join the shared domain of this name. The groups of a domain's
 * clients run at the same time. A domain belongs to the user of its first client, and clients of other users
 * are refused. For a supervised program the supervisor decides: it makes the call, and is its user. */
#define SOFT_CTRL_ROOT_JOIN_DOMAIN 0x0000be01u
enum { SOFT_DOMAIN_BYTES = 256 }; /* with the final NUL */
struct soft_join_params {
	char name[SOFT_DOMAIN_BYTES];
};
/* On a group: when it last had completed all its work, by the host's clock (CLOCK_MONOTONIC). The work that the GPU had found
 * in the group's rings up to seen_ns was complete at end_ns. */
#define SOFT_CTRL_GROUP_GET_DONE 0xa06cbe03u
#define SOFT_DONE_KEPT 64
struct soft_done_params {
	uint64_t count; /* total; record n is done[n % SOFT_DONE_KEPT] */
	struct soft_done {
		uint64_t seen_ns, end_ns;
	} done[SOFT_DONE_KEPT];
};
/* On a group: the GPU time it has received. */
#define SOFT_CTRL_GROUP_GET_TIME 0xa06cbe02u
struct soft_time_params {
	uint64_t held_ns; /* its part of the time in which its unit had the turn */
	uint64_t sm_ns;	  /* summed over SMs */
	uint64_t launches, blocks, thread_instructions, copied_bytes, turns;
};
/* On an address space: the destination of what kernels print, a ring in host memory (soft_print). */
#define SOFT_CTRL_SPACE_SET_PRINT 0x90f1be01u
struct soft_print_params {
	uint32_t memory, reserved;
	uint64_t offset, bytes; /* of struct soft_print and its text */
};
/* On a subdevice: the properties of the GPU. */
#define SOFT_CTRL_GPU_GET_SHAPE 0x2080be01u
struct soft_shape_params {
	uint32_t sm_count, clock_khz;
	uint64_t mem_bytes, rate, gpu_ns;
};
/* On a subdevice: activity counters since the GPU started, over all programs; they never decrease. Not for
 * supervised programs. */
#define SOFT_CTRL_GPU_GET_COUNTERS 0x2080be02u
struct soft_counters_params {
	uint64_t gpu_ns;      /* its clock */
	uint64_t sm_ns;	      /* time in which an SM executed a block, summed over SMs */
	uint64_t bus_ns;      /* time that the memory bus needs for moved_bytes at full width */
	uint64_t moved_bytes; /* read and written by loads, stores and atomics of kernels, and by copies */
	uint32_t sm_count, reserved;
};

/* Text printed by kernels: bytes [tail, head) of a ring; both counters only grow. The GPU advances head and
 * never overwrites unread text: text that does not fit is dropped and counted. */
struct soft_print {
	uint64_t head, tail, lost;
	uint32_t bytes; /* of text[], a power of two; set by the program, read once by the driver */
	uint32_t reserved;
	char text[];
};

/* A channel's error notifier: 16 bytes as the real driver writes them, at the start of the memory that
 * NV_CHANNEL_ALLOC_PARAMS.hObjectError names, followed by Belfry's own details. */
enum { SOFT_ERROR_MMU = 31, SOFT_ERROR_COMPUTE = 13, SOFT_ERROR_METHOD = 32, SOFT_NOTIFIER_STATUS = 0xffff };
struct soft_notifier {
	uint64_t ns;
	uint32_t error;	 /* SOFT_ERROR_* */
	uint16_t fault;	 /* enum ptx_fault_kind, or 0 */
	uint16_t status; /* SOFT_NOTIFIER_STATUS after an error; written last */
	uint64_t address;
	uint32_t block[3], thread[3];
	uint32_t line, reserved;
	char kernel[128], text[256];
};

/* A ring entry: the address of commands, below 1 TiB, and their number of words. So rings, commands and
 * launch descriptors have 40-bit addresses; all others have 47 bits. */
#define SOFT_ENTRY(address, words) ((uint64_t)(address) | (uint64_t)(words) << 42)
#define SOFT_ENTRY_ADDRESS(entry) ((entry)&0xfffffffffcull)
#define SOFT_ENTRY_WORDS(entry) ((uint32_t)((entry) >> 42) & 0x1fffff)

/* Command headers: operation 31:29, count or immediate 28:16, subchannel 15:13, method/4 11:0. */
enum soft_operation { SOFT_OP_INC = 1, SOFT_OP_NON_INC = 3, SOFT_OP_IMMEDIATE = 4, SOFT_OP_ONE_INC = 5 };
#define SOFT_COMMAND(operation, subchannel, method, count) \
	((uint32_t)(operation) << 29 | (uint32_t)(count) << 16 | (uint32_t)(subchannel) << 13 | \
	 (uint32_t)(method) >> 2)
enum { SOFT_SUBCHANNEL_COMPUTE = 1, SOFT_SUBCHANNEL_COPY = 4 }; /* by SET_OBJECT; any number may be used */

/* Methods of every subchannel (host). */
enum {
	SOFT_METHOD_SET_OBJECT = 0x00, /* the class */
	SOFT_METHOD_NON_STALL_INTERRUPT = 0x20,
	SOFT_METHOD_SEM_ADDR_LO = 0x5c,
	SOFT_METHOD_SEM_ADDR_HI = 0x60,
	SOFT_METHOD_SEM_PAYLOAD_LO = 0x64,
	SOFT_METHOD_SEM_PAYLOAD_HI = 0x68,
	SOFT_METHOD_SEM_EXECUTE = 0x6c,
	SOFT_METHOD_WFI = 0x78, /* wait until everything before it is done */
	SOFT_METHOD_YIELD = 0x80,
	SOFT_METHOD_HOST_LAST = 0xfc,
};
/* SEM_EXECUTE. A release with RELEASE_WFI waits for everything before it on the channel, and then wakes
 * threads that wait (futex) on the low word of the payload. With a timestamp, 16 bytes are written: payload
 * (8), ns (8). */
enum {
	SOFT_SEM_ACQUIRE = 0, /* until equal */
	SOFT_SEM_RELEASE = 1,
	SOFT_SEM_ACQUIRE_GEQ = 2,      /* until memory >= payload, unsigned */
	SOFT_SEM_ACQUIRE_CIRC_GEQ = 3, /* until (memory - payload), signed, is at least 0 */
	SOFT_SEM_ACQUIRE_AND = 4,      /* until (memory & payload) is not 0 */
	SOFT_SEM_ACQUIRE_NOR = 5,      /* until ~(memory | payload) is not 0 */
	SOFT_SEM_OPERATION = 7,
	SOFT_SEM_SWITCH_TSG = 1 << 12,
	SOFT_SEM_RELEASE_WFI = 1 << 20,
	SOFT_SEM_64BIT = 1 << 24,
	SOFT_SEM_TIMESTAMP = 1 << 25,
};

/* Copy. */
enum {
	SOFT_COPY_LAUNCH = 0x300,
	SOFT_COPY_IN_UPPER = 0x400,
	SOFT_COPY_IN_LOWER = 0x404,
	SOFT_COPY_OUT_UPPER = 0x408,
	SOFT_COPY_OUT_LOWER = 0x40c,
	SOFT_COPY_PITCH_IN = 0x410, /* signed, bytes */
	SOFT_COPY_PITCH_OUT = 0x414,
	SOFT_COPY_LINE_LENGTH = 0x418, /* bytes; with REMAP: elements of NUM_DST components */
	SOFT_COPY_LINE_COUNT = 0x41c,
	SOFT_COPY_REMAP_CONST_A = 0x700,
	SOFT_COPY_REMAP_CONST_B = 0x704,
	SOFT_COPY_REMAP_COMPONENTS = 0x708,
};
enum {			       /* LAUNCH */
       SOFT_COPY_TRANSFER = 3, /* 0: none; else copy */
       SOFT_COPY_MULTI_LINE = 1 << 9,
       SOFT_COPY_REMAP = 1 << 10,
       SOFT_COPY_SRC_PITCH = 1 << 7, /* both must be set: block-linear memory is not supported */
       SOFT_COPY_DST_PITCH = 1 << 8,
};
/* REMAP_COMPONENTS: DST_X 2:0, DST_Y 6:4, DST_Z 10:8, DST_W 14:12, each SRC_X..W 0..3, CONST_A 4, CONST_B 5,
 * NO_WRITE 6; COMPONENT_SIZE-1 17:16; NUM_SRC-1 21:20; NUM_DST-1 25:24. */

/* Compute. The real launch descriptor is not public; this one is Belfry's own, with the same two methods. */
enum {
	SOFT_COMPUTE_SEND_A = 0x2b4,
	/* descriptor's address >> 8 */ SOFT_COMPUTE_SEND_B = 0x2c0 /* any value: launch */
};
#define SOFT_LAUNCH_MAGIC 0x50f71a7cu
enum { SOFT_LAUNCH_COOPERATIVE = 1, SOFT_LAUNCH_ALIGN = 256 };
struct soft_launch {
	uint32_t magic, flags;
	uint32_t code;	 /* handle of SOFT_CLASS_CODE, in the channel's address space */
	uint32_t kernel; /* index among all functions of the text (ptx_kernel_at) */
	uint32_t grid[3], threads[3];
	uint32_t dynamic_shared_bytes;
	uint32_t param_bytes; /* the parameters follow this structure */
	uint32_t stack_bytes; /* per thread, for kernels that use a stack; at least PTX_STACK_BYTES */
	uint32_t reserved;
	uint64_t workspace; /* of a cooperative launch: 8 zeroed bytes of device memory */
	uint64_t grid_id;
};

/* USERD offsets are those of gate/gate.h: GP_GET at 0x88, GP_PUT at 0x8c. The doorbell is at 0x90 of its
 * page. A real doorbell wakes the GPU. This one cannot, so after ringing the program reads SLEEPING. If it is
 * not 0, the program sets it to 0 and calls FUTEX_WAKE on it (all waiters, shared). */
enum {
	SOFT_USERD_GP_GET = 0x88,
	SOFT_USERD_GP_PUT = 0x8c,
	SOFT_BELL_TOKEN = 0x90,
	SOFT_BELL_SLEEPING = 0x94
};

#endif

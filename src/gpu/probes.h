/* Probes of vGPUs: which are attached, the processes that can carry them, and what they have counted. The library in a process
 * (src/coro/probe*.c) connects to a socket of the GPU server, which tells it the probes of its vGPU and asks for copies of
 * their areas.
 *
 * A process can send anything at any time, or nothing. So every copy is checked in size and read once into memory of the GPU
 * server, what is kept of a process is bounded, and no function waits. Shared by probes*.c only. Main thread only. */
#ifndef BELFRY_GPU_PROBES_H
#define BELFRY_GPU_PROBES_H

#include <json-c/json.h>

#include "coro/probe_wire.h"
#include "gpu/gpu.h"
#include "probe/probe.h"

enum {
	PROBED_OF_ONE = 128,   /* processes of a vGPU that are connected */
	PROBE_KERNELS = 256,   /* kernels of a probe whose names are kept */
	PROBE_REASONS = 16,    /* different reasons of a probe why modules do not carry it */
	PROBE_COPIES = 16,     /* last copies of processes that have ended, of a probe */
	PROBE_DUMP_MS = 3000,  /* a process that has not answered by then is reported */
	PROBE_DUMP_MIB = 256,  /* of copies that are read for a dump; the others are left out */
	PROBE_ENTRIES = 65536, /* entries of maps in the answer to a dump, of at most 63 bytes each */
	PROBE_RECORDS = 4096,  /* records of rings in it */
	PROBE_SMS = 256,       /* assumed if the device does not report it */
	PROBE_LOADS = 16,      /* modules of a vGPU that policies are told of, in PROBE_LOADS_MS */
	PROBE_LOADS_MS = 100,
	MIRROR_MS = 1000,	/* between the copies for policies */
	MIRROR_ENTRIES = 1024,	/* of a map of a vGPU, for policies */
	MIRROR_PROCESSES = 16,	/* of a vGPU, that are asked for such copies */
	MIRROR_BYTES = 4 << 20, /* a larger area is not copied for policies */
};

/* A kernel that carries the probe, as the process reports it. id: weave_kernel_id(). */
struct probe_kernel {
	uint64_t id;
	pid_t pid;
	char name[PROBE_WIRE_KERNEL];
	LIST_ENTRY(probe_kernel) next; /* attached_probe::kernels */
};

/* Why a module does not carry the probe. */
struct probe_reason {
	pid_t pid;
	enum probe_outcome outcome;
	unsigned times;
	char kernel[PROBE_WIRE_KERNEL], text[256];
	LIST_ENTRY(probe_reason) next; /* attached_probe::reasons */
};

/* Of a process that has ended. */
struct probe_copy {
	pid_t pid;
	int file; /* a sealed memory file; -1: there is no copy, and text says why */
	int64_t at_s;
	char program[32], text[256];
	TAILQ_ENTRY(probe_copy) next; /* attached_probe::copies, the oldest first */
};

/* What the processes of a vGPU have in a map, for policies. A round of copies is under way. */
struct mirror_table {
	const struct probe_map *map;
	uint32_t key_bytes, stride; /* of the entries: the key, then the value */
	unsigned count;
	uint8_t *entries; /* sorted by key, at most MIRROR_ENTRIES */
};
struct mirror {
	struct gpu *gpu;
	const struct probe *probe;
	uint64_t ticket;
	unsigned asked, due; /* processes; due: they have not answered */
	bool is_late;	     /* the next round was due before this one ended */
	/* See probes_mirror.c: the reader's, while there is a thread. */
	int files[MIRROR_PROCESSES]; /* copies that have come */
	unsigned file_count;
	struct mirror_table tables[PROBE_MAPS_MAX];
	unsigned table_count;

	pthread_t thread;
	bool has_thread;
	_Atomic bool is_read, is_dropped; /* is_dropped: the reader ends soon */
};

struct attached_probe {
	struct vgpu *vgpu;
	struct mirror *mirror; /* NULL: no round is under way */
	bool is_mirrored;      /* a policy has entries of it */
	uint32_t number;
	uint32_t bit; /* in probed::mirroring and probed::last; no two probes of a vGPU have the same */
	pid_t pid;    /* only this process; 0: all */
	uint32_t sample;
	char name[64], file[128], kernel[PROBE_WIRE_KERNEL];
	struct probe *probe;
	int pack; /* the packed probe, as it is sent */
	int64_t since_s;
	bool is_verified;
	char why_not[256]; /* why the kernel's verifier did not check it */
	uint64_t outcomes[PROBE_OUTCOMES];
	unsigned kernel_count, reason_count, copy_count;
	uint64_t kernels_lost, reasons_lost, copies_lost;
	LIST_HEAD(, probe_kernel) kernels;
	LIST_HEAD(, probe_reason) reasons;
	TAILQ_HEAD(, probe_copy) copies;
	LIST_ENTRY(attached_probe) next; /* vgpu_probes::attached */
};

/* A process whose library is connected. */
struct probed {
	struct vgpu_probes *of;
	uint32_t run; /* run::number */
	pid_t pid;
	uid_t user;
	char program[32];
	int sock, process;  /* process: a pidfd */
	bool is_watched;    /* it was told to report its modules */
	uint32_t mirroring; /* attached_probe::bit of each probe of which a copy for policies is due */
	struct loop_source *sock_source, *process_source;
	uint32_t last;		 /* attached_probe::bit of each probe of which the last copy has come */
	LIST_ENTRY(probed) next; /* vgpu_probes::processes */
};

/* A dump under way. */
struct probe_dump {
	struct gpu *gpu;
	char vgpu_name[SPEC_NAME_MAX + 1];
	uint64_t ticket, until_ns, start_ns;
	struct talker *talker;
	uint32_t number; /* 0: all probes */
	unsigned due;	 /* answers that have not come */

	/* See probes_read.c: the reader's, from dump_read() until is_read. */
	LIST_HEAD(, probe_answer) answers; /* copies, the latest first: those of live processes */
	uint64_t bytes;			   /* of copies that may be read */
	unsigned entries, records;	   /* that the answer has room for */
	struct json_object *probes;	   /* an array; each has "processes" */
	char *body;			   /* the answer; NULL: out of memory */
	size_t body_bytes;

	pthread_t thread;
	bool has_thread;
	_Atomic bool is_read, is_dropped; /* is_dropped: the reader ends soon */
};

/* Of a vGPU: vgpu::probing. */
struct vgpu_probes {
	struct vgpu *vgpu;
	unsigned attached_count, process_count;
	LIST_HEAD(, attached_probe) attached;
	LIST_HEAD(, probed) processes;
	struct probe_dump *dump; /* NULL: none */
	uint64_t loads_from_ns;	 /* the beginning of the current PROBE_LOADS_MS */
	unsigned loads;		 /* since then */
	uint32_t loads_lost;	 /* not told yet */
};

/* probes.c */
struct vgpu_probes *probes_of(struct vgpu *vgpu); /* makes it; NULL: out of memory */
struct attached_probe *probes_find(const struct vgpu_probes *probes, uint32_t number);
void attached_probe_free(struct attached_probe *attached);
/* A note of a process about a kernel or a module. */
void probes_note(struct attached_probe *attached, const struct probed *probed, const struct probe_note *note);

/* probes_link.c: processes */
int probed_send(struct probed *probed, enum probe_order_kind kind, const struct attached_probe *attached,
		uint64_t ticket);
int probed_watch(struct probed *probed); /* tells it whether to report its modules */
void probed_remove(struct probed *probed);
bool probed_is_meant(const struct probed *probed, const struct attached_probe *attached);

/* probes_policy.c: with the lock */
/* Whether a policy is told of the modules of a vGPU. */
bool probes_watch(const struct vgpu *vgpu);
/* A process has loaded a module. */
void probes_loaded(struct probed *probed, const struct probe_note *note);

/* probes_dump.c */
/* Begins a dump. The talker is answered later if this returns 0. */
int dump_begin(struct vgpu_probes *probes, struct talker *talker, uint32_t number, struct bf_error *err);
/* A copy has come, or the reason why there is none. Takes the file (-1: none). */
void dump_came(struct probed *probed, const struct probe_note *note, int file);
void dump_gone(struct probed *probed);	    /* the process has ended, or its connection */
void dump_drop(struct vgpu_probes *probes); /* without an answer */
/* Answers with an error, if a dump is under way. Called with the lock, which is released for a while. */
void dump_fail(struct vgpu_probes *probes, const char *why);
/* The last copy of a process. Takes the file. */
void copy_keep(struct attached_probe *attached, const struct probed *probed, const char *text, int file);
void copy_free(struct attached_probe *attached, struct probe_copy *copy);

/* probes_mirror.c: with the lock */
/* A copy for policies has come, or none. False: the note is not about one. Takes the file then. */
bool mirror_came(struct probed *probed, struct attached_probe *attached, const struct probe_note *note,
		 int file);
void mirror_gone(struct probed *probed);	    /* the process has ended, or its connection */
void mirror_drop(struct attached_probe *attached);  /* the probe is detached: policies lose its entries */
void mirror_look(struct gpu *gpu, uint64_t now_ns); /* begins rounds */
void mirror_settle(struct gpu *gpu);		    /* reads the copies of rounds, and ends rounds */
bool mirrors_are_under_way(const struct gpu *gpu);  /* also without the lock, in the main thread */
uint64_t mirror_due_ns(const struct gpu *gpu);	    /* 0: never; also without the lock, in the main thread */

/* probes_read.c */
/* A copy for the dump, which takes the file. Returns 0, or -1 if there is no memory or no file. */
int dump_add(struct probe_dump *dump, const struct attached_probe *attached, struct json_object *process,
	     int file);
int dump_read(struct probe_dump *dump); /* begins the thread; it wakes the main thread when is_read is set */
void dump_end(struct probe_dump *dump); /* frees it */

/* probes_json.c */
#define PROBE_NO_COPY "what it sent is not a copy of the probe's memory"
/* Whether the file can be a copy of an area. Its size and content cannot change, and reading it waits for no process: only
 * a memory file has seals. */
bool area_is_copy(const struct probe *probe, int file);
/* The content of a copy of an area; the caller frees it. NULL, and *why: the file is not such a copy. */
void *area_read(const struct probe *probe, int file, const char **why);
/* The maps of a copy of an area. Returns NULL, and *why, if the file is not such a copy. */
struct json_object *area_json(const struct probe *probe, int file, struct probe_dump *dump, const char **why);
/* Called with the lock, which is released for a while. */
struct json_object *probes_json(struct vgpu_probes *probes, struct vgpu *vgpu);
struct json_object *attached_json(const struct attached_probe *attached);

#endif

/* A record: of decisions (what was known, who decided, what came of it), and of the work there was to decide about (when it
 * came for whom, when it was done, what it used). The same bytes go over the socket, one entry a message, and into a file,
 * after a header. Read back, the decisions can be put to another policy, and the work played under it. */
#ifndef BELFRY_REPLAY_RECORD_H
#define BELFRY_REPLAY_RECORD_H

#include <stdio.h>

#include "base/error.h"
#include "sched/sched.h"

#define RECORD_MAGIC "BELFRYR2"

/* Nothing in a record is believed to last longer: a day. */
#define RECORD_LONGEST_NS (86400ull * 1000000000ull)

struct record_header {
	char magic[8];
	uint32_t abi;	    /* BELFRY_POLICY_ABI */
	uint32_t vgpu_size; /* of struct belfry_vgpu */
};

enum record_kind {
	RECORD_DECISION,
	RECORD_SETUP, /* at the beginning, and when it is changed: record_setup */
	RECORD_SHARE, /* a vGPU is there, or was changed: record_share */
	RECORD_WORK,  /* something happened to it: record_work */
	RECORD_KINDS,
};

/* Of a decision: then the context (ctx_bytes) as it was after it, then count entries of the table. Of the others: then what
 * the kind says, in the context's place; what only decisions have is 0. */
struct record_entry {
	uint32_t bytes; /* of all of it */
	uint16_t hook;
	uint8_t decider, kind;
	uint32_t clamps;
	uint32_t ctx_bytes, count;
	uint32_t lost; /* entries before this one that could not be sent */
	uint64_t at_ns;
	uint64_t proposed_id, got_id, proposed_ns, got_ns;
};

/* How the GPU was shared. */
struct record_setup {
	uint64_t window_ns, round_ns, slice_min_ns, grace_ns, idle_ns;
	uint32_t how; /* enum sched_how */
	uint32_t is_measured, is_soft, reserved;
	char policy[BELFRY_NAME_SIZE]; /* that decided: "built-in" if none */
};

struct record_share {
	uint64_t id;
	char name[BELFRY_NAME_SIZE];
	uint32_t request_ppm, limit_ppm;
	uint32_t class, percentile_ppm; /* class: enum sched_class */
	uint64_t objective_ns, timeslice_us;
	uint32_t domain;
	int32_t interleave;
};

enum record_work_what {
	RECORD_HERE, /* it has programs */
	RECORD_GONE, /* and none any more */
	RECORD_HELD, /* somebody outside holds it back */
	RECORD_FREE, /* and no longer does */
	RECORD_CAME, /* it has work since came_ns */
	RECORD_DONE, /* what came then was done at end_ns */
	RECORD_READ, /* what is counted was looked at */
	RECORD_WHATS,
};
struct record_work {
	uint64_t id;
	uint32_t what; /* enum record_work_what */
	uint32_t reserved;
	uint64_t came_ns, end_ns; /* 0: not said */
	/* Counted by then, ever. */
	uint64_t gpu_ns;
	uint64_t held_ns;    /* it was let in and had work */
	uint64_t alone_ns;   /* and nobody else was */
	uint64_t anybody_ns; /* anybody was: the same of all */
	uint64_t submitted, grants, stops;
};

/* The largest that there is. */
#define RECORD_ENTRY_MAX (sizeof(struct record_entry) + 1024 + BELFRY_VGPUS_MAX * sizeof(struct belfry_vgpu))

/* Put one into `to`, with no more of the table than there is room for a policy. Returns its bytes; 0: no room. */
size_t record_make(const struct sched_decision *decision, const void *ctx, size_t ctx_bytes,
		   const struct belfry_vgpu *table, void *to, size_t room);
/* Likewise, one of another kind than a decision. */
size_t record_make_other(enum record_kind kind, uint64_t at_ns, const void *what, size_t bytes, void *to,
			 size_t room);
/* Whether bytes from outside are an entry, all of it. */
int record_check(const void *bytes, size_t size, struct bf_error *err);
const void *record_ctx(const struct record_entry *entry); /* or what the kind says */
const struct belfry_vgpu *record_table(const struct record_entry *entry);
/* The vGPU that a decision introduces. False: it introduces none, or by a name that cannot be shown to people: a policy may
 * have written there, and the file be from anywhere. */
bool record_introduces(const struct record_entry *entry, uint64_t *id, char name[BELFRY_NAME_SIZE]);

struct record_setup record_setup_of(const struct sched_options *options);
struct sched_options record_options(const struct record_setup *setup);
struct record_share record_share_of(const struct sched_share *share);
struct sched_share record_sched_share(const struct record_share *share);

int record_write_header(FILE *to, struct bf_error *err);
int record_read_header(FILE *from, struct bf_error *err);
/* The next entry, in a buffer of RECORD_ENTRY_MAX: enum record_got; -errno: it is not one, or cannot be read. A recorder that
 * was killed leaves half an entry behind: what comes before is good. */
enum record_got { RECORD_END, RECORD_ENTRY, RECORD_CUT_OFF };
int record_read(FILE *from, void *buffer, struct bf_error *err);

/* After a write that failed, of a full disk, say: what is not a whole entry is cut off, so that the record ends well. What
 * the stream has not written yet is dropped. It must be open for reading, too. */
struct record_kept {
	uint64_t decisions, lost;
};
int record_mend(FILE *record, struct record_kept *kept, struct bf_error *err);

#endif

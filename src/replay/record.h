/* A record of decisions (input, policy, result) and of the work that they were about (when it came for which
 * vGPU, when it was done, what it used). The same bytes go over the socket, one entry a message, and into a
 * file, after a header. Recorded decisions can be put to another policy, and recorded work can be played
 * under it. */
#ifndef BELFRY_REPLAY_RECORD_H
#define BELFRY_REPLAY_RECORD_H

#include <stdio.h>

#include "base/error.h"
#include "base/units.h"
#include "sched/sched.h"

#define RECORD_MAGIC "BELFRYR2"

/* Durations in a record are capped at a day. */
#define RECORD_LONGEST_NS (BF_DAY_US * 1000)

struct record_header {
	char magic[8];
	uint32_t abi;	    /* BELFRY_POLICY_ABI */
	uint32_t vgpu_size; /* of struct belfry_vgpu */
};

enum record_kind {
	RECORD_DECISION,
	RECORD_SETUP, /* record_setup: at the beginning and after a change */
	RECORD_SHARE, /* record_share: a vGPU was created or changed */
	RECORD_WORK,  /* record_work: an event of a vGPU */
	RECORD_KINDS,
};

/* A decision is followed by its context (ctx_bytes) with the result, then by `count` entries of the table.
 * Other kinds are followed by their struct in place of the context; the fields that only decisions have are
 * 0. */
struct record_entry {
	uint32_t bytes; /* of the whole entry */
	uint16_t hook;
	uint8_t decider, kind;
	uint32_t clamps;
	uint32_t ctx_bytes, count;
	uint32_t lost; /* entries lost before this one */
	uint64_t at_ns;
	uint64_t proposed_id, got_id, proposed_ns, got_ns;
};

/* How the GPU was shared. */
struct record_setup {
	uint64_t window_ns, round_ns, slice_min_ns, grace_ns, idle_ns;
	uint32_t how; /* enum sched_how */
	uint32_t is_measured, is_soft, reserved;
	char policy[BELFRY_NAME_SIZE]; /* the policy in force; "built-in" if none */
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
	RECORD_HERE, /* its first program started */
	RECORD_GONE, /* its last program ended */
	RECORD_HELD, /* it was held back from outside */
	RECORD_FREE, /* it is no longer held back */
	RECORD_CAME, /* it has had work since came_ns */
	RECORD_DONE, /* the work that came then was done at end_ns */
	RECORD_READ, /* the counters were read */
	RECORD_WHATS,
};
struct record_work {
	uint64_t id;
	uint32_t what; /* enum record_work_what */
	uint32_t reserved;
	uint64_t came_ns, end_ns; /* 0: unknown */
	/* Counters since the vGPU was created. */
	uint64_t gpu_ns;
	uint64_t held_ns;    /* time that it was let in and had work */
	uint64_t alone_ns;   /* of that, time without any other vGPU let in */
	uint64_t anybody_ns; /* time that any vGPU was let in and had work */
	uint64_t submitted, grants, stops;
};

/* The largest possible entry. */
#define RECORD_ENTRY_MAX (sizeof(struct record_entry) + 1024 + BELFRY_VGPUS_MAX * sizeof(struct belfry_vgpu))

/* Writes a decision to `to`, with at most BELFRY_VGPUS_MAX entries of the table. Returns its size; 0: `to` is
 * too small. */
size_t record_make(const struct sched_decision *decision, const void *ctx, size_t ctx_bytes,
		   const struct belfry_vgpu *table, void *to, size_t room);
/* Writes an entry of another kind than a decision. */
size_t record_make_other(enum record_kind kind, uint64_t at_ns, const void *what, size_t bytes, void *to,
			 size_t room);
/* Checks untrusted bytes: whether they are exactly one valid entry. */
int record_check(const void *bytes, size_t size, struct bf_error *err);
const void *record_ctx(const struct record_entry *entry); /* or the struct of its kind */
const struct belfry_vgpu *record_table(const struct record_entry *entry);
/* The vGPU that a decision introduces. False: it introduces none, or its name is not printable: a policy may
 * have overwritten it, and the file is untrusted. */
bool record_introduces(const struct record_entry *entry, uint64_t *id, char name[BELFRY_NAME_SIZE]);

struct record_setup record_setup_of(const struct sched_options *options);
struct sched_options record_options(const struct record_setup *setup);
struct record_share record_share_of(const struct sched_share *share);
struct sched_share record_sched_share(const struct record_share *share);

int record_write_header(FILE *to, struct bf_error *err);
int record_read_header(FILE *from, struct bf_error *err);
/* Reads the next entry into a buffer of RECORD_ENTRY_MAX. Returns enum record_got, or -errno if the entry is
 * invalid or cannot be read. A recorder that was killed leaves a partial last entry; the entries before it
 * are valid. */
enum record_got { RECORD_END, RECORD_ENTRY, RECORD_CUT_OFF };
int record_read(FILE *from, void *buffer, struct bf_error *err);

/* After a failed write, for example on a full disk: truncates the record after the last whole entry and drops
 * what the stream has buffered. The stream must also be open for reading. */
struct record_kept {
	uint64_t decisions, lost;
};
int record_mend(FILE *record, struct record_kept *kept, struct bf_error *err);

#endif

/* A record of decisions: what was known, who decided, what came of it. The same bytes go over the socket, one entry a
 * message, and into a file, after a header. Read back, it can be put to another policy. */
#ifndef BELFRY_REPLAY_RECORD_H
#define BELFRY_REPLAY_RECORD_H

#include <stdio.h>

#include "base/error.h"
#include "sched/sched.h"

#define RECORD_MAGIC "BELFRYR1"

struct record_header {
	char magic[8];
	uint32_t abi;	    /* BELFRY_POLICY_ABI */
	uint32_t vgpu_size; /* of struct belfry_vgpu */
};

/* Then the context (ctx_bytes) as it was after the decision, then count entries of the table. */
struct record_entry {
	uint32_t bytes; /* of all of it */
	uint16_t hook;
	uint8_t decider, reserved;
	uint32_t clamps;
	uint32_t ctx_bytes, count;
	uint32_t lost; /* entries before this one that could not be sent */
	uint64_t at_ns;
	uint64_t proposed_id, got_id, proposed_ns, got_ns;
};

/* The largest that there is. */
#define RECORD_ENTRY_MAX (sizeof(struct record_entry) + 1024 + BELFRY_VGPUS_MAX * sizeof(struct belfry_vgpu))

/* Put one into `to`, with no more of the table than there is room for a policy. Returns its bytes; 0: no room. */
size_t record_make(const struct sched_decision *decision, const void *ctx, size_t ctx_bytes,
		   const struct belfry_vgpu *table, void *to, size_t room);
/* Whether bytes from outside are an entry, all of it. */
int record_check(const void *bytes, size_t size, struct bf_error *err);
const void *record_ctx(const struct record_entry *entry);
const struct belfry_vgpu *record_table(const struct record_entry *entry);

int record_write_header(FILE *to, struct bf_error *err);
int record_read_header(FILE *from, struct bf_error *err);
/* The next entry, in a buffer of RECORD_ENTRY_MAX: 1; 0 at the end; -errno: it is not one, or cut off. */
int record_read(FILE *from, void *buffer, struct bf_error *err);

#endif

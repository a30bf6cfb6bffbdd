/* What another policy would have decided. Every recorded question is put to it, in order, at the recorded time: a virtual
 * clock. What it proposes at pick and preempt is held to the same limits and promises, and compared; at other hooks it is
 * not, since what came of that is not in the record. Its answers do not change what comes after them: the record is of what
 * happened. */
#ifndef BELFRY_REPLAY_REPLAY_H
#define BELFRY_REPLAY_REPLAY_H

#include "policy/policy.h"
#include "replay/record.h"

struct replay_vgpu {
	uint64_t id;
	char name[BELFRY_NAME_SIZE];	 /* "" if the record does not say */
	uint64_t picked[2], slice_ns[2]; /* recorded; with the other policy */
	uint64_t stopped_for[2];	 /* others were stopped for it */
};
struct replay_difference {
	uint64_t at_ns;
	enum belfry_hook hook;
	uint64_t was_id, is_id, was_ns, is_ns;
};
struct replay_result {
	uint64_t entries, lost, asked, same, clamped, failed;
	uint64_t first_ns, last_ns;
	struct replay_vgpu *vgpus;
	size_t vgpu_count;
	struct replay_difference *differences; /* the first of them */
	size_t difference_count;
	uint64_t different; /* of all */
	char why[256];	    /* the policy failed on the way; "" if not */
	bool is_cut_off;    /* the last entry is, and left out */
};

/* policy NULL: the built-in. `most` differences are kept. */
int replay_run(FILE *record, struct policy *policy, size_t most, struct replay_result *result,
	       struct bf_error *err);
void replay_free(struct replay_result *result);

#endif

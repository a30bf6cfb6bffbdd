/* Shows what another policy would have decided. Every recorded question is put to it, in order, with the
 * recorded time as clock. Its proposals at pick and preempt are checked against the same limits and requests,
 * and compared; those of other hooks are not, because the record does not contain their results. Its answers
 * do not change later questions. */
#ifndef BELFRY_REPLAY_REPLAY_H
#define BELFRY_REPLAY_REPLAY_H

#include "policy/policy.h"
#include "replay/record.h"

struct replay_vgpu {
	uint64_t id;
	char name[BELFRY_NAME_SIZE];	 /* "" if the record does not contain it */
	uint64_t picked[2], slice_ns[2]; /* [0]: recorded, [1]: with the other policy */
	uint64_t stopped_for[2];	 /* times that another vGPU was stopped for it */
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
	struct replay_difference *differences; /* the first `most` of them */
	size_t difference_count;
	uint64_t different; /* number of all differences */
	char why[256];	    /* why the policy failed; "": it did not */
	bool is_cut_off;    /* a partial last entry was left out */
};

/* policy NULL: the built-in policy. The first `most` differences are kept. */
int replay_run(FILE *record, struct policy *policy, size_t most, struct replay_result *result,
	       struct bf_error *err);
void replay_free(struct replay_result *result);

#endif

/* A workload, played on a simulated GPU under sched itself and a policy: what would have come of it for the programs. They
 * wait for what they submitted, pause as long as they did, and need as much of the GPU as they did; what is decided changes
 * what comes after. Everything follows from the workload and the policy. */
#ifndef BELFRY_REPLAY_PLAY_H
#define BELFRY_REPLAY_PLAY_H

#include "policy/policy.h"
#include "replay/workload.h"

/* Whatever is in a record, a play ends: after so many events. */
#define PLAY_EVENTS_MAX 20000000ull

struct play_result {
	struct workload_figures *vgpus; /* as many as the workload has */
	uint64_t ns;			/* it got so far; less than the workload's: it was cut off */
	uint64_t events;
	char why[256]; /* the policy was put out on the way; "" if not */
};

/* policy NULL: the built-in. */
int play_run(const struct workload *workload, struct policy *policy, uint64_t most_events,
	     struct play_result *result, struct bf_error *err);
void play_free(struct play_result *result);

/* How near a play comes to what was: the largest differences of any vGPU. Of times where there were enough to tell. */
struct play_agreement {
	double share_points;		  /* of the GPU's time, in percent of the whole */
	double p50_percent, tail_percent; /* of what was; below 0: there was nothing to compare */
};
struct play_agreement play_agreement(const struct workload *workload, const struct play_result *result);

#endif

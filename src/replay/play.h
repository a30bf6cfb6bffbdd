/* Plays a workload on a simulated GPU under sched and a policy, to show how the programs would have fared.
 * The programs wait for their submissions, pause as long as recorded, and need as much GPU time as recorded.
 * Decisions change later events. The result depends only on the workload and the policy. */
#ifndef BELFRY_REPLAY_PLAY_H
#define BELFRY_REPLAY_PLAY_H

#include "policy/policy.h"
#include "replay/workload.h"

/* A play ends after this many events, whatever the record contains. */
#define PLAY_EVENTS_MAX 20000000ull

struct play_result {
	struct workload_figures *vgpus; /* one for each vGPU of the workload */
	uint64_t ns;			/* simulated time; less than the workload's: the play was cut off */
	uint64_t events;
	char why[256]; /* why the policy was disabled; "": it was not */
};

/* policy NULL: the built-in policy. */
int play_run(const struct workload *workload, struct policy *policy, uint64_t most_events,
	     struct play_result *result, struct bf_error *err);
void play_free(struct play_result *result);

/* How closely a play matches the record: the largest difference of any vGPU. Times count only for vGPUs with
 * enough bursts. */
struct play_agreement {
	double share_points;		  /* difference in GPU time, in percent of the whole */
	double p50_percent, tail_percent; /* of the recorded time; negative: nothing to compare */
};
struct play_agreement play_agreement(const struct workload *workload, const struct play_result *result);

#endif

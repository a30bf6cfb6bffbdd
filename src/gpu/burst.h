/* burst: how long what a vGPU submitted took, from the first doorbell until all of it was done. Times in, times out: it
 * has no clock and asks neither gate nor device.
 *
 * Submissions that follow each other before the GPU is done are one burst. A record of the device says that what the GPU
 * had seen by then was done. That is the end of the burst if nothing else had come by then, which the time of the next
 * submission tells. */
#ifndef BELFRY_GPU_BURST_H
#define BELFRY_GPU_BURST_H

#include <stdbool.h>
#include <stdint.h>

#include "gate/gate.h"

struct burst {
	uint64_t came_ns; /* the first doorbell of what is not known to be done; 0: there is nothing */
	uint64_t seen_ns; /* the last record: what had come by then */
	uint64_t end_ns;  /* was done then; 0: there is no record */
	uint64_t free_ns; /* when the burst before this one was done */
};

/* From when to when one took. */
struct burst_span {
	uint64_t came_ns, end_ns;
};

/* Something was submitted. It begins a burst if there is none. */
void burst_came(struct burst *burst, struct gate_came came);
/* Before the next record is taken. next: the first submission that was found after seen_ns, or none. True: the last record
 * has ended a burst, and the next one has begun then. */
bool burst_split(struct burst *burst, struct gate_came next, struct burst_span *span);
/* A record: what had come by seen_ns was done at end_ns. */
void burst_record(struct burst *burst, uint64_t seen_ns, uint64_t end_ns);
/* All is done, as was found out at now_ns. next: as above. False: there was nothing to be done. */
bool burst_done(struct burst *burst, struct gate_came next, uint64_t now_ns, struct burst_span *span);

#endif

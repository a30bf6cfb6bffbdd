/* burst: how long the submissions of a vGPU took, from the first doorbell until all of them were done. It computes
 * with the times it is given, and reads no clock, gate or device.
 *
 * Submissions that follow each other before the GPU is done form one burst. A record of the device says that
 * everything the GPU had seen at a time was done. This is the end of the burst if nothing else had been submitted by
 * then, which the time of the next submission shows. */
#ifndef BELFRY_GPU_BURST_H
#define BELFRY_GPU_BURST_H

#include <stdbool.h>
#include <stdint.h>

#include "gate/gate.h"

struct burst {
	uint64_t came_ns; /* the first doorbell of what is not known to be done; 0: none */
	uint64_t seen_ns; /* the last record: what was submitted by seen_ns */
	uint64_t end_ns;  /* was done at end_ns; 0: there is no record */
	uint64_t free_ns; /* when the previous burst was done */
};

struct burst_span {
	uint64_t came_ns, end_ns;
};

/* A submission. It begins a burst if there is none. */
void burst_came(struct burst *burst, struct gate_came came);
/* Called before the next record is taken. next: the first submission found after seen_ns, or none. True: the last
 * record has ended a burst, and next has begun another. */
bool burst_split(struct burst *burst, struct gate_came next, struct burst_span *span);
/* A record: what was submitted by seen_ns was done at end_ns. */
void burst_record(struct burst *burst, uint64_t seen_ns, uint64_t end_ns);
/* At now_ns everything was found done. next: as above. False: there was no burst. */
bool burst_done(struct burst *burst, struct gate_came next, uint64_t now_ns, struct burst_span *span);

#endif

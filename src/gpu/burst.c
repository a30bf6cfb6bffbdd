#include "gpu/burst.h"

/* Whether the last record shows when the burst ended: the record belongs to this burst, and the GPU had seen
 * everything submitted by then. A submission may have come a little before it was found, but a program that waits for
 * the end submits nothing before it. */
static bool has_ended(const struct burst *burst, struct gate_came next)
{
	return burst->came_ns && burst->end_ns > burst->came_ns &&
	       (!next.found_ns || next.found_ns > burst->end_ns);
}

/* likely_ns is an estimate. A submission that was found after the end of the previous burst did not come before that
 * end, or it would belong to that burst. */
void burst_came(struct burst *burst, struct gate_came came)
{
	uint64_t first_ns = came.found_ns < burst->free_ns ? came.found_ns : burst->free_ns;

	if (!burst->came_ns)
		burst->came_ns = came.likely_ns > first_ns ? came.likely_ns : first_ns;
}

bool burst_split(struct burst *burst, struct gate_came next, struct burst_span *span)
{
	if (!next.found_ns || !has_ended(burst, next))
		return false;
	*span = (struct burst_span){ burst->came_ns, burst->end_ns };
	*burst = (struct burst){ .free_ns = span->end_ns };
	burst_came(burst, next);
	return true;
}

void burst_record(struct burst *burst, uint64_t seen_ns, uint64_t end_ns)
{
	burst->seen_ns = seen_ns;
	burst->end_ns = end_ns;
}

bool burst_done(struct burst *burst, struct gate_came next, uint64_t now_ns, struct burst_span *span)
{
	*span = (struct burst_span){ burst->came_ns, has_ended(burst, next) ? burst->end_ns : now_ns };
	*burst = (struct burst){ .free_ns = span->end_ns };
	return span->came_ns && span->end_ns > span->came_ns;
}

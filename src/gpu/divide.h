/* Divides the SM units of a shared domain among its vGPUs. Pure. */
#ifndef BELFRY_GPU_DIVIDE_H
#define BELFRY_GPU_DIVIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIVIDE_UNITS_MOST = 63, DIVIDE_WHOLE_PPM = 1000000 };

/* A vGPU. */
struct divide_part {
	uint32_t request_ppm, limit_ppm; /* of all units */
	unsigned wish;			 /* units that a policy proposes; 0: none */
	bool is_active;
	uint64_t before; /* the units that it has, a bit for each; 0: none yet */
	uint64_t after;	 /* answer: never 0 */
};

static inline uint64_t divide_all(unsigned unit_count)
{
	return ((uint64_t)1 << unit_count) - 1;
}

/* unit_count: 1 to DIVIDE_UNITS_MOST.
 * - An active vGPU gets its request, at least one unit, and then what is wished for it, within its limit.
 * - Active vGPUs with neither a request nor a wish share what is left, all of them on the same units, up to their limits. If
 *   units do not suffice for a unit for each request, vGPUs with requests below a unit are among them. If no unit is left,
 *   they share one with another vGPU.
 * - What is still left goes to the other active vGPUs in proportion to their requests, up to their limits; to those with a
 *   wish last. Fractions of units go to the largest remainders.
 * - An idle vGPU keeps one unit while units suffice.
 * - If there is one active vGPU, and its limit is 100 %, it gets all units, also those that idle vGPUs keep.
 * - If no vGPU is active, each keeps what it has, if it has units and not more than its limit.
 * - vGPUs for which no unit is left share units.
 * Apart from these rules a vGPU keeps the units that it has. */
void divide(struct divide_part *parts, size_t count, unsigned unit_count);

#endif

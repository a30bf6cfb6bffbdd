/* The GPU's clock: the host's and an offset, held back (cap) when the host runs the model slower than the model says,
 * pushed on (advance) when it is not paced and the host is faster. Reading takes no lock; the rest is under the lock of
 * the cores. */
#ifndef BELFRY_SOFT_HW_CLOCK_H
#define BELFRY_SOFT_HW_CLOCK_H

#include <stdint.h>

#define HW_NEVER UINT64_MAX

struct hw_clock {
	int64_t offset_ns; /* atomic, as are the others */
	uint64_t cap_ns;
	uint64_t last_ns; /* the latest that anybody was told */
};

void hw_clock_init(struct hw_clock *clock);
uint64_t hw_clock_read(struct hw_clock *clock);
/* Read, and give up for good what lies past the cap: it is not made up for later. */
uint64_t hw_clock_settle(struct hw_clock *clock);
/* The clock will not pass this before it is set again. Never below what it shows. */
void hw_clock_set_cap(struct hw_clock *clock, uint64_t ns);
void hw_clock_advance(struct hw_clock *clock, uint64_t to_ns);
/* The host's monotonic time at which the clock will show this, if nothing holds it back. */
uint64_t hw_clock_host_ns(const struct hw_clock *clock, uint64_t ns);

#endif

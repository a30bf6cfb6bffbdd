/* The GPU's clock: the host's clock and an offset. It is held back (cap) when the host runs the model more
 * slowly than modelled, and advanced when it is not paced and the host is faster. Reading takes no lock; the
 * rest is under the lock of the cores. */
#ifndef BELFRY_SOFT_HW_CLOCK_H
#define BELFRY_SOFT_HW_CLOCK_H

#include <stdint.h>

#define HW_NEVER UINT64_MAX

struct hw_clock {
	int64_t offset_ns; /* atomic, as are the others */
	uint64_t cap_ns;
	uint64_t last_ns; /* the latest time that was returned */
};

void hw_clock_init(struct hw_clock *clock);
uint64_t hw_clock_read(struct hw_clock *clock);
/* Reads the clock, and permanently drops the time past the cap: it is not caught up later. */
uint64_t hw_clock_settle(struct hw_clock *clock);
/* The clock does not pass this time before the next call. Never below the current time. */
void hw_clock_set_cap(struct hw_clock *clock, uint64_t ns);
void hw_clock_advance(struct hw_clock *clock, uint64_t to_ns);
/* The host's monotonic time at which the clock reaches this time, unless it is held back. */
uint64_t hw_clock_host_ns(const struct hw_clock *clock, uint64_t ns);

#endif

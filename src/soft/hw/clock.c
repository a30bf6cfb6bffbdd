#include "soft/hw/clock.h"

#include <stdbool.h>

#include "base/clock.h"

/* The clock does not start at 0, because programs take a timestamp of 0 for none. */
#define START_NS 1000000000u

void hw_clock_init(struct hw_clock *clock)
{
	clock->offset_ns = (int64_t)(START_NS - bf_now_ns());
	clock->cap_ns = HW_NEVER;
	clock->last_ns = START_NS;
}

static uint64_t uncapped(const struct hw_clock *clock)
{
	return bf_now_ns() + (uint64_t)__atomic_load_n(&clock->offset_ns, __ATOMIC_ACQUIRE);
}

/* Several threads read at the same time: a later reading must not be less than an earlier one. */
static uint64_t told(struct hw_clock *clock, uint64_t ns)
{
	uint64_t last = __atomic_load_n(&clock->last_ns, __ATOMIC_RELAXED);

	while (last < ns)
		if (__atomic_compare_exchange_n(&clock->last_ns, &last, ns, true, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return ns;
	return last;
}

uint64_t hw_clock_read(struct hw_clock *clock)
{
	uint64_t cap = __atomic_load_n(&clock->cap_ns, __ATOMIC_ACQUIRE), ns = uncapped(clock);

	return told(clock, ns < cap ? ns : cap);
}

uint64_t hw_clock_settle(struct hw_clock *clock)
{
	uint64_t ns = uncapped(clock);

	if (ns > clock->cap_ns) {
		__atomic_fetch_sub(&clock->offset_ns, (int64_t)(ns - clock->cap_ns), __ATOMIC_RELEASE);
		ns = clock->cap_ns;
	}
	return told(clock, ns);
}

void hw_clock_set_cap(struct hw_clock *clock, uint64_t ns)
{
	uint64_t now = hw_clock_settle(clock);

	__atomic_store_n(&clock->cap_ns, ns > now ? ns : now, __ATOMIC_RELEASE);
}

void hw_clock_advance(struct hw_clock *clock, uint64_t to_ns)
{
	uint64_t now = hw_clock_settle(clock);

	if (to_ns > now)
		__atomic_fetch_add(&clock->offset_ns, (int64_t)(to_ns - now), __ATOMIC_RELEASE);
}

uint64_t hw_clock_host_ns(const struct hw_clock *clock, uint64_t ns)
{
	return ns - (uint64_t)__atomic_load_n(&clock->offset_ns, __ATOMIC_RELAXED);
}

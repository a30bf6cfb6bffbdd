/* Many leases, on a software GPU with small units: see run.sh. */
#include "server.h"

enum { UNITS = 15, MASKS = 300 };

/* More partitions than the library keeps: launches stay within the leased units. */
static void any_number_of_leases_is_followed(void)
{
	uint32_t unit_sms[UNITS], allowed, mask = 1;
	CUfunction where;

	start();
	where = check_function(ptx, "where");
	CHECK_EQUAL(page->unit_count, UNITS);
	for (unsigned i = 0; i < UNITS; i++) {
		lease_set(1ull << i);
		unit_sms[i] = launched(where, NULL);
	}
	for (unsigned i = 0; i < MASKS; i++) {
		mask = (mask * 1103515245 + 12345) & 0x7fffffff;
		allowed = 0;
		for (unsigned unit = 0; unit < UNITS; unit++)
			if (mask >> 8 >> unit & 1)
				allowed |= unit_sms[unit];
		if (!allowed)
			continue;
		/* Bits of units that there are not have no effect. */
		lease_set((mask >> 8 & 0x7fff) | (uint64_t)i << 32);
		CHECK_EQUAL(launched(where, NULL) & ~allowed, 0);
	}
	CHECK_EQUAL(page->is_fixed, 0);
	lease_set(CORO_UNITS_ALL);
}

TESTS(TEST(any_number_of_leases_is_followed))

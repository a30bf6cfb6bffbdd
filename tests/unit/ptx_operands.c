#include "ptx_operands.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

uint64_t a[N], b[N], c[N], d[N];

void check_operands(const char *text, const char *types, reference expected)
{
	rig_op(text, types, N, a, b, c, d);
	for (unsigned i = 0; i < N; i++) {
		uint64_t e = expected(a[i], b[i], c[i]);

		if (d[i] != e)
			fail_msg("%s of %#llx %#llx %#llx: %#llx, not %#llx", text, (unsigned long long)a[i],
				 (unsigned long long)b[i], (unsigned long long)c[i], (unsigned long long)d[i],
				 (unsigned long long)e);
	}
}

void fill_operands(uint64_t seed, const uint64_t *edges, unsigned count)
{
	uint64_t *const rows[] = { a, b, c };

	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < N; i++) {
			uint64_t r = rig_random(&seed);

			rows[k][i] = i % 3 == k || i % 4 == 3 ? edges[(r >> 20) % count] : r;
		}
}

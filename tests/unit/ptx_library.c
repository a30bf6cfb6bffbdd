/* ptx: what the toolkit's headers bring along (tests/data/ptx/library.cu) against the C library. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

#define FUNCTIONS 13
#define N 96

static void functions_on_cpu(double v, double *out)
{
	const double values[FUNCTIONS] = {
		sin(v),	       cos(v),	tan(v),	     exp(v), log(fabs(v)),	  pow(fabs(v), 1.75),
		sqrt(fabs(v)), cbrt(v), atan2(v, 2), erf(v), tgamma(fabs(v) + 1), fmod(v, 0.75),
		asinh(v),
	};

	memcpy(out, values, sizeof(values));
}

/* The toolkit promises a few units in the last place; so do these limits, with some room. */
static void the_math_library_is_as_close_as_promised(void **state)
{
	struct rig rig;
	uint64_t seed = 71;
	float x[N];
	double dx[N], expected[FUNCTIONS];
	const float *f;
	const double *d;
	struct {
		uint64_t x, out;
	} p, q;

	(void)state;
	rig_open(&rig, "library");
	for (int i = 0; i < N; i++) {
		x[i] = floorf(rig_random_float(&seed) * 80.0f + 0.5f) / 16.0f + 0.03125f; /* + 1 is exact */
		dx[i] = (double)x[i];
	}
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.out = rig_alloc(&rig, sizeof(float) * N * FUNCTIONS, NULL);
	q.x = rig_alloc(&rig, sizeof(dx), dx);
	q.out = rig_alloc(&rig, sizeof(double) * N * FUNCTIONS, NULL);
	rig_launch(&rig, "math_float", (struct rig_shape){ { 1 }, { N }, 0 }, &p, sizeof(p));
	rig_launch(&rig, "math_double", (struct rig_shape){ { 1 }, { N }, 0 }, &q, sizeof(q));
	f = rig_host(&rig, p.out);
	d = rig_host(&rig, q.out);
	for (int i = 0; i < N; i++) {
		functions_on_cpu(dx[i], expected);
		for (int k = 0; k < FUNCTIONS; k++) {
			double size = fabs(expected[k]);

			assert_true(fabs((double)*f++ - expected[k]) <= size * 1e-6);
			assert_true(fabs(*d++ - expected[k]) <= size * 4e-15);
		}
	}
	rig_close(&rig);
}

static void groups_find_their_members(void **state)
{
	struct rig rig;
	int d[64];
	uint64_t at;

	(void)state;
	rig_open(&rig, "library");
	for (int i = 0; i < 64; i++)
		d[i] = i;
	at = rig_alloc(&rig, sizeof(d), d);
	rig_launch(&rig, "groups", (struct rig_shape){ { 1 }, { 64 }, 0 }, &at, sizeof(at));
	for (int i = 0; i < 64; i++)
		d[i] = i / 8 * 64 + 28 + (i % 3 ? 0 : 11000);
	/* lanes 0, 3, ... 30 of the first warp, threads 33, 36, ... 63 of the second: eleven each */
	assert_memory_equal(rig_host(&rig, at), d, sizeof(d));
	rig_close(&rig);
}

static void pipelines_bring_their_data(void **state)
{
	struct rig rig;
	float in[512];
	const float *out;
	struct {
		uint64_t in, out;
	} p;

	(void)state;
	rig_open(&rig, "library");
	for (int i = 0; i < 512; i++)
		in[i] = (float)i;
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(in), NULL);
	rig_launch(&rig, "pipeline", (struct rig_shape){ { 1 }, { 128 }, 0 }, &p, sizeof(p));
	out = rig_host(&rig, p.out);
	for (int i = 0; i < 512; i++)
		assert_int_equal((int)out[i], (127 - i / 4) * 4 + i % 4);
	rig_close(&rig);
}

/* Blocks run in turns, a little each: none can reach the end before all have come to the barrier. */
static void the_grids_barrier_waits_for_all_blocks(void **state)
{
	enum { BLOCKS = 5 };
	struct rig rig;
	struct ptx_block *blocks[BLOCKS];
	unsigned done = 0;
	uint64_t at, cost = 0;
	struct ptx_launch launch = { .grid = { BLOCKS, 1, 1 }, .threads = { 64, 1, 1 }, .params = &at };

	(void)state;
	rig_open(&rig, "library");
	at = rig_alloc(&rig, sizeof(int) * (BLOCKS + 1), NULL);
	launch.workspace = rig_alloc(&rig, 8, NULL);
	launch.module = rig.module;
	launch.kernel = ptx_kernel_find(rig.module, "grid_barrier");
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint32_t index[3] = { i, 0, 0 };

		assert_int_equal(ptx_block_create(&launch, &rig.host, &blocks[i], NULL), 0);
		ptx_block_start(blocks[i], index, 0);
	}
	while (done != (1u << BLOCKS) - 1) {
		assert_true(cost < 100000000);
		for (unsigned i = 0; i < BLOCKS; i++) {
			enum ptx_state s = ptx_block_run(blocks[i], 1000, NULL, &cost);

			assert_int_not_equal(s, PTX_STATE_FAULT);
			done |= (s == PTX_STATE_DONE ? 1u : 0u) << i;
		}
	}
	for (unsigned i = 0; i <= BLOCKS; i++)
		assert_int_equal(((int *)rig_host(&rig, at))[i], BLOCKS * 64);
	for (unsigned i = 0; i < BLOCKS; i++)
		ptx_block_free(blocks[i]);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_math_library_is_as_close_as_promised),
		cmocka_unit_test(groups_find_their_members),
		cmocka_unit_test(pipelines_bring_their_data),
		cmocka_unit_test(the_grids_barrier_waits_for_all_blocks),
	};

	return cmocka_run_group_tests_name("ptx library", tests, NULL, NULL);
}

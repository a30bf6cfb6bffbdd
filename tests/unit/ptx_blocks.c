/* ptx: kernels of tests/data/ptx/block.cu, whose threads work together, against C on the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

/* The arrays are small: their indices fit an int. */
/* NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result) */

static void shared_reduction_sums_all_blocks(void **state)
{
	struct rig rig;
	uint64_t seed = 11;
	static int in[1500];
	int sum = 0;
	struct {
		int n, pad;
		uint64_t in, out;
	} p = { 1500, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "block");
	for (int i = 0; i < 1500; i++) {
		in[i] = (int)(rig_random(&seed) % 1000) - 300;
		sum += in[i];
	}
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, 4, NULL);
	rig_launch(&rig, "reduce_shared", (struct rig_shape){ { 6 }, { 256 }, 0 }, &p, sizeof(p));
	assert_int_equal(*(int *)rig_host(&rig, p.out), sum);
	rig_close(&rig);
}

/* The tree of additions the kernel makes: halves of a warp, then of the warps' sums. */
static float tree_on_cpu(const float *in, int n, int block, int threads)
{
	float part[32] = { 0 }, v[32];

	for (int w = 0; w < threads / 32; w++) {
		for (int l = 0; l < 32; l++) {
			int i = block * threads + w * 32 + l;

			v[l] = i < n ? in[i] : 0.0f;
		}
		for (int d = 16; d; d >>= 1)
			for (int l = 0; l < 32; l++)
				v[l] += l + d < 32 ? v[l + d] : v[l];
		part[w] = v[0];
	}
	memcpy(v, part, sizeof(v));
	for (int d = 16; d; d >>= 1) {
		float next[32];

		for (int l = 0; l < 32; l++)
			next[l] = v[l] + v[l ^ d];
		memcpy(v, next, sizeof(v));
	}
	return v[0];
}

static void shuffled_reduction_adds_in_its_own_order(void **state)
{
	struct rig rig;
	uint64_t seed = 12;
	static float in[700];
	struct {
		int n, pad;
		uint64_t in, out;
	} p = { 700, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "block");
	for (int i = 0; i < 700; i++)
		in[i] = rig_random_float(&seed) * 100.0f;
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, 12, NULL);
	rig_launch(&rig, "reduce_shuffle", (struct rig_shape){ { 3 }, { 256 }, 0 }, &p, sizeof(p));
	for (int b = 0; b < 3; b++) {
		float expected = tree_on_cpu(in, 700, b, 256);

		assert_memory_equal((float *)rig_host(&rig, p.out) + b, &expected, 4);
	}
	rig_close(&rig);
}

static void scans_sum_everything_before(void **state)
{
	struct rig rig;
	uint64_t seed = 13;
	static int in[500], out[500];
	static uint32_t in32[256], out32[256];
	struct {
		int n, pad;
		uint64_t in, out;
	} p = { 500, 0, 0, 0 };
	struct {
		uint64_t in, out;
	} q;

	(void)state;
	rig_open(&rig, "block");
	for (int i = 0; i < 500; i++) {
		in[i] = (int)(rig_random(&seed) % 100);
		out[i] = in[i] + (i ? out[i - 1] : 0);
	}
	for (int i = 0; i < 256; i++) {
		in32[i] = (uint32_t)rig_random(&seed);
		out32[i] = in32[i] + (i % 32 ? out32[i - 1] : 0);
	}
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	q.in = rig_alloc(&rig, sizeof(in32), in32);
	q.out = rig_alloc(&rig, sizeof(out32), NULL);
	rig_launch(&rig, "scan", (struct rig_shape){ { 1 }, { 512 }, 512 * 4 }, &p, sizeof(p));
	rig_launch(&rig, "scan_warp", (struct rig_shape){ { 2 }, { 128 }, 0 }, &q, sizeof(q));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	assert_memory_equal(rig_host(&rig, q.out), out32, sizeof(out32));
	rig_close(&rig);
}

static int compare_unsigned(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static int compare_signed(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return x < y ? -1 : x > y;
}

static void bitonic_sort_sorts_each_block(void **state)
{
	struct rig rig;
	uint64_t seed = 14, data;
	static uint32_t in[1024];

	(void)state;
	rig_open(&rig, "block");
	for (int i = 0; i < 1024; i++)
		in[i] = (uint32_t)rig_random(&seed) >> (i % 25);
	data = rig_alloc(&rig, sizeof(in), in);
	rig_launch(&rig, "bitonic", (struct rig_shape){ { 2 }, { 128 }, 0 }, &data, sizeof(data));
	qsort(in, 512, 4, compare_unsigned);
	qsort(in + 512, 512, 4, compare_unsigned);
	assert_memory_equal(rig_host(&rig, data), in, sizeof(in));
	rig_close(&rig);
}

static void merge_sort_sorts_all(void **state)
{
	enum { N = 700 };
	struct rig rig;
	uint64_t seed = 15, a, b;
	static int in[N];
	struct {
		int n, width;
		uint64_t in, out;
	} p = { N, 1, 0, 0 };

	(void)state;
	rig_open(&rig, "block");
	for (int i = 0; i < N; i++)
		in[i] = (int)(rig_random(&seed) % 200) - 100;
	a = rig_alloc(&rig, sizeof(in), in);
	b = rig_alloc(&rig, sizeof(in), NULL);
	for (; p.width < N; p.width *= 2) {
		p.in = a;
		p.out = b;
		rig_launch(&rig, "merge_pass", (struct rig_shape){ { 6 }, { 128 }, 0 }, &p, sizeof(p));
		a = p.out;
		b = p.in;
	}
	qsort(in, N, 4, compare_signed);
	assert_memory_equal(rig_host(&rig, a), in, sizeof(in));
	rig_close(&rig);
}

static void histogram_counts_every_byte(void **state)
{
	enum { N = 5000 };
	struct rig rig;
	uint64_t seed = 16;
	static uint8_t in[N];
	uint32_t bins[256] = { 0 };
	struct {
		int n, pad;
		uint64_t in, bins;
	} p = { N, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "block");
	for (int i = 0; i < N; i++) {
		in[i] = (uint8_t)(rig_random(&seed) % 40 * (rig_random(&seed) % 6));
		bins[in[i]]++;
	}
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.bins = rig_alloc(&rig, sizeof(bins), NULL);
	rig_launch(&rig, "histogram", (struct rig_shape){ { 4 }, { 192 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.bins), bins, sizeof(bins));
	rig_close(&rig);
}

static void fft_on_cpu(const float *twiddle, float *data)
{
	float s[512];

	for (size_t i = 0; i < 256; i++) {
		size_t r = 0;

		for (size_t k = 0; k < 8; k++)
			r |= (i >> k & 1) << (7 - k);
		s[2 * r] = data[2 * i];
		s[2 * r + 1] = data[2 * i + 1];
	}
	for (size_t size = 2; size <= 256; size *= 2)
		for (size_t t = 0; t < 128; t++) {
			size_t half = size / 2, pos = t & (half - 1), at = t / half * size + pos,
			       b = at + half;
			float wx = twiddle[2 * pos * (256 / size)], wy = twiddle[2 * pos * (256 / size) + 1];
			volatile float xx = s[2 * b] * wx, yy = s[2 * b + 1] * wy, xy = s[2 * b] * wy,
				       yx = s[2 * b + 1] * wx;
			float re = xx - yy, im = xy + yx, ax = s[2 * at], ay = s[2 * at + 1];

			s[2 * at] = ax + re;
			s[2 * at + 1] = ay + im;
			s[2 * b] = ax - re;
			s[2 * b + 1] = ay - im;
		}
	memcpy(data, s, sizeof(s));
}

static void fft_gives_the_same_bits(void **state)
{
	struct rig rig;
	uint64_t seed = 17;
	static float twiddle[256], data[512];
	struct {
		uint64_t twiddle, data;
	} p;

	(void)state;
	rig_open(&rig, "block");
	for (int i = 0; i < 128; i++) {
		twiddle[2 * i] = (float)cos(-2 * 3.14159265358979 * i / 256);
		twiddle[2 * i + 1] = (float)sin(-2 * 3.14159265358979 * i / 256);
	}
	for (int i = 0; i < 512; i++)
		data[i] = rig_random_float(&seed);
	p.twiddle = rig_alloc(&rig, sizeof(twiddle), twiddle);
	p.data = rig_alloc(&rig, sizeof(data), data);
	rig_launch(&rig, "fft", (struct rig_shape){ { 1 }, { 128 }, 0 }, &p, sizeof(p));
	fft_on_cpu(twiddle, data);
	assert_memory_equal(rig_host(&rig, p.data), data, sizeof(data));
	rig_close(&rig);
}

/* What every lane of one warp gets from warp_ops. */
static void warp_on_cpu(const uint32_t *v, uint32_t *out)
{
	uint32_t odd = 0, four = 0, two = 0, sum = 0, xor = 0, r[32];
	int least = INT32_MAX, most = INT32_MIN;
	bool any7 = false, all1000 = true, same = true;

	for (int i = 0; i < 32; i++) {
		odd |= (v[i] & 1) << i;
		four |= (v[i] >> 2 & 1) << i;
		two |= i >= 12 ? (v[i] >> 1 & 1) << i : 0;
		sum += v[i];
		xor ^= v[i];
		least = (int)v[i] < least ? (int)v[i] : least;
		most = (int)v[i] > most ? (int)v[i] : most;
		any7 |= v[i] == 7;
		all1000 &= v[i] < 1000;
		same &= v[i] >> 16 == v[0] >> 16;
	}
	for (int i = 0; i < 32; i++) {
		r[i] = odd;
		r[i] ^= any7 ? 0x100 : 0;
		r[i] ^= all1000 ? 0x200 : 0;
		for (int k = 0; k < 32; k++)
			r[i] += (v[i] & 3) == (v[k] & 3) ? 1u << k : 0;
		r[i] += same ? 0xffffffff : 0;
		r[i] += same;
		r[i] ^= sum;
		r[i] += (uint32_t)most - (uint32_t)least;
		r[i] ^= xor;
		if (i < 12)
			r[i] += v[(i + 5) % 12];
		else
			r[i] ^= two;
		r[i] += v[i] & 4 ? (uint32_t)__builtin_popcount(four) : 0;
	}
	for (int i = 0; i < 32; i++)
		out[i] = r[i] + r[i ^ 3];
}

static void warp_operations_agree(void **state)
{
	struct rig rig;
	uint64_t seed = 18;
	uint32_t in[128], out[128];
	struct {
		uint64_t in, out;
	} p;

	(void)state;
	rig_open(&rig, "block");
	for (int i = 0; i < 128; i++)
		in[i] = i < 32 ? (uint32_t)rig_random(&seed)
			       : (uint32_t)(rig_random(&seed) % 1100) >> (i / 32);
	for (int i = 0; i < 128; i += 32)
		warp_on_cpu(in + i, out + i);
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "warp_ops", (struct rig_shape){ { 2 }, { 64 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	rig_close(&rig);
}

static void barriers_count_votes_of_the_block(void **state)
{
	struct rig rig;
	int in[100], out[100], count = 0;
	struct {
		uint64_t in, out;
	} p;

	(void)state;
	rig_open(&rig, "block");
	for (int i = 0; i < 100; i++) {
		in[i] = i % 11 + 1;
		count += in[i] > 5;
	}
	in[77] = 42;
	count += 1 - (77 % 11 + 1 > 5);
	for (int i = 0; i < 100; i++)
		out[i] = count * 4 + 2 + 1;
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "barrier_votes", (struct rig_shape){ { 1 }, { 100 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_reduction_sums_all_blocks),
		cmocka_unit_test(shuffled_reduction_adds_in_its_own_order),
		cmocka_unit_test(scans_sum_everything_before),
		cmocka_unit_test(bitonic_sort_sorts_each_block),
		cmocka_unit_test(merge_sort_sorts_all),
		cmocka_unit_test(histogram_counts_every_byte),
		cmocka_unit_test(fft_gives_the_same_bits),
		cmocka_unit_test(warp_operations_agree),
		cmocka_unit_test(barriers_count_votes_of_the_block),
	};

	return cmocka_run_group_tests_name("ptx blocks", tests, NULL, NULL);
}
/* NOLINTEND(bugprone-implicit-widening-of-multiplication-result) */

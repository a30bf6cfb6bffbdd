/* ptx: conversions and half precision, all 65536 halves where that is possible. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

#define N 1024

static uint64_t a[N], b[N], c[N], d[N];

/* A half's value by its definition. */
static double half_value(uint64_t h, bool is_bf16)
{
	int digits = is_bf16 ? 7 : 10, bias = is_bf16 ? 127 : 15,
	    exponent = (int)(h >> digits) & (2 * bias + 1);
	double fraction = (double)(h & ((1u << digits) - 1)) / (double)(1u << digits), v;

	if (exponent == 2 * bias + 1)
		v = fraction > 0 ? NAN : INFINITY;
	else
		v = exponent ? ldexp(1 + fraction, exponent - bias) : ldexp(fraction, 1 - bias);
	return h & 0x8000 ? -v : v;
}

/* The nearest half, by looking for it: the candidates are ordered as their bits are. */
static uint64_t nearest_half(long double v, bool is_bf16)
{
	uint64_t low = 0, high = is_bf16 ? 0x7f80 : 0x7c00, sign = signbit(v) ? 0x8000 : 0;
	long double m = fabsl(v), below, above;

	if (v != v)
		return 0x7fff;
	while (high - low > 1) {
		uint64_t mid = (low + high) / 2;

		if ((long double)half_value(mid, is_bf16) <= m)
			low = mid;
		else
			high = mid;
	}
	below = half_value(low, is_bf16);
	above = high == (is_bf16 ? 0x7f80u : 0x7c00u) ? (is_bf16 ? 0x1p128L : 65536.0L)
						      : (long double)half_value(high, is_bf16);
	if (m - below > above - m || (m - below == above - m && low % 2))
		low = high;
	return low | sign;
}

static void every_half_becomes_its_float(void **state)
{
	(void)state;
	for (unsigned from = 0; from < 65536; from += N) {
		for (unsigned i = 0; i < N; i++)
			a[i] = from + i;
		for (unsigned k = 0; k < 2; k++) {
			rig_op(k ? "cvt.f32.bf16 %d, %a;" : "cvt.f32.f16 %d, %a;", "wh--", N, a, NULL, NULL,
			       d);
			for (unsigned i = 0; i < N; i++) {
				float expected = (float)half_value(a[i], k);
				uint32_t bits;

				memcpy(&bits, &expected, 4);
				if (expected != expected) /* a bf16 keeps its bits: measured on an H200 */
					bits = k ? (uint32_t)a[i] << 16 : 0x7fffffff;
				assert_int_equal(d[i], bits);
			}
		}
	}
}

static void floats_round_to_the_nearest_half(void **state)
{
	uint64_t seed = 61;

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		uint64_t r = rig_random(&seed);

		/* near the middle between two halves, in every range */
		a[i] = (uint32_t)(r & 0x80000000) | (uint32_t)((100 + r % 45) << 23) |
		       (uint32_t)(r >> 41 & 0x7ff000);
		a[i] += i % 3 - 1;
	}
	a[0] = 0x477fefff;
	a[1] = 0x477ff000;
	a[2] = 0x7f7fffff;
	a[3] = 0x33000000;
	a[4] = 0x33000001;
	a[5] = 0x7f800001;
	for (unsigned k = 0; k < 2; k++) {
		rig_op(k ? "cvt.rn.bf16.f32 %d, %a;" : "cvt.rn.f16.f32 %d, %a;", "hw--", N, a, NULL, NULL, d);
		for (unsigned i = 0; i < N; i++) {
			uint32_t bits = (uint32_t)a[i];
			float f;

			memcpy(&f, &bits, 4);
			assert_int_equal(d[i], nearest_half(f, k));
		}
	}
}

static void check_halves(const char *name, char op, bool is_bf16)
{
	char text[64];

	snprintf(text, sizeof(text), "%s.%s %%d, %%a, %%b%s;", name, is_bf16 ? "bf16" : "f16",
		 op == 'f' ? ", %c" : "");
	rig_op(text, op == 'f' ? "hhhh" : "hhh-", N, a, b, c, d);
	for (unsigned i = 0; i < N; i++) {
		/* 64 digits hold products and, in the range chosen here, sums exactly */
		long double x = half_value(a[i], is_bf16), y = half_value(b[i], is_bf16),
			    z = half_value(c[i], is_bf16);
		long double v = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x * y + z;

		if (d[i] != nearest_half(v, is_bf16))
			fail_msg("%s of %#llx %#llx %#llx: %#llx, not %#llx", text, (unsigned long long)a[i],
				 (unsigned long long)b[i], (unsigned long long)c[i], (unsigned long long)d[i],
				 (unsigned long long)nearest_half(v, is_bf16));
	}
}

static void half_arithmetic_rounds_once(void **state)
{
	uint64_t seed = 62;

	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		for (unsigned i = 0; i < N; i++) {
			a[i] = rig_random(&seed) & 0xffff;
			b[i] = rig_random(&seed) & 0xffff;
			c[i] = rig_random(&seed) & 0xffff;
			if (k) { /* bf16: exponents within 40 of one another */
				a[i] = (a[i] & 0x807f) | (110 + a[i] % 20) << 7;
				b[i] = (b[i] & 0x807f) | (110 + b[i] % 20) << 7;
				c[i] = (c[i] & 0x807f) | (100 + c[i] % 40) << 7;
			}
		}
		check_halves("add.rn", '+', k);
		check_halves("sub.rn", '-', k);
		check_halves("mul.rn", '*', k);
		check_halves("fma.rn", 'f', k);
	}
}

/* A product exactly between two values, and an addend too small for a double to notice. */
static void a_tiny_addend_decides_a_tie(void **state)
{
	const uint64_t x = 0x3f88, y = 0x3f98, up = 0x0080, down = 0x8080;

	(void)state;
	rig_op("fma.rn.bf16 %d, %a, %b, %c;", "hhhh", 1, &x, &y, &up, d);
	rig_op("fma.rn.bf16 %d, %a, %b, %c;", "hhhh", 1, &x, &y, &down, d + 1);
	/* 17/16 * 19/16 = 323/256, in the middle between 161/128 and 162/128 */
	assert_int_equal(d[0], nearest_half(162.0L / 128, true));
	assert_int_equal(d[1], nearest_half(161.0L / 128, true));
}

static void packed_halves_are_two_of_each(void **state)
{
	uint64_t seed = 63;

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		a[i] = rig_random(&seed) & 0xffffffff;
		b[i] = rig_random(&seed) & 0xffffffff;
	}
	rig_op("mul.rn.f16x2 %d, %a, %b;", "www-", N, a, b, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		uint64_t low = nearest_half((long double)half_value(a[i] & 0xffff, false) *
						    half_value(b[i] & 0xffff, false),
					    false);
		uint64_t high = nearest_half(
			(long double)half_value(a[i] >> 16, false) * half_value(b[i] >> 16, false), false);

		assert_int_equal(d[i], high << 16 | low);
	}
	rig_op("cvt.rn.f16x2.f32 %d, %a, %b;", "www-", N, a, b, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		uint32_t bits[2] = { (uint32_t)a[i], (uint32_t)b[i] };
		float f[2];

		memcpy(f, bits, 8);
		assert_int_equal(d[i], nearest_half(f[0], false) << 16 | nearest_half(f[1], false));
	}
}

static double double_of(uint64_t bits)
{
	double v;

	memcpy(&v, &bits, 8);
	return v;
}

static float float_of(uint64_t bits)
{
	uint32_t narrow = (uint32_t)bits;
	float v;

	memcpy(&v, &narrow, 4);
	return v;
}

static const double tricky[] = { 0.5,	       1.5,	     2.5,	    -0.5,	  -1.5,	      -2.5,
				 0.49999,      0.50001,	     127.5,	    255.5,	  32767.5,    65535.5,
				 2147483646.7, 2147483647.5, -2147483648.5, 4294967295.2, -0.9,	      1e10,
				 -1e10,	       9.3e18,	     -9.3e18,	    1.9e19,	  1e300,      -1e300,
				 NAN,	       INFINITY,     -INFINITY,	    1e-310,	  16777217.0, -129.0,
				 3.0,	       1e-40 };
#define TRICKY (sizeof(tricky) / sizeof(tricky[0]))

/* `nan` is what becomes of a NaN. */
static uint64_t clamped(double v, int bits, bool is_signed, uint64_t nan)
{
	double most = ldexp(1, is_signed ? bits - 1 : bits), least = is_signed ? -most : 0;
	uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;

	if (v != v)
		return nan;
	if (v >= most)
		return is_signed ? mask >> 1 : mask;
	if (v <= least)
		return is_signed ? (mask >> 1) + 1 : 0;
	return (is_signed ? (uint64_t)(int64_t)v : (uint64_t)v) & mask;
}

static void floats_become_integers_in_every_direction(void **state)
{
	static const struct {
		const char *suffix;
		double (*round)(double);
	} rounds[] = { { "rni", rint }, { "rzi", trunc }, { "rmi", floor }, { "rpi", ceil } };
	static const int widths[] = { 16, 32, 64 };
	char text[64], types[8];

	(void)state;
	for (unsigned i = 0; i < TRICKY; i++)
		memcpy(&a[i], &tricky[i], 8);
	for (unsigned r = 0; r < 4; r++)
		for (unsigned w = 0; w < 3; w++)
			for (unsigned s = 0; s < 2; s++) {
				snprintf(text, sizeof(text), "cvt.%s.%c%d.f64 %%d, %%a;", rounds[r].suffix,
					 s ? 's' : 'u', widths[w]);
				snprintf(types, sizeof(types), "%cd--", "hwd"[w]);
				rig_op(text, types, TRICKY, a, NULL, NULL, d);
				/* the top bit for a NaN of 64 bits: measured on an H200 */
				for (unsigned i = 0; i < TRICKY; i++)
					assert_int_equal(d[i], clamped(rounds[r].round(tricky[i]), widths[w],
								       s, 1ull << (widths[w] - 1)));
			}
	for (unsigned i = 0; i < TRICKY; i++) {
		float f = (float)tricky[i];

		memcpy(&a[i], &f, 4);
	}
	rig_op("cvt.rzi.s32.f32 %d, %a;", "ww--", TRICKY, a, NULL, NULL, d);
	for (unsigned i = 0; i < TRICKY; i++)
		assert_int_equal(d[i], clamped(trunc((double)float_of(a[i])), 32, true, 0));
	rig_op("cvt.rni.u8.f32 %d, %a;", "hw--", TRICKY, a, NULL, NULL, d);
	for (unsigned i = 0; i < TRICKY; i++)
		assert_int_equal(d[i], clamped(rint((double)float_of(a[i])), 8, false, 0));
	rig_op("cvt.rpi.f32.f32 %d, %a;", "ww--", TRICKY, a, NULL, NULL, d);
	for (unsigned i = 0; i < TRICKY; i++)
		assert_true(isnan(float_of(a[i])) ? d[i] == 0x7fffffff
						  : float_of(d[i]) == ceilf(float_of(a[i])));
}

static void integers_become_floats_in_every_direction(void **state)
{
	uint64_t seed = 64;

	(void)state;
	for (unsigned i = 0; i < N; i++)
		a[i] = rig_random(&seed) >> (i % 64);
	rig_op("cvt.rn.f32.u64 %d, %a;", "wd--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_true(float_of(d[i]) == (float)a[i]);
	rig_op("cvt.rn.f64.s64 %d, %a;", "dd--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_true(double_of(d[i]) == (double)(int64_t)a[i]);
	rig_op("cvt.rz.f32.u64 %d, %a;", "wd--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		long double v = (long double)float_of(d[i]),
			    next = (long double)nextafterf(float_of(d[i]), INFINITY);

		assert_true(v <= (long double)a[i] && next > (long double)a[i]);
	}
	rig_op("cvt.rp.f32.s32 %d, %a;", "ww--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		double v = (double)float_of(d[i]), next = (double)nextafterf(float_of(d[i]), -INFINITY);
		double exact = (double)(int32_t)(uint32_t)a[i];

		assert_true(v >= exact && next < exact);
	}
	rig_op("cvt.rn.f16.s32 %d, %a;", "hw--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], nearest_half((int32_t)(uint32_t)a[i], false));
	rig_op("cvt.rn.bf16.u64 %d, %a;", "hd--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], nearest_half((long double)a[i], true));
}

static void integers_extend_narrow_and_saturate(void **state)
{
	uint64_t seed = 65;

	(void)state;
	for (unsigned i = 0; i < N; i++)
		a[i] = i % 2 ? rig_random(&seed) >> (i % 64) : 0 - (rig_random(&seed) >> (i % 63 + 1));
	rig_op("cvt.s32.s8 %d, %a;", "ww--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], (uint32_t)(int8_t)a[i]);
	rig_op("cvt.u64.u16 %d, %a;", "dh--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], a[i] & 0xffff);
	rig_op("cvt.sat.s8.s64 %d, %a;", "wd--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		int64_t v = (int64_t)a[i];

		assert_int_equal(d[i], (uint32_t)(v > 127 ? 127 : v < -128 ? -128 : v));
	}
	rig_op("cvt.sat.u32.s64 %d, %a;", "wd--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		int64_t v = (int64_t)a[i];

		assert_int_equal(d[i], v < 0 ? 0 : v > 0xffffffff ? 0xffffffff : v);
	}
	rig_op("cvt.s64.s32 %d, %a;", "dw--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], (uint64_t)(int64_t)(int32_t)(uint32_t)a[i]);
}

static void doubles_round_to_floats_in_every_direction(void **state)
{
	uint64_t seed = 66;

	(void)state;
	for (unsigned i = 0; i < N; i++)
		a[i] = (rig_random(&seed) & 0x800fffffffffffff) | (uint64_t)(870 + i % 290) << 52;
	rig_op("cvt.rn.f32.f64 %d, %a;", "wd--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_true(float_of(d[i]) == (float)double_of(a[i]));
	rig_op("cvt.rm.f32.f64 %d, %a;", "wd--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		double v = (double)float_of(d[i]), next = (double)nextafterf(float_of(d[i]), INFINITY);

		assert_true(v <= double_of(a[i]) && (next > double_of(a[i]) || v == double_of(a[i])));
	}
	rig_op("cvt.sat.f32.f32 %d, %a;", "ww--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		float f = float_of(a[i]);

		assert_true(float_of(d[i]) == (f != f ? 0 : f > 1 ? 1 : f > 0 ? f : 0));
	}
}

static void half_kernels_from_the_compiler_give_the_same_bits(void **state)
{
	struct rig rig;
	uint64_t seed = 67;
	uint16_t x[200], y[200], out[200], contracted[200];
	struct {
		int n;
		uint16_t a, pad;
		uint64_t x, y;
	} p = { 200, 0x3e00, 0, 0, 0 };
	struct {
		int n, pad;
		uint64_t x, y, out;
	} q = { 200, 0, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "vector");
	for (int i = 0; i < 200; i++) {
		x[i] = (uint16_t)(0x3000 + rig_random(&seed) % 0x1000);
		y[i] = (uint16_t)(0x3000 + rig_random(&seed) % 0x1000);
		out[i] = (uint16_t)nearest_half(1.5L * half_value(x[i], false) + half_value(y[i], false),
						false);
	}
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.y = rig_alloc(&rig, sizeof(y), y);
	q.x = p.x;
	q.y = rig_alloc(&rig, sizeof(y), y);
	q.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "half_axpy", (struct rig_shape){ { 2 }, { 128 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.y), out, sizeof(out));
	rig_launch(&rig, "bf16_ops", (struct rig_shape){ { 2 }, { 128 }, 0 }, &q, sizeof(q));
	for (int i = 0; i < 200; i++) {
		uint64_t fused = nearest_half((long double)half_value(x[i], true) * half_value(y[i], true) +
						      half_value(x[i], true),
					      true);

		out[i] = (uint16_t)nearest_half((float)half_value(fused, true) + 1.0f, true);
	}
	assert_memory_equal(rig_host(&rig, q.out), out, sizeof(out));
	q.n = 100;
	rig_launch(&rig, "half2_ops", (struct rig_shape){ { 1 }, { 128 }, 0 }, &q, sizeof(q));
	for (int i = 0; i < 200; i++) {
		long double exact = (long double)half_value(x[i], false) * half_value(y[i], false);
		long double product = half_value(nearest_half(exact, false), false);
		long double difference = half_value(
			nearest_half((long double)half_value(x[i], false) - half_value(y[i], false), false),
			false);

		out[i] = (uint16_t)nearest_half(product + difference, false);
		contracted[i] = (uint16_t)nearest_half(exact + difference, false);
	}
	/* mul and add say no rounding, so a compiler may make them one fma; ptxas does. All of them or none. */
	if (memcmp(rig_host(&rig, q.out), contracted, sizeof(contracted)) != 0)
		assert_memory_equal(rig_host(&rig, q.out), out, sizeof(out));
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_half_becomes_its_float),
		cmocka_unit_test(floats_round_to_the_nearest_half),
		cmocka_unit_test(half_arithmetic_rounds_once),
		cmocka_unit_test(a_tiny_addend_decides_a_tie),
		cmocka_unit_test(packed_halves_are_two_of_each),
		cmocka_unit_test(floats_become_integers_in_every_direction),
		cmocka_unit_test(integers_become_floats_in_every_direction),
		cmocka_unit_test(integers_extend_narrow_and_saturate),
		cmocka_unit_test(doubles_round_to_floats_in_every_direction),
		cmocka_unit_test(half_kernels_from_the_compiler_give_the_same_bits),
	};

	return cmocka_run_group_tests_name("ptx conversions and halves", tests, NULL, NULL);
}

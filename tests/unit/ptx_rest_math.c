/* ptx: arithmetic no other test uses: 24-bit products, pairs, mad of floats, halves, atomic sums of floats. */
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_operands.h"

#define U32(v) ((uint64_t)(uint32_t)(v))

static const uint64_t integer_edges[] = { 0,	      1,	  0x7fffff,   0x800000,	  0xffffff,
					  0x7fffffff, 0x80000000, 0xffffffff, 0x7fff8000, 0x8000ffff };
static const uint64_t float_edges[] = { 0,	    0x80000000, 1,	    0x80000001, 0x007fffff,
					0x00800000, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x7f7fffff,
					0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
					0xffc00000, 0x33800000, 0x34000000 };
static const uint64_t double_edges[] = { 0,
					 1ull << 63,
					 1,
					 0x000fffffffffffff,
					 0x8010000000000000,
					 0x3ff0000000000000,
					 0xbff0000000000000,
					 0x7fefffffffffffff };

#define EXPECT(name, expr) \
	static uint64_t name(uint64_t x, uint64_t y, uint64_t z) \
	{ \
		(void)x; \
		(void)y; \
		(void)z; \
		return (expr); \
	}
EXPECT(first, x)
EXPECT(first32, U32(x))

static int64_t low24(uint64_t v)
{
	return (int64_t)(v & 0x7fffff) - (int64_t)(v & 0x800000);
}

EXPECT(mad24_lo_u, U32((x & 0xffffff) * (y & 0xffffff) + z))
EXPECT(mad24_lo_s, U32((uint64_t)(low24(x) * low24(y)) + z))
EXPECT(mad24_hi_u, U32(((x & 0xffffff) * (y & 0xffffff) >> 16) + z))
EXPECT(mad24_hi_s, U32((uint64_t)(low24(x) * low24(y) >> 16) + z))

static uint64_t mad24_hi_sat(uint64_t x, uint64_t y, uint64_t z)
{
	int64_t sum = (low24(x) * low24(y) >> 16) + (int32_t)z;

	return U32(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
}

static void products_of_24_bits_are_added_to(void **state)
{
	(void)state;
	fill_operands(71, integer_edges, 10);
	check_operands("mad24.lo.u32 %d, %a, %b, %c;", "wwww", mad24_lo_u);
	check_operands("mad24.lo.s32 %d, %a, %b, %c;", "wwww", mad24_lo_s);
	check_operands("mad24.hi.u32 %d, %a, %b, %c;", "wwww", mad24_hi_u);
	check_operands("mad24.hi.s32 %d, %a, %b, %c;", "wwww", mad24_hi_s);
	check_operands("mad24.hi.sat.s32 %d, %a, %b, %c;", "wwww", mad24_hi_sat);
}

static uint64_t pick16(uint64_t x, uint64_t y, bool is_max, bool is_signed)
{
	uint64_t bias = is_signed ? 0x8000 : 0; /* orders signed values as unsigned ones */
	bool is_less = ((x & 0xffff) ^ bias) < ((y & 0xffff) ^ bias);

	return (is_less != is_max ? x : y) & 0xffff;
}

#define PAIR(is_max, is_signed) \
	pick16(x, y, is_max, is_signed) | pick16(x >> 16, y >> 16, is_max, is_signed) << 16
EXPECT(min_u16x2, PAIR(false, false))
EXPECT(min_s16x2, PAIR(false, true))
EXPECT(max_u16x2, PAIR(true, false))
EXPECT(max_s16x2, PAIR(true, true))

static void pairs_of_integers_are_compared_apart(void **state)
{
	(void)state;
	fill_operands(72, integer_edges, 10);
	check_operands("min.u16x2 %d, %a, %b;", "www-", min_u16x2);
	check_operands("min.s16x2 %d, %a, %b;", "www-", min_s16x2);
	check_operands("max.u16x2 %d, %a, %b;", "www-", max_u16x2);
	check_operands("max.s16x2 %d, %a, %b;", "www-", max_s16x2);
}

static float as_float(uint64_t v)
{
	uint32_t bits = (uint32_t)v;
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

static uint64_t float_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	return f != f ? 0x7fffffff : bits;
}

static double as_double(uint64_t v)
{
	double f;

	memcpy(&f, &v, 8);
	return f;
}

static uint64_t double_bits(double f)
{
	uint64_t bits;

	memcpy(&bits, &f, 8);
	return bits;
}

static float flush(float f)
{
	return fpclassify(f) == FP_SUBNORMAL ? copysignf(0, f) : f;
}

static int direction; /* of the references; volatile operands keep the compiler from moving them out of it */

static uint64_t fma_f32(uint64_t x, uint64_t y, uint64_t z)
{
	volatile float f = as_float(x), g = as_float(y), h = as_float(z);

	fesetround(direction);
	f = fmaf(f, g, h);
	fesetround(FE_TONEAREST);
	return float_bits(f);
}

static uint64_t fma_f64(uint64_t x, uint64_t y, uint64_t z)
{
	volatile double f = as_double(x), g = as_double(y), h = as_double(z);

	fesetround(direction);
	f = fma(f, g, h);
	fesetround(FE_TONEAREST);
	return double_bits(f);
}

static uint64_t fma_flushed_saturated(uint64_t x, uint64_t y, uint64_t z)
{
	float s = flush(fmaf(flush(as_float(x)), flush(as_float(y)), flush(as_float(z))));

	return float_bits(s >= 1 ? 1 : s > 0 ? s : 0);
}

static void mad_of_floats_rounds_once(void **state)
{
	static const struct {
		const char *f32, *f64;
		int direction;
	} ops[] = { { "mad.rn.f32 %d, %a, %b, %c;", "mad.rn.f64 %d, %a, %b, %c;", FE_TONEAREST },
		    { "mad.rz.f32 %d, %a, %b, %c;", "mad.rz.f64 %d, %a, %b, %c;", FE_TOWARDZERO },
		    { "mad.rm.f32 %d, %a, %b, %c;", "mad.rm.f64 %d, %a, %b, %c;", FE_DOWNWARD },
		    { "mad.rp.f32 %d, %a, %b, %c;", "mad.rp.f64 %d, %a, %b, %c;", FE_UPWARD } };

	(void)state;
	for (unsigned n = 0; n < 4; n++) {
		direction = ops[n].direction;
		fill_operands(73, float_edges, 18);
		check_operands(ops[n].f32, "wwww", fma_f32);
		fill_operands(74, double_edges, 8);
		for (unsigned i = 0; i < N; i++) { /* near one another, and no NaN */
			a[i] = (a[i] & 0x801fffffffffffff) | 0x3fe0000000000000;
			b[i] = (b[i] & 0x801fffffffffffff) | 0x3fe0000000000000;
			if (c[i] << 1 >= 0xffe0000000000000)
				c[i] = 0;
		}
		check_operands(ops[n].f64, "dddd", fma_f64);
	}
	fill_operands(75, float_edges, 18);
	check_operands("mad.rn.ftz.sat.f32 %d, %a, %b, %c;", "wwww", fma_flushed_saturated);
}

static uint64_t min_f64(uint64_t x, uint64_t y, uint64_t z)
{
	double f = as_double(x), g = as_double(y);

	(void)z;
	return f != f ? y : g != g ? x : f < g ? x : g < f ? y : x | y; /* of two zeros the negative */
}

static void the_minimum_of_doubles_prefers_numbers(void **state)
{
	(void)state;
	fill_operands(76, double_edges, 8);
	for (unsigned i = 0; i < N; i += 16)
		a[i] = 0x7ff8000000000000;
	check_operands("min.f64 %d, %a, %b;", "ddd-", min_f64);
}

EXPECT(sum_f32, float_bits(as_float(x) + as_float(y)))
EXPECT(sum_f32_flushed, float_bits(flush(flush(as_float(x)) + flush(as_float(y)))))
EXPECT(sum_f64, double_bits(as_double(x) + as_double(y)))

/* f32 sums flush subnormals in global memory only (PTX ISA, atom). */
static void atomic_sums_of_floats_return_the_old_value(void **state)
{
	(void)state;
	fill_operands(81, float_edges, 18);
	a[0] = 0x00800000; /* two normal numbers with a subnormal sum */
	b[0] = 0x80800001;
	check_operands("atom.global.add.f32 %d, [%rd+8], %b;", "w-w-", first32);
	check_operands("atom.add.f32 %d, [%rd+8], %b; ld.global.f32 %d, [%rd+8];", "w-w-", sum_f32_flushed);
	check_operands("red.relaxed.gpu.global.add.f32 [%rd+8], %b; ld.global.f32 %d, [%rd+8];", "w-w-",
		       sum_f32_flushed);
	check_operands(IN_SHARED "atom.shared.add.f32 %d, [%s], %b; ld.shared.f32 %d, [%s];", "w-w-",
		       sum_f32);
	check_operands(IN_SHARED "red.shared::cta.add.f32 [%s], %b; ld.shared.f32 %d, [%s];", "w-w-",
		       sum_f32);
	fill_operands(82, double_edges, 8);
	for (unsigned i = 0; i < N; i++) { /* finite: which NaN a sum makes is not said */
		a[i] &= 0xbfffffffffffffff;
		b[i] &= 0xbfffffffffffffff;
	}
	check_operands("atom.global.add.f64 %d, [%rd+8], %b;", "d-d-", first);
	check_operands("atom.release.cta.global.add.f64 %d, [%rd+8], %b; ld.global.f64 %d, [%rd+8];", "d-d-",
		       sum_f64);
	check_operands("red.global.add.f64 [%rd+8], %b; ld.global.f64 %d, [%rd+8];", "d-d-", sum_f64);
	check_operands(IN_SHARED "atom.shared.add.f64 %d, [%s], %b; ld.shared.f64 %d, [%s];", "d-d-",
		       sum_f64);
	check_operands(IN_SHARED "red.shared.add.f64 [%s], %b; ld.shared.f64 %d, [%s];", "d-d-", sum_f64);
}

/* f16 and bf16: digits with the leading one, exponent of the unit of subnormals. */
static int digits_of(bool is_bf16)
{
	return is_bf16 ? 8 : 11;
}

static int least_of(bool is_bf16)
{
	return is_bf16 ? -133 : -24;
}

static double half_value(uint64_t h, bool is_bf16)
{
	int digits = digits_of(is_bf16), unit = 1 << (digits - 1);
	int magnitude = (int)(h & 0x7fff), exponent = magnitude / unit, rest = magnitude % unit;
	double v = exponent ? ldexp(rest + unit, exponent - 1 + least_of(is_bf16))
			    : ldexp(rest, least_of(is_bf16));

	if (exponent == (is_bf16 ? 255 : 31))
		v = rest ? (double)NAN : (double)INFINITY;
	return h & 0x8000 ? -v : v;
}

static uint64_t half_bits(double v, bool is_bf16)
{
	int digits = digits_of(is_bf16), least = least_of(is_bf16), e;
	uint64_t bits, infinite = is_bf16 ? 0x7f80 : 0x7c00, sign = signbit(v) ? 0x8000 : 0;

	if (v != v)
		return 0x7fff;
	if (v == 0 || isinf(v))
		return sign | (v == 0 ? 0 : infinite);
	e = ilogb(v) - digits + 1 < least ? least : ilogb(v) - digits + 1;
	/* a carry out of the fraction goes on into the exponent */
	bits = (uint64_t)nearbyint(ldexp(fabs(v), -e)) + ((uint64_t)(e - least) << (digits - 1));
	return sign | (bits > infinite ? infinite : bits);
}

static bool is_bf16_text(const char *text)
{
	return strstr(text, ".bf16");
}

/* What the text says, on one pair of halves. */
static uint64_t pick_half(const char *text, uint64_t x, uint64_t y)
{
	bool is_bf16 = is_bf16_text(text), is_max = text[1] == 'a', is_xor = strstr(text, ".xorsign");
	uint64_t sign = (x ^ y) & 0x8000, least = is_bf16 ? 0x80 : 0x400, r;
	double f, g;

	if (strstr(text, ".ftz")) {
		x &= (x & 0x7fff) < least ? 0x8000 : 0xffff;
		y &= (y & 0x7fff) < least ? 0x8000 : 0xffff;
	}
	x &= is_xor ? 0x7fff : 0xffff;
	y &= is_xor ? 0x7fff : 0xffff;
	f = half_value(x, is_bf16);
	g = half_value(y, is_bf16);
	if ((f != f && g != g) || (strstr(text, ".NaN") && (f != f || g != g)))
		return 0x7fff;
	if (f == g)
		r = is_max ? x & y : x | y; /* they differ in sign at most */
	else
		r = f != f ? y : g != g ? x : (f < g) != is_max ? x : y;
	return is_xor ? r | sign : r;
}

static const uint64_t half_edges[] = { 0x00008000, 0x80000000, 0x00010001, 0x80018001, 0x03ff007f, 0x04000080,
				       0x7c007c00, 0xfc00fc00, 0x7e007fc0, 0x7f80ff80, 0xfe01ffff, 0x3c003f80,
				       0xbc00bf80, 0x7bff7f7f, 0x7c017f81, 0x00408040 };

static void minimum_and_maximum_of_halves_keep_the_rules(void **state)
{
	static const char *const texts[] = {
		"min.f16 %d, %a, %b;",
		"min.ftz.f16 %d, %a, %b;",
		"min.NaN.f16 %d, %a, %b;",
		"min.ftz.NaN.xorsign.abs.f16 %d, %a, %b;",
		"min.bf16 %d, %a, %b;",
		"min.xorsign.abs.bf16 %d, %a, %b;",
		"min.f16x2 %d, %a, %b;",
		"min.ftz.xorsign.abs.f16x2 %d, %a, %b;",
		"min.bf16x2 %d, %a, %b;",
		"min.NaN.bf16x2 %d, %a, %b;",
		"max.f16 %d, %a, %b;",
		"max.ftz.f16 %d, %a, %b;",
		"max.xorsign.abs.f16 %d, %a, %b;",
		"max.bf16 %d, %a, %b;",
		"max.NaN.xorsign.abs.bf16 %d, %a, %b;",
		"max.f16x2 %d, %a, %b;",
		"max.ftz.NaN.f16x2 %d, %a, %b;",
		"max.bf16x2 %d, %a, %b;",
		"max.xorsign.abs.bf16x2 %d, %a, %b;",
	};

	(void)state;
	fill_operands(77, half_edges, 16);
	for (unsigned n = 0; n < sizeof(texts) / sizeof(texts[0]); n++) {
		bool is_pair = strstr(texts[n], "16x2");

		rig_op(texts[n], is_pair ? "www-" : "hhh-", N, a, b, NULL, d);
		for (unsigned i = 0; i < N; i++) {
			uint64_t e = pick_half(texts[n], a[i] & 0xffff, b[i] & 0xffff);

			if (is_pair)
				e |= pick_half(texts[n], a[i] >> 16 & 0xffff, b[i] >> 16 & 0xffff) << 16;
			if (d[i] != e)
				fail_msg("%s of %#llx %#llx: %#llx, not %#llx", texts[n],
					 (unsigned long long)a[i], (unsigned long long)b[i],
					 (unsigned long long)d[i], (unsigned long long)e);
		}
	}
}

/* Errors as the PTX ISA states them for ex2 and tanh; one subnormal unit where results are that small. */
static void check_close(const char *text, uint64_t in, uint64_t got)
{
	bool is_bf16 = is_bf16_text(text), is_tanh = text[0] == 't';
	double x = half_value(in, is_bf16), y = is_tanh ? tanh(x) : exp2(x), r = half_value(got, is_bf16);
	double error = is_tanh ? exp2(is_bf16 ? -8 : -10.987) : y * exp2(is_bf16 ? -7 : -9.9);

	if (x != x)
		assert_int_equal(got, 0x7fff);
	else if (isinf(y) || half_bits(y, is_bf16) == half_bits((double)INFINITY, is_bf16))
		assert_true(isinf(r) && r > 0);
	else if (!(fabs(r - y) <= error + ldexp(1, least_of(is_bf16) + (strstr(text, ".ftz") ? 7 : 0))))
		fail_msg("%s of %a: %a, not %a", text, x, r, y);
}

static void approximations_of_halves_are_close(void **state)
{
	static const char *const texts[] = {
		"ex2.approx.f16 %d, %a;",   "ex2.approx.f16x2 %d, %a;",	  "ex2.approx.ftz.bf16 %d, %a;",
		"tanh.approx.f16 %d, %a;",  "tanh.approx.f16x2 %d, %a;",  "ex2.approx.ftz.bf16x2 %d, %a;",
		"tanh.approx.bf16 %d, %a;", "tanh.approx.bf16x2 %d, %a;",
	};

	(void)state;
	fill_operands(78, half_edges, 16);
	for (unsigned n = 0; n < sizeof(texts) / sizeof(texts[0]); n++) {
		bool is_pair = strstr(texts[n], "16x2");

		rig_op(texts[n], is_pair ? "ww--" : "hh--", N, a, NULL, NULL, d);
		for (unsigned i = 0; i < N; i++) {
			check_close(texts[n], a[i] & 0xffff, d[i] & 0xffff);
			if (is_pair)
				check_close(texts[n], a[i] >> 16 & 0xffff, d[i] >> 16);
		}
	}
}

static uint64_t sum_halves(uint64_t x, uint64_t y, bool is_bf16)
{
	return half_bits(half_value(x, is_bf16) + half_value(y, is_bf16), is_bf16);
}

EXPECT(sum_f16, sum_halves(x, y, false))
EXPECT(sum_bf16, sum_halves(x, y, true))
EXPECT(sum_f16x2, sum_halves(x, y, false) | sum_halves(x >> 16, y >> 16, false) << 16)
EXPECT(sum_bf16x2, sum_halves(x, y, true) | sum_halves(x >> 16, y >> 16, true) << 16)

static void atomic_sums_of_halves_keep_subnormals(void **state)
{
	(void)state;
	fill_operands(83, half_edges, 16);
	check_operands("atom.global.add.noftz.f16x2 %d, [%rd+8], %b;", "w-w-", first32);
	check_operands("atom.global.add.noftz.f16 %d, [%rd+8], %b; ld.global.b16 %d, [%rd+8];", "h-h-",
		       sum_f16);
	check_operands("atom.global.add.noftz.f16x2 %d, [%rd+8], %b; ld.global.b32 %d, [%rd+8];", "w-w-",
		       sum_f16x2);
	check_operands("atom.global.add.noftz.bf16 %d, [%rd+8], %b; ld.global.b16 %d, [%rd+8];", "h-h-",
		       sum_bf16);
	check_operands("atom.global.add.noftz.bf16x2 %d, [%rd+8], %b; ld.global.b32 %d, [%rd+8];", "w-w-",
		       sum_bf16x2);
	check_operands("red.global.add.noftz.f16 [%rd+8], %b; ld.global.b16 %d, [%rd+8];", "h-h-", sum_f16);
	check_operands("red.global.add.noftz.f16x2 [%rd+8], %b; ld.global.b32 %d, [%rd+8];", "w-w-",
		       sum_f16x2);
	check_operands("red.global.add.noftz.bf16 [%rd+8], %b; ld.global.b16 %d, [%rd+8];", "h-h-", sum_bf16);
	check_operands("red.global.add.noftz.bf16x2 [%rd+8], %b; ld.global.b32 %d, [%rd+8];", "w-w-",
		       sum_bf16x2);
	check_operands(IN_SHARED "atom.shared.add.noftz.f16x2 %d, [%s], %b; ld.shared.b32 %d, [%s];", "w-w-",
		       sum_f16x2);
	check_operands(IN_SHARED "red.shared.add.noftz.bf16x2 [%s], %b; ld.shared.b32 %d, [%s];", "w-w-",
		       sum_bf16x2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_of_24_bits_are_added_to),
		cmocka_unit_test(pairs_of_integers_are_compared_apart),
		cmocka_unit_test(mad_of_floats_rounds_once),
		cmocka_unit_test(the_minimum_of_doubles_prefers_numbers),
		cmocka_unit_test(atomic_sums_of_floats_return_the_old_value),
		cmocka_unit_test(minimum_and_maximum_of_halves_keep_the_rules),
		cmocka_unit_test(approximations_of_halves_are_close),
		cmocka_unit_test(atomic_sums_of_halves_keep_subnormals),
	};

	return cmocka_run_group_tests_name("ptx rest of arithmetic", tests, NULL, NULL);
}

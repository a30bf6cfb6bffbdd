/* ptx: floating point at its edges. References are computed exactly: in wider types where those hold the result,
 * by the quad-precision type of the compiler where not, then rounded by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

#define N 768

__extension__ typedef __float128 quad;

static uint64_t a[N], b[N], c[N], d[N];

static float as_float(uint64_t v)
{
	uint32_t bits = (uint32_t)v;
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

static double as_double(uint64_t v)
{
	double f;

	memcpy(&f, &v, 8);
	return f;
}

static uint64_t float_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	return f != f ? 0x7fffffff : bits;
}

static uint64_t double_bits(double f)
{
	uint64_t bits;

	memcpy(&bits, &f, 8);
	return bits;
}

static void fill_floats(uint64_t seed)
{
	static const uint32_t edges[] = { 0,	      0x80000000, 1,	      0x80000001, 0x007fffff,
					  0x00800000, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001,
					  0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
					  0x7f800001, 0x00ffffff, 0x4b800000, 0x33800000, 0x34000000 };
	uint64_t *const rows[] = { a, b, c };

	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < N; i++) {
			uint64_t r = rig_random(&seed);

			rows[k][i] = i % 3 == k	  ? edges[r % 20]
				     : i % 3 == 2 ? (uint32_t)(r >> 32)
						  : 0x3f000000 + (r >> 40);
		}
}

/* A quad rounded to `digits` binary digits with exponents from `least` on; the four directions. */
static double round_quad(quad v, int digits, int least, double top, char mode)
{
	bool is_negative = v < 0;
	quad m = is_negative ? -v : v, unit = 1, whole;
	int e = 0;
	bool is_up;
	double r;

	if (v != v)
		return NAN;
	if (v == 0)
		return (double)v;
	if (m - m != 0) /* infinite */
		return (double)v;
	unit = m;
	while (unit >= 2) {
		unit /= 2;
		e++;
	}
	while (unit < 1) {
		unit *= 2;
		e--;
	}
	unit = 1;
	e = e - digits + 1 < least ? least : e - digits + 1;
	for (int i = 0; i < e; i++)
		unit *= 2;
	for (int i = 0; i > e; i--)
		unit /= 2;
	m /= unit;
	whole = (quad)(unsigned long long)m; /* fewer than 64 digits */
	if (mode == 'n')
		is_up = m - whole > (quad)0.5 || (m - whole == (quad)0.5 && (unsigned long long)whole % 2);
	else
		is_up = m > whole && ((mode == 'p' && !is_negative) || (mode == 'm' && is_negative));
	m = (whole + is_up) * unit;
	if (m > (quad)top)
		m = mode == 'n' || (mode == 'p' && !is_negative) || (mode == 'm' && is_negative)
			    ? (quad)INFINITY
			    : (quad)top;
	r = (double)m;
	return is_negative ? -r : r;
}

static float to_float(quad v, char mode)
{
	return (float)round_quad(v, 24, -149, 0x1.fffffep127, mode);
}

static quad exact_f32(char op, quad x, quad y, quad z)
{
	switch (op) {
	case '+':
		return x + y;
	case '-':
		return x - y;
	case '*':
		return x * y;
	case '/':
		return x / y;
	default:
		return x * y + z;
	}
}

/* A zero sum's sign depends on the direction; a product's or quotient's does not. */
static bool is_same(uint64_t got, uint64_t expected, char op, char mode)
{
	if ((op == '+' || op == '-' || op == 'f') && mode != 'n' && !(got & 0x7fffffff) &&
	    !(expected & 0x7fffffff))
		return true;
	return got == expected;
}

static void check_rounded(const char *name, char op, const char *types)
{
	static const char modes[] = { 'n', 'z', 'm', 'p' };

	for (unsigned m = 0; m < 4; m++) {
		char text[64];

		snprintf(text, sizeof(text), "%s.r%c.f32 %%d, %%a, %%b%s;", name, modes[m],
			 op == 'f' ? ", %c" : "");
		rig_op(text, types, N, a, b, c, d);
		for (unsigned i = 0; i < N; i++) {
			float x = as_float(a[i]), y = as_float(b[i]), z = as_float(c[i]);
			uint64_t expected =
				float_bits(to_float(exact_f32(op, (quad)x, (quad)y, (quad)z), modes[m]));

			if (!is_same(d[i], expected, op, modes[m]))
				fail_msg("%s of %a %a %a: %#llx, not %#llx", text, (double)x, (double)y,
					 (double)z, (unsigned long long)d[i], (unsigned long long)expected);
		}
	}
}

/* A quad holds sums of two floats only if they are near: keep the exponents within its 113 digits. */
static void tame(void)
{
	uint64_t *const rows[] = { a, b, c };

	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < N; i++)
			if ((rows[k][i] & 0x7f800000) != 0x7f800000 && (rows[k][i] & 0x7fffffff))
				rows[k][i] = (rows[k][i] & 0x807fffff) |
					     ((0x70 + (rows[k][i] >> 23 & 0x1f)) << 23);
}

static void f32_rounds_once_in_every_direction(void **state)
{
	(void)state;
	fill_floats(51);
	check_rounded("mul", '*', "www-");
	check_rounded("div", '/', "www-");
	tame();
	check_rounded("add", '+', "www-");
	check_rounded("sub", '-', "www-");
	check_rounded("fma", 'f', "wwww");
}

/* sqrt and rcp by what they must satisfy: the result and its neighbour enclose the exact value. */
static void f32_roots_and_reciprocals_are_correctly_rounded(void **state)
{
	(void)state;
	fill_floats(52);
	rig_op("sqrt.rn.f32 %d, %a;", "ww--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], float_bits((float)sqrt((double)as_float(a[i]))));
	rig_op("rcp.rn.f32 %d, %a;", "ww--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], float_bits(to_float((quad)1 / (quad)as_float(a[i]), 'n')));
	rig_op("rcp.rz.f32 %d, %a;", "ww--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], float_bits(to_float((quad)1 / (quad)as_float(a[i]), 'z')));
	rig_op("sqrt.rp.f32 %d, %a;", "ww--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		double x = (double)as_float(a[i]), r = (double)as_float(d[i]);

		if (x > 0 && isfinite(x)) {
			double below = (double)nextafterf((float)r, 0);

			assert_true(r * r >= x && below * below < x);
		}
	}
}

static float flush(float f)
{
	return fpclassify(f) == FP_SUBNORMAL ? copysignf(0, f) : f;
}

static void flushing_and_saturation_are_honoured(void **state)
{
	(void)state;
	fill_floats(53);
	rig_op("mul.ftz.f32 %d, %a, %b;", "www-", N, a, b, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], float_bits(flush(flush(as_float(a[i])) * flush(as_float(b[i])))));
	rig_op("add.sat.f32 %d, %a, %b;", "www-", N, a, b, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		float s = as_float(a[i]) + as_float(b[i]);

		assert_int_equal(d[i], float_bits(s != s ? 0 : s >= 1 ? 1 : s > 0 ? s : 0));
	}
	rig_op("fma.rn.ftz.sat.f32 %d, %a, %b, %c;", "wwww", N, a, b, c, d);
	for (unsigned i = 0; i < N; i++) {
		float s = fmaf(flush(as_float(a[i])), flush(as_float(b[i])), flush(as_float(c[i])));

		assert_int_equal(d[i], float_bits(s != s ? 0 : s >= 1 ? 1 : s > 0 ? flush(s) : 0));
	}
}

static void minimum_and_maximum_prefer_numbers(void **state)
{
	(void)state;
	fill_floats(54);
	rig_op("min.f32 %d, %a, %b;", "www-", N, a, b, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		float x = as_float(a[i]), y = as_float(b[i]);
		float r = x != x ? y : y != y ? x : x < y ? x : y < x ? y : signbit(x) ? x : y;

		assert_int_equal(d[i], float_bits(r));
	}
	rig_op("max.NaN.f32 %d, %a, %b;", "www-", N, a, b, NULL, d);
	for (unsigned i = 0; i < N; i++) {
		float x = as_float(a[i]), y = as_float(b[i]);
		float r = x != x || y != y ? NAN : x > y ? x : y > x ? y : signbit(x) ? y : x;

		assert_int_equal(d[i], float_bits(r));
	}
	rig_op("abs.f32 %d, %a;", "ww--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		/* one NaN: measured on an H200 */
		assert_int_equal(d[i], isnan(as_float(a[i])) ? 0x7fffffff : a[i] & 0x7fffffff);
	rig_op("copysign.f32 %d, %a, %b;", "www-", N, a, b, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], (b[i] & 0x7fffffff) | (a[i] & 0x80000000));
}

static bool holds(const char *name, float x, float y)
{
	bool unordered = x != x || y != y;
	size_t length = strlen(name);
	bool takes_nan = length == 3 && name[2] == 'u';

	if (!strcmp(name, "num"))
		return !unordered;
	if (!strcmp(name, "nan"))
		return unordered;
	if (unordered)
		return takes_nan;
	switch (name[0] << 8 | name[1]) {
	case 'e' << 8 | 'q':
		return x == y;
	case 'n' << 8 | 'e':
		return x != y;
	case 'l' << 8 | 't':
		return x < y;
	case 'l' << 8 | 'e':
		return x <= y;
	case 'g' << 8 | 't':
		return x > y;
	default:
		return x >= y;
	}
}

static void comparisons_know_what_is_not_ordered(void **state)
{
	static const char *const names[] = { "eq",  "ne",  "lt",  "le",	 "gt",	"ge",  "equ",
					     "neu", "ltu", "leu", "gtu", "geu", "num", "nan" };
	char text[64];

	(void)state;
	fill_floats(55);
	for (unsigned n = 0; n < 14; n++) {
		snprintf(text, sizeof(text), "setp.%s.f32 %%d, %%a, %%b;", names[n]);
		rig_op(text, "pww-", N, a, b, NULL, d);
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(d[i], holds(names[n], as_float(a[i]), as_float(b[i])));
	}
	rig_op("testp.subnormal.f32 %d, %a;", "pw--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], fpclassify(as_float(a[i])) == FP_SUBNORMAL);
	rig_op("set.gt.f32.f32 %d, %a, %b;", "www-", N, a, b, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], as_float(a[i]) > as_float(b[i]) ? 0x3f800000 : 0);
}

/* Sign and fraction within `mask`, `count` exponents from `least` on. One number after the other: the operands are the
 * same whatever the compiler, so that dumps can be compared. */
static uint64_t random_double(uint64_t *seed, uint64_t mask, uint64_t least, uint64_t count)
{
	uint64_t fraction = rig_random(seed) & mask;

	return fraction | (least + rig_random(seed) % count) << 52;
}

static void f64_rounds_once_in_every_direction(void **state)
{
	static const char modes[] = { 'n', 'z', 'm', 'p' };
	uint64_t seed = 56;

	(void)state;
	for (unsigned i = 0; i < N; i++) { /* products and quotients that a quad tells apart */
		a[i] = random_double(&seed, 0x800fffffffffffff, 1000, 40);
		b[i] = random_double(&seed, 0x800fffffffffffff, 1000, 40);
		c[i] = random_double(&seed, 0x800ffff000000000, 1010, 20);
	}
	for (unsigned m = 0; m < 4; m++) {
		char text[64];

		snprintf(text, sizeof(text), "mul.r%c.f64 %%d, %%a, %%b;", modes[m]);
		rig_op(text, "ddd-", N, a, b, NULL, d);
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(
				d[i], double_bits(round_quad((quad)as_double(a[i]) * (quad)as_double(b[i]),
							     53, -1074, 0x1.fffffffffffffp1023, modes[m])));
		snprintf(text, sizeof(text), "add.r%c.f64 %%d, %%a, %%b;", modes[m]);
		rig_op(text, "ddd-", N, a, b, NULL, d);
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(
				d[i], double_bits(round_quad((quad)as_double(a[i]) + (quad)as_double(b[i]),
							     53, -1074, 0x1.fffffffffffffp1023, modes[m])));
		snprintf(text, sizeof(text), "div.r%c.f64 %%d, %%a, %%b;", modes[m]);
		rig_op(text, "ddd-", N, a, b, NULL, d);
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(
				d[i], double_bits(round_quad((quad)as_double(a[i]) / (quad)as_double(b[i]),
							     53, -1074, 0x1.fffffffffffffp1023, modes[m])));
	}
	rig_op("fma.rn.f64 %d, %a, %b, %c;", "dddd", N, a, b, c, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], double_bits(fma(as_double(a[i]), as_double(b[i]), as_double(c[i]))));
	rig_op("sqrt.rn.f64 %d, %a;", "dd--", N, a, NULL, NULL, d);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(d[i], double_bits(sqrt(as_double(a[i]))));
}

/* How far an approximation may be from the exact result y of x: PTX ISA, "Floating Point Instructions",
 * as it has been since it gives ranges for sin and cos. */
static double ex2_error(double x, double y)
{
	(void)x; /* two units from the rounded result, which is half of one from the exact */
	return ldexp(2.5, ilogb(y) - 23);
}

static double lg2_error(double x, double y)
{
	return x > 0.5 && x < 2 ? 0x1p-22 : fabs(y) * 0x1p-22;
}

static double sin_error(double x, double y)
{
	(void)y;
	assert_true(fabs(x) <= 2 * 3.14159265); /* it is worse outside */
	return exp2(-20.5);
}

static double tanh_error(double x, double y)
{
	(void)x;
	return fabs(y) * 0x1p-11;
}

static double rsqrt_error(double x, double y)
{
	(void)x;
	return y * exp2(-22.9);
}

static double inverse_root(double x)
{
	return 1 / sqrt(x);
}

static void approximations_are_close(void **state)
{
	static const struct {
		const char *text;
		double (*exact)(double);
		double (*error)(double, double);
	} ops[] = { { "ex2.approx.f32 %d, %a;", exp2, ex2_error },
		    { "lg2.approx.f32 %d, %a;", log2, lg2_error },
		    { "sin.approx.f32 %d, %a;", sin, sin_error },
		    { "cos.approx.f32 %d, %a;", cos, sin_error },
		    { "tanh.approx.f32 %d, %a;", tanh, tanh_error },
		    { "rsqrt.approx.f32 %d, %a;", inverse_root, rsqrt_error } };
	uint64_t seed = 57;

	(void)state;
	for (unsigned i = 0; i < N; i++)
		a[i] = float_bits(fabsf(rig_random_float(&seed)) * 3.0f + 0.001f);
	for (unsigned n = 0; n < sizeof(ops) / sizeof(ops[0]); n++) {
		rig_op(ops[n].text, "ww--", N, a, NULL, NULL, d);
		for (unsigned i = 0; i < N; i++) {
			double x = (double)as_float(a[i]), y = ops[n].exact(x), got = (double)as_float(d[i]);

			if (!(fabs(got - y) <= ops[n].error(x, y)))
				fail_msg("%s of %a: %a, not %a", ops[n].text, x, got, y);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f32_rounds_once_in_every_direction),
		cmocka_unit_test(f32_roots_and_reciprocals_are_correctly_rounded),
		cmocka_unit_test(flushing_and_saturation_are_honoured),
		cmocka_unit_test(minimum_and_maximum_prefer_numbers),
		cmocka_unit_test(comparisons_know_what_is_not_ordered),
		cmocka_unit_test(f64_rounds_once_in_every_direction),
		cmocka_unit_test(approximations_are_close),
	};

	return cmocka_run_group_tests_name("ptx floats", tests, NULL, NULL);
}

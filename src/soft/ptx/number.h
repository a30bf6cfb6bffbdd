/* Floating-point values: canonical NaNs, flushing, halves. All exact, without changes of the rounding
 * mode. */
#ifndef BELFRY_SOFT_PTX_NUMBER_H
#define BELFRY_SOFT_PTX_NUMBER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "soft/ptx/code.h"

static inline float ptx_f32(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline uint32_t ptx_bits32(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static inline double ptx_f64(uint64_t bits)
{
	double d;

	memcpy(&d, &bits, sizeof(d));
	return d;
}

static inline uint64_t ptx_bits64(double d)
{
	uint64_t bits;

	memcpy(&bits, &d, sizeof(bits));
	return bits;
}

/* f32 results have one NaN, 0x7fffffff (PTX ISA, "Floating Point Instructions"). */
static inline float ptx_canon(float f)
{
	return f != f ? ptx_f32(0x7fffffff) : f;
}

static inline float ptx_flush(float f)
{
	uint32_t bits = ptx_bits32(f);

	return ptx_f32(bits & 0x7f800000 ? bits : bits & 0x80000000);
}

static inline float ptx_saturate(float f)
{
	return f != f ? 0.0f : f > 1.0f ? 1.0f : f > 0.0f ? f : 0.0f;
}

/* Round a double once to `digits` binary digits, with exponents from `least` on (the unit of subnormals).
 * `top` is the largest finite value of the format. */
static inline double ptx_round_to(double value, int digits, int least, double top, unsigned round)
{
	double magnitude = fabs(value), unit, whole, rest;
	bool is_negative = signbit(value), is_up;
	int exponent;

	if (!(magnitude > 0) || isinf(magnitude))
		return value;
	exponent = ilogb(magnitude) - (digits - 1);
	if (exponent < least)
		exponent = least;
	unit = ldexp(1.0, exponent);
	whole = floor(magnitude / unit); /* exact: a power of two, and far from the subnormals of a double */
	rest = magnitude - whole * unit;
	if (round == PTX_RN)
		is_up = rest * 2 > unit || (rest * 2 == unit && fmod(whole, 2) != 0);
	else
		is_up = rest > 0 && round == (is_negative ? PTX_RM : PTX_RP);
	magnitude = (whole + is_up) * unit;
	if (magnitude > top) /* away from zero: infinity; towards zero: the largest */
		magnitude = round == PTX_RN || round == (is_negative ? PTX_RM : PTX_RP) ? (double)INFINITY
											: top;
	return is_negative ? -magnitude : magnitude;
}

static inline float ptx_from_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
	float normal = ptx_f32((magnitude << 13) + 0x38000000);
	float small = (float)magnitude * 0x1p-24f;
	uint32_t bits = magnitude >= 0x7c00 ? (magnitude << 13) + 0x70000000
					    : ptx_bits32(magnitude < 0x400 ? small : normal);

	return ptx_f32(bits | sign);
}

/* Round a float to nearest even, with integer arithmetic only. */
static inline uint16_t ptx_to_f16(float f)
{
	uint32_t bits = ptx_bits32(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
	uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
	/* adding 0.5 aligns the unit of a subnormal half with that of the float, and rounds it */
	uint32_t small = ptx_bits32(ptx_f32(magnitude) + 0.5f) - 0x3f000000;
	uint32_t result = magnitude < 0x38800000 ? small : normal;

	if (magnitude > 0x7f800000)
		return 0x7fff;
	return (uint16_t)(sign | (magnitude >= 0x477ff000 ? 0x7c00 : result));
}

static inline float ptx_from_bf16(uint16_t h)
{
	return ptx_f32((uint32_t)h << 16);
}

static inline uint16_t ptx_to_bf16(float f)
{
	uint32_t bits = ptx_bits32(f);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return 0x7fff;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Convert a double to a float whose last bit is odd if bits were lost: rounding it to a half is then a single
 * rounding. */
static inline float ptx_odd_f32(double d)
{
	float f = (float)d;
	uint32_t bits = ptx_bits32(f);
	bool is_exact = (double)f == d, is_infinite = (bits & 0x7fffffff) == 0x7f800000;
	bool is_above = (fabs((double)f) > fabs(d));

	if (is_exact || is_infinite || (bits & 1))
		return f;
	return ptx_f32(is_above ? bits - 1 : bits + 1);
}

/* Round with any mode from a double that holds the exact value (or one that rounds the same: see
 * ptx_add_odd). */
static inline uint16_t ptx_round_f16(double d, unsigned round)
{
	if (d != d)
		return 0x7fff;
	if (round == PTX_RN)
		return ptx_to_f16(ptx_odd_f32(d));
	return ptx_to_f16((float)ptx_round_to(d, 11, -24, 65504.0, round));
}

static inline uint16_t ptx_round_bf16(double d, unsigned round)
{
	if (d != d)
		return 0x7fff;
	if (round == PTX_RN)
		return ptx_to_bf16(ptx_odd_f32(d));
	return ptx_to_bf16((float)ptx_round_to(d, 8, -133, 0x1.fep127, round));
}

/* a + b, with the last bit set if the sum is inexact: rounding it to fewer digits gives the same as rounding
 * the exact sum (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums"). */
static inline double ptx_add_odd(double a, double b)
{
	double sum = a + b, part = sum - a, error = (a - (sum - part)) + (b - part);
	uint64_t bits = ptx_bits64(sum);

	if (error == 0 || sum != sum || isinf(sum) || (bits & 1))
		return sum;
	/* the exact sum is between sum and its neighbour on the side of error; the odd one of the two is the
	 * neighbour */
	return ptx_f64((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

static inline float ptx_min_f32(float a, float b)
{
	if (a != a)
		return ptx_canon(b);
	if (b != b)
		return a;
	return a < b || (a == b && signbit(a)) ? a : b;
}

static inline float ptx_max_f32(float a, float b)
{
	if (a != a)
		return ptx_canon(b);
	if (b != b)
		return a;
	return a > b || (a == b && !signbit(a)) ? a : b;
}

/* min or max with all its qualifiers. */
static inline float ptx_pick_f32(float a, float b, bool is_max, unsigned flags)
{
	uint32_t sign = (ptx_bits32(a) ^ ptx_bits32(b)) & 0x80000000;
	float r;

	if (flags & PTX_FLAG_XORSIGN) {
		a = fabsf(a);
		b = fabsf(b);
	}
	if ((flags & PTX_FLAG_NAN) && (a != a || b != b))
		return ptx_f32(0x7fffffff);
	r = is_max ? ptx_max_f32(a, b) : ptx_min_f32(a, b);
	return (flags & PTX_FLAG_XORSIGN) && r == r ? ptx_f32(ptx_bits32(r) | sign) : r;
}

#endif

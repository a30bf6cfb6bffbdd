/* Conversions. The general path uses a canonical value: integers as 64 bits and a sign, floating point as a
 * double, which holds every f16, bf16 and f32 exactly. Common pairs have their own loops. Built with
 * -frounding-math: the general path sets the processor's rounding mode. */
#include <fenv.h>

#include "soft/ptx/lane.h"
#include "soft/ptx/lowerings.h"
#include "soft/ptx/number.h"

PTX_OP1(u32_u64, uint64_t, uint32_t, a)
PTX_OP1(s32_s64, int64_t, int32_t, a)
PTX_OP1(low_32, uint32_t, uint64_t, a)
PTX_OP1(s32_f32, float, int32_t, a)
PTX_OP1(u32_f32, float, uint32_t, a)
PTX_OP1(f32_f64, double, float, a)
PTX_OP1(f64_f32, float, double, ptx_canon((float)a))
PTX_OP1(s32_f64, double, int32_t, a)
PTX_OP1(f16_f32, float, uint16_t, ptx_canon(ptx_from_f16(a)))
PTX_OP1(f32_f16, uint16_t, float, ptx_to_f16(a))

static inline int32_t truncate(float v)
{
	if (v != v)
		return 0;
	return v >= 0x1p31f ? INT32_MAX : v < -0x1p31f ? INT32_MIN : (int32_t)v;
}

PTX_OP1(f32_s32, int32_t, float, truncate(a))

static bool is_float(unsigned type)
{
	return type == PTX_TYPE_F16 || type == PTX_TYPE_BF16 || type == PTX_TYPE_F32 || type == PTX_TYPE_F64;
}

static bool is_signed(unsigned type)
{
	return type == PTX_TYPE_S8 || type == PTX_TYPE_S16 || type == PTX_TYPE_S32 || type == PTX_TYPE_S64;
}

struct value {
	uint64_t bits; /* an integer, sign-extended if its type is signed */
	double d;
};

static inline struct value read_value(const uint8_t *at, unsigned type, unsigned flags)
{
	unsigned bytes = ptx_type_bytes((enum ptx_type)type);
	struct value v = { 0 };

	memcpy(&v.bits, at, bytes);
	if (is_signed(type) && bytes < 8)
		v.bits = (uint64_t)((int64_t)(v.bits << (64 - 8 * bytes)) >> (64 - 8 * bytes));
	if (type == PTX_TYPE_F16)
		v.d = (double)ptx_from_f16((uint16_t)v.bits);
	else if (type == PTX_TYPE_BF16)
		v.d = (double)ptx_from_bf16((uint16_t)v.bits);
	else if (type == PTX_TYPE_F32)
		v.d = (double)(flags & PTX_FLAG_FTZ ? ptx_flush(ptx_f32((uint32_t)v.bits))
						    : ptx_f32((uint32_t)v.bits));
	else if (type == PTX_TYPE_F64)
		v.d = ptx_f64(v.bits);
	return v;
}

static int64_t least_of(unsigned type)
{
	return is_signed(type) ? (int64_t)(~0ull << (8 * ptx_type_bytes((enum ptx_type)type) - 1)) : 0;
}

static uint64_t most_of(unsigned type)
{
	unsigned bits = 8 * ptx_type_bytes((enum ptx_type)type) - (is_signed(type) ? 1 : 0);

	return bits >= 64 ? ~0ull : (1ull << bits) - 1;
}

static uint64_t integer_to_integer(uint64_t v, unsigned from, unsigned to, unsigned flags)
{
	bool is_negative = is_signed(from) && (int64_t)v < 0;

	if (!(flags & PTX_FLAG_SAT))
		return v;
	if (is_negative)
		return (int64_t)v < least_of(to) ? (uint64_t)least_of(to) : v;
	return v > most_of(to) ? most_of(to) : v;
}

static double to_integral(double v, unsigned round)
{
	switch (round) {
	case PTX_RN:
		return rint(v); /* the processor's rounding mode is nearest here */
	case PTX_RZ:
		return trunc(v);
	case PTX_RM:
		return floor(v);
	default:
		return ceil(v);
	}
}

/* The result for a NaN: 0, or only the top bit if 64 bits are involved (PTX ISA, "cvt"; f64 was measured on
 * an H200). */
static uint64_t integer_of_nan(unsigned from, unsigned to)
{
	unsigned bytes = ptx_type_bytes((enum ptx_type)to);

	return from == PTX_TYPE_F64 || bytes == 8 ? 1ull << (8 * bytes - 1) : 0;
}

/* Values out of range are clamped, with or without .sat. */
static uint64_t float_to_integer(double d, unsigned from, unsigned to, unsigned round)
{
	double whole = to_integral(d, round);

	if (whole != whole)
		return integer_of_nan(from, to);
	if (whole <= (double)least_of(to))
		return (uint64_t)least_of(to);
	if (whole >= (double)most_of(to)) /* 2^63 and 2^64 after rounding: also clamped */
		return most_of(to);
	return whole < 0 ? (uint64_t)(int64_t)whole : (uint64_t)whole;
}

/* Convert an integer to a double that rounds on to the same result: if bits are lost, the last bit is set. */
static double integer_to_odd(uint64_t v, bool is_negative)
{
	uint64_t magnitude = is_negative ? 0 - v : v;
	uint64_t kept = magnitude >> 11 << 11;

	if (magnitude >> 53)
		magnitude = kept | (magnitude != kept ? 1u << 11 : 0);
	return is_negative ? -(double)magnitude : (double)magnitude;
}

static uint32_t double_to_f32(double d, unsigned round)
{
	static const int modes[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD };
	volatile double in = d;
	volatile float out;

	if (round == PTX_RN)
		return ptx_bits32((float)d);
	fesetround(modes[round]);
	out = (float)in;
	fesetround(FE_TONEAREST);
	return ptx_bits32(out);
}

/* .satfinite: a finite result in place of an infinite one, for a finite source. */
static uint64_t limit(uint64_t h, unsigned to, unsigned flags)
{
	uint64_t infinite = to == PTX_TYPE_F16 ? 0x7c00 : 0x7f80;

	if (!(flags & PTX_FLAG_SATFINITE) || (h & 0x7fff) != infinite)
		return h;
	return h - 1;
}

static uint64_t float_to_float(double d, unsigned from, unsigned to, const struct ptx_op *op)
{
	uint32_t bits;

	if (op->flags & PTX_FLAG_INTEGRAL)
		d = to_integral(d, op->mode);
	if (op->flags & PTX_FLAG_SAT)
		d = d != d ? 0 : d > 1 ? 1 : d > 0 ? d : 0;
	if ((op->flags & PTX_FLAG_RELU) && d == d && !(d > 0))
		d = 0;
	switch (to) {
	case PTX_TYPE_F16:
		return limit(ptx_round_f16(d, op->mode), to, op->flags);
	case PTX_TYPE_BF16:
		return limit(ptx_round_bf16(d, op->mode), to, op->flags);
	case PTX_TYPE_F32:
		bits = d != d ? 0x7fffffff
			      : double_to_f32(d, op->flags & PTX_FLAG_INTEGRAL ? PTX_RN : op->mode);
		return op->flags & PTX_FLAG_FTZ ? ptx_bits32(ptx_flush(ptx_f32(bits))) : bits;
	default:
		(void)from;
		return ptx_bits64(d);
	}
}

/* 64 bits to a double: the only pair for which a double does not hold the source exactly. */
static double integer_to_f64(uint64_t v, bool is_negative, unsigned round)
{
	static const int modes[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD };
	volatile uint64_t in = v;
	volatile double out;

	fesetround(modes[round]);
	out = is_negative ? (double)(int64_t)in : (double)in;
	fesetround(FE_TONEAREST);
	return out;
}

static uint64_t convert_one(const struct value *v, const struct ptx_op *op)
{
	unsigned from = op->type2, to = op->combine;
	bool is_negative = is_signed(from) && (int64_t)v->bits < 0;

	/* this conversion is a shift and keeps the bits of a NaN: measured on an H200 */
	if (from == PTX_TYPE_BF16 && to == PTX_TYPE_F32 && v->d != v->d && !(op->flags & PTX_FLAG_SAT))
		return v->bits << 16;
	if (is_float(from))
		return is_float(to) ? float_to_float(v->d, from, to, op)
				    : float_to_integer(v->d, from, to, op->mode);
	if (!is_float(to))
		return integer_to_integer(v->bits, from, to, op->flags);
	if (to == PTX_TYPE_F64)
		return ptx_bits64(integer_to_f64(v->bits, is_negative, op->mode));
	return float_to_float(integer_to_odd(v->bits, is_negative), from, to, op);
}

PTX_HANDLER(convert)
{
	const uint8_t *in = ptx_in(w, op->r[1]);
	uint8_t *out = ptx_out(w, op->r[0]);
	unsigned bytes = ptx_type_bytes((enum ptx_type)op->combine), width = op->width;
	int before = fegetround();

	fesetround(FE_TONEAREST);
	for (unsigned i = 0; i < PTX_LANES; i++) {
		struct value v;
		uint64_t result;

		if (!(mask >> i & 1))
			continue;
		v = read_value(in + (size_t)i * op->vector, op->type2, op->flags);
		result = convert_one(&v, op);
		if (bytes < 8) { /* a wider register holds the result, extended by the sign of its type */
			unsigned unused = 64 - 8 * bytes;

			result = is_signed(op->combine) ? (uint64_t)((int64_t)(result << unused) >> unused)
							: result << unused >> unused;
		}
		memcpy(out + (size_t)i * width, &result, width);
	}
	fesetround(before);
}

/* d = {a high, b low} */
PTX_HANDLER(convert_pair)
{
	const float *a = ptx_in(w, op->r[1]), *b = ptx_in(w, op->r[2]);
	uint32_t *d = ptx_out(w, op->r[0]);
	struct ptx_op one = *op;
	unsigned to = op->type == PTX_TYPE_F16X2 ? PTX_TYPE_F16 : PTX_TYPE_BF16;

	for (unsigned i = 0; i < PTX_LANES; i++)
		if (mask >> i & 1)
			d[i] = (uint32_t)(float_to_float((double)a[i], PTX_TYPE_F32, to, &one) << 16 |
					  float_to_float((double)b[i], PTX_TYPE_F32, to, &one));
}

ptx_handler PTX_BUILT(ptx_find_convert)(unsigned family, unsigned type)
{
	static const ptx_handler fast[PTX_CVT_PAIRS] = {
		[PTX_CVT_U32_U64] = u32_u64, [PTX_CVT_S32_S64] = s32_s64, [PTX_CVT_64_32] = low_32,
		[PTX_CVT_S32_F32] = s32_f32, [PTX_CVT_U32_F32] = u32_f32, [PTX_CVT_F32_S32_RZ] = f32_s32,
		[PTX_CVT_F32_F64] = f32_f64, [PTX_CVT_F64_F32] = f64_f32, [PTX_CVT_S32_F64] = s32_f64,
		[PTX_CVT_F16_F32] = f16_f32, [PTX_CVT_F32_F16] = f32_f16,
	};

	if (family == PTX_CVTFAST)
		return type < PTX_CVT_PAIRS ? fast[type] : NULL;
	if (family == PTX_CVT2)
		return type == PTX_TYPE_F16X2 || type == PTX_TYPE_BF16X2 ? convert_pair : NULL;
	return family == PTX_CVT && type == PTX_TYPE_NONE ? convert : NULL;
}

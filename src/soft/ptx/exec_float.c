/* f32 and f64, rounded to nearest: the common path. f32 results have the canonical NaN. */
#include "soft/ptx/lane.h"
#include "soft/ptx/number.h"

#define FLUSH3(expr) ptx_flush(ptx_canon(expr))
#define IN(x) ptx_flush(x)

PTX_OP2(add_f32, float, float, float, ptx_canon(a + b))
PTX_OP2(sub_f32, float, float, float, ptx_canon(a - b))
PTX_OP2(mul_f32, float, float, float, ptx_canon(a *b))
PTX_OP3(fma_f32, float, float, float, float, ptx_canon(__builtin_fmaf(a, b, c)))
PTX_OP2(div_f32, float, float, float, ptx_canon(a / b))
PTX_OP1(rcp_f32, float, float, ptx_canon(1.0f / a))
PTX_OP1(sqrt_f32, float, float, ptx_canon(__builtin_sqrtf(a)))

PTX_OP2(add_f32z, float, float, float, FLUSH3(IN(a) + IN(b)))
PTX_OP2(sub_f32z, float, float, float, FLUSH3(IN(a) - IN(b)))
PTX_OP2(mul_f32z, float, float, float, FLUSH3(IN(a) * IN(b)))
PTX_OP3(fma_f32z, float, float, float, float, FLUSH3(__builtin_fmaf(IN(a), IN(b), IN(c))))
PTX_OP2(div_f32z, float, float, float, FLUSH3(IN(a) / IN(b)))
PTX_OP1(rcp_f32z, float, float, FLUSH3(1.0f / IN(a)))
PTX_OP1(sqrt_f32z, float, float, FLUSH3(__builtin_sqrtf(IN(a))))

PTX_OP2(add_f64, double, double, double, a + b)
PTX_OP2(sub_f64, double, double, double, a - b)
PTX_OP2(mul_f64, double, double, double, a *b)
PTX_OP3(fma_f64, double, double, double, double, __builtin_fma(a, b, c))
PTX_OP2(div_f64, double, double, double, a / b)
PTX_OP1(rcp_f64, double, double, 1.0 / a)
PTX_OP1(sqrt_f64, double, double, __builtin_sqrt(a))

/* abs of a NaN is the canonical NaN, copysign keeps its bits: measured on an H200, docs/ptx.md. neg was not
 * measured. */
PTX_OP1(abs_f32, float, float, ptx_canon(__builtin_fabsf(a)))
PTX_OP1(neg_f32, uint32_t, uint32_t, a ^ 0x80000000)
PTX_OP1(abs_f64, uint64_t, uint64_t, a & 0x7fffffffffffffff)
PTX_OP1(neg_f64, uint64_t, uint64_t, a ^ 0x8000000000000000)
PTX_OP1(abs_f32z, float, float, ptx_canon(__builtin_fabsf(IN(a))))
PTX_OP1(neg_f32z, float, float, -IN(a))
PTX_OP2(copysign_f32, uint32_t, uint32_t, uint32_t, (b & 0x7fffffff) | (a & 0x80000000))
PTX_OP2(copysign_f64, uint64_t, uint64_t, uint64_t, (b & 0x7fffffffffffffff) | (a & 0x8000000000000000))

PTX_OP2(min_f32, float, float, float, ptx_pick_f32(a, b, false, op->flags))
PTX_OP2(max_f32, float, float, float, ptx_pick_f32(a, b, true, op->flags))
PTX_OP2(min_f32z, float, float, float, ptx_pick_f32(IN(a), IN(b), false, op->flags))
PTX_OP2(max_f32z, float, float, float, ptx_pick_f32(IN(a), IN(b), true, op->flags))

static inline double pick_f64(double a, double b, bool is_max)
{
	if (a != a)
		return b;
	if (b != b)
		return a;
	if (a == b)
		return (signbit(a) != 0) != is_max ? a : b;
	return (a < b) != is_max ? a : b;
}

PTX_OP2(min_f64, double, double, double, pick_f64(a, b, false))
PTX_OP2(max_f64, double, double, double, pick_f64(a, b, true))

/* Approximations: computed as a double and rounded once, so more accurate than the hardware guarantees. */
static inline float approx(double v, bool is_flushed)
{
	float f = ptx_canon((float)v);

	return is_flushed ? ptx_flush(f) : f;
}

PTX_OP1(rsqrt_f32, float, float, approx(1.0 / __builtin_sqrt((double)a), false))
PTX_OP1(rsqrt_f32z, float, float, approx(1.0 / __builtin_sqrt((double)IN(a)), true))
PTX_OP1(ex2_f32, float, float, approx(exp2((double)a), false))
PTX_OP1(ex2_f32z, float, float, approx(exp2((double)IN(a)), true))
PTX_OP1(lg2_f32, float, float, approx(log2((double)a), false))
PTX_OP1(lg2_f32z, float, float, approx(log2((double)IN(a)), true))
PTX_OP1(sin_f32, float, float, approx(sin((double)a), false))
PTX_OP1(sin_f32z, float, float, approx(sin((double)IN(a)), true))
PTX_OP1(cos_f32, float, float, approx(cos((double)a), false))
PTX_OP1(cos_f32z, float, float, approx(cos((double)IN(a)), true))
PTX_OP1(tanh_f32, float, float, approx(tanh((double)a), false))

/* rsqrt.approx.ftz.f64 computes only the high half. */
static inline double coarse(double v)
{
	return v != v ? v : ptx_f64(ptx_bits64(v) & 0xffffffff00000000);
}

static inline double flush_f64(double v)
{
	uint64_t bits = ptx_bits64(v);

	return bits & 0x7ff0000000000000 ? v : ptx_f64(bits & 0x8000000000000000);
}

PTX_OP1(rsqrt_f64, double, double,
	op->flags &PTX_FLAG_FTZ ? coarse(1.0 / __builtin_sqrt(flush_f64(a))) : 1.0 / __builtin_sqrt(a))
PTX_OP1(rcp_coarse, double, double, coarse(flush_f64(1.0 / flush_f64(a))))

#define THREE(family, handler) \
	[family][PTX_TYPE_F32] = handler##_f32, [family][PTX_TYPE_F32Z] = handler##_f32z, \
	[family][PTX_TYPE_F64] = handler##_f64
#define SINGLE(family, handler) \
	[family][PTX_TYPE_F32] = handler##_f32, [family][PTX_TYPE_F32Z] = handler##_f32z

ptx_handler PTX_BUILT(ptx_find_float)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT][PTX_TYPE_COUNT] = {
		THREE(PTX_FADD, add),
		THREE(PTX_FSUB, sub),
		THREE(PTX_FMUL, mul),
		THREE(PTX_FMA, fma),
		THREE(PTX_FDIV, div),
		THREE(PTX_FRCP, rcp),
		THREE(PTX_FSQRT, sqrt),
		THREE(PTX_FABS, abs),
		THREE(PTX_FNEG, neg),
		THREE(PTX_FMIN, min),
		THREE(PTX_FMAX, max),
		THREE(PTX_FRSQRT, rsqrt),
		SINGLE(PTX_EX2, ex2),
		SINGLE(PTX_LG2, lg2),
		SINGLE(PTX_SIN, sin),
		SINGLE(PTX_COS, cos),
		[PTX_TANH][PTX_TYPE_F32] = tanh_f32,
		[PTX_FCOPYSIGN][PTX_TYPE_F32] = copysign_f32,
		[PTX_FCOPYSIGN][PTX_TYPE_F64] = copysign_f64,
		[PTX_FRCPR][PTX_TYPE_NONE] = rcp_coarse,
	};

	return handlers[family][type];
}

/* f32 and f64 with a rounding mode or saturation: the processor's rounding mode is set for one instruction of
 * the whole warp. This file is built with -frounding-math. */
#include <fenv.h>

#include "soft/ptx/lane.h"
#include "soft/ptx/number.h"

static int mode_of(const struct ptx_op *op)
{
	static const int modes[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD };

	return modes[op->mode & 3];
}

static inline float f32_in(float v, unsigned flags)
{
	return flags & PTX_FLAG_FTZ ? ptx_flush(v) : v;
}

static inline float f32_out(float v, unsigned flags)
{
	if (flags & PTX_FLAG_SAT)
		v = ptx_saturate(v);
	v = ptx_canon(v);
	return flags & PTX_FLAG_FTZ ? ptx_flush(v) : v;
}

/* The operands are volatile: the compiler must not move a computation out of the section with this mode. */
#define ROUNDED(name, T, expr) \
	static void name##_lanes(const struct ptx_warp *w, const struct ptx_op *op, T *t) \
	{ \
		const T *pa = ptx_in(w, op->r[1]); \
		const T *pb = op->count > 2 ? ptx_in(w, op->r[2]) : pa; \
		const T *pc = op->count > 3 ? ptx_in(w, op->r[3]) : pa; \
		for (unsigned i = 0; i < PTX_LANES; i++) { \
			volatile T result; \
			volatile T a = pa[i], b = pb[i], c = pc[i]; \
			result = (expr); \
			t[i] = result; \
			(void)b; \
			(void)c; \
		} \
	} \
	PTX_HANDLER(name) \
	{ \
		int before = fegetround(); \
		T t[PTX_LANES] = { 0 }; \
		fesetround(mode_of(op)); \
		name##_lanes(w, op, t); \
		fesetround(before); \
		ptx_merge(ptx_out(w, op->r[0]), t, sizeof(T), mask); \
	}

#define F(x) f32_in(x, op->flags)
#define R(x) f32_out(x, op->flags)
ROUNDED(add_f32, float, R(F(a) + F(b)))
ROUNDED(sub_f32, float, R(F(a) - F(b)))
ROUNDED(mul_f32, float, R(F(a) * F(b)))
ROUNDED(fma_f32, float, R(fmaf(F(a), F(b), F(c))))
ROUNDED(div_f32, float, R(F(a) / F(b)))
ROUNDED(rcp_f32, float, R(1.0f / F(a)))
ROUNDED(sqrt_f32, float, R(sqrtf(F(a))))
ROUNDED(add_f64, double, a + b)
ROUNDED(sub_f64, double, a - b)
ROUNDED(mul_f64, double, a *b)
ROUNDED(fma_f64, double, fma(a, b, c))
ROUNDED(div_f64, double, a / b)
ROUNDED(rcp_f64, double, 1.0 / a)
ROUNDED(sqrt_f64, double, sqrt(a))

#define TWO(family, handler) [family][PTX_TYPE_F32] = handler##_f32, [family][PTX_TYPE_F64] = handler##_f64

ptx_handler PTX_BUILT(ptx_find_rounded)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT][PTX_TYPE_COUNT] = {
		TWO(PTX_FADDR, add), TWO(PTX_FSUBR, sub), TWO(PTX_FMULR, mul),	 TWO(PTX_FMAR, fma),
		TWO(PTX_FDIVR, div), TWO(PTX_FRCPR, rcp), TWO(PTX_FSQRTR, sqrt),
	};

	return handlers[family][type];
}

/* f16, bf16 and their pairs. Every operation is computed in a double that rounds like the exact result, and
 * rounded once. */
#include "soft/ptx/lane.h"
#include "soft/ptx/number.h"

static inline double half_get(uint16_t h, bool is_bf16, unsigned flags)
{
	float f = is_bf16 ? ptx_from_bf16(h) : ptx_from_f16(h);

	if ((flags & PTX_FLAG_FTZ) && (h & 0x7fff) < (is_bf16 ? 0x80 : 0x400))
		f = f * 0.0f; /* keeps the sign */
	return (double)f;
}

static inline uint16_t half_put(double v, bool is_bf16, unsigned flags)
{
	uint16_t h;

	if (flags & PTX_FLAG_SAT)
		v = v != v ? 0 : v > 1 ? 1 : v > 0 ? v : 0;
	if ((flags & PTX_FLAG_RELU) && v == v && !(v > 0))
		v = 0;
	h = is_bf16 ? ptx_round_bf16(v, PTX_RN) : ptx_round_f16(v, PTX_RN);
	if ((flags & PTX_FLAG_FTZ) && (h & 0x7fff) < (is_bf16 ? 0x80 : 0x400))
		h &= 0x8000;
	return h;
}

typedef uint16_t (*half_function)(const uint16_t v[3], const struct ptx_op *op, bool is_bf16);

/* Apply f to the elements of each lane: at shift 0 and 16 of pairs, or to the 16-bit row. */
static inline void half_lanes(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask,
			      half_function f)
{
	bool is_bf16 = op->type == PTX_TYPE_BF16 || op->type == PTX_TYPE_BF16X2;
	unsigned parts = op->type == PTX_TYPE_F16X2 || op->type == PTX_TYPE_BF16X2 ? 2 : 1;
	const uint16_t *in[3] = { ptx_in(w, op->r[1]), NULL, NULL };
	uint16_t *d = ptx_out(w, op->r[0]);

	for (unsigned k = 1; k + 1 < op->count; k++)
		in[k] = ptx_in(w, op->r[k + 1]);
	for (unsigned i = 0; i < PTX_LANES * parts; i++) {
		uint16_t v[3] = { in[0][i], in[1] ? in[1][i] : 0, in[2] ? in[2][i] : 0 };

		if (mask >> (i / parts) & 1)
			d[i] = f(v, op, is_bf16);
	}
}

#define A half_get(v[0], is_bf16, op->flags)
#define B half_get(v[1], is_bf16, op->flags)
#define C half_get(v[2], is_bf16, op->flags)
#define HALF(name, expr) \
	static inline uint16_t one_##name(const uint16_t v[3], const struct ptx_op *op, bool is_bf16) \
	{ \
		return half_put(expr, is_bf16, op->flags); \
	} \
	PTX_HANDLER(name) \
	{ \
		half_lanes(w, op, mask, one_##name); \
	}
HALF(add_half, ptx_add_odd(A, B))
HALF(sub_half, ptx_add_odd(A, -B))
HALF(mul_half, A *B)
HALF(fma_half, ptx_add_odd(A *B, C))
HALF(ex2_half, exp2(A))
HALF(tanh_half, tanh(A))

static inline uint16_t pick(const uint16_t v[3], const struct ptx_op *op, bool is_bf16, bool is_max)
{
	float r = ptx_pick_f32((float)A, (float)B, is_max, op->flags);

	return half_put((double)r, is_bf16, op->flags & PTX_FLAG_FTZ);
}

static inline uint16_t one_min(const uint16_t v[3], const struct ptx_op *op, bool is_bf16)
{
	return pick(v, op, is_bf16, false);
}

static inline uint16_t one_max(const uint16_t v[3], const struct ptx_op *op, bool is_bf16)
{
	return pick(v, op, is_bf16, true);
}

static inline uint16_t flushed(uint16_t h, const struct ptx_op *op, bool is_bf16)
{
	return (op->flags & PTX_FLAG_FTZ) && (h & 0x7fff) < (is_bf16 ? 0x80 : 0x400) ? h & 0x8000 : h;
}

static inline uint16_t one_abs(const uint16_t v[3], const struct ptx_op *op, bool is_bf16)
{
	return flushed(v[0], op, is_bf16) & 0x7fff;
}

static inline uint16_t one_neg(const uint16_t v[3], const struct ptx_op *op, bool is_bf16)
{
	return flushed(v[0], op, is_bf16) ^ 0x8000;
}

PTX_HANDLER(min)
{
	half_lanes(w, op, mask, one_min);
}

PTX_HANDLER(max)
{
	half_lanes(w, op, mask, one_max);
}

PTX_HANDLER(abs_half)
{
	half_lanes(w, op, mask, one_abs);
}

PTX_HANDLER(neg_half)
{
	half_lanes(w, op, mask, one_neg);
}

#define FOUR(family, handler) \
	[family][PTX_TYPE_F16] = handler, [family][PTX_TYPE_BF16] = handler, \
	[family][PTX_TYPE_F16X2] = handler, [family][PTX_TYPE_BF16X2] = handler

ptx_handler PTX_BUILT(ptx_find_half)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT][PTX_TYPE_COUNT] = {
		FOUR(PTX_FADD, add_half), FOUR(PTX_FSUB, sub_half), FOUR(PTX_FMUL, mul_half),
		FOUR(PTX_FMA, fma_half),  FOUR(PTX_EX2, ex2_half),  FOUR(PTX_TANH, tanh_half),
		FOUR(PTX_FMIN, min),	  FOUR(PTX_FMAX, max),	    FOUR(PTX_FABS, abs_half),
		FOUR(PTX_FNEG, neg_half),
	};

	return handlers[family][type];
}

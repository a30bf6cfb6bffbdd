/* Integer arithmetic. All operations wrap: PTX has no signed overflow. */
#include "soft/ptx/lane.h"

#define ADD_SUB(u) \
	PTX_OP2(add_##u, uint##u##_t, uint##u##_t, uint##u##_t, a + b) \
	PTX_OP2(sub_##u, uint##u##_t, uint##u##_t, uint##u##_t, a - b) \
	PTX_OP1(neg_##u, uint##u##_t, uint##u##_t, 0u - a) \
	PTX_OP1(abs_##u, uint##u##_t, int##u##_t, a < 0 ? 0u - (uint##u##_t)a : (uint##u##_t)a)
ADD_SUB(16)
ADD_SUB(32)
ADD_SUB(64)

#define MUL_LO(u, wide) \
	PTX_OP2(mullo_##u, uint##u##_t, uint##u##_t, uint##u##_t, (wide)a *(wide)b) \
	PTX_OP3(madlo_##u, uint##u##_t, uint##u##_t, uint##u##_t, uint##u##_t, (wide)a *(wide)b + (wide)c)
MUL_LO(16, uint32_t)
MUL_LO(32, uint32_t)
MUL_LO(64, uint64_t)

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

#define MUL_HI(name, T, W, bits) \
	PTX_OP2(mulhi_##name, T, T, T, (W)((W)a * (W)b) >> bits) \
	PTX_OP3(madhi_##name, T, T, T, T, (uint64_t)((W)((W)a * (W)b) >> bits) + (uint64_t)c)
MUL_HI(u16, uint16_t, uint32_t, 16)
MUL_HI(s16, int16_t, int32_t, 16)
MUL_HI(u32, uint32_t, uint64_t, 32)
MUL_HI(s32, int32_t, int64_t, 32)
MUL_HI(u64, uint64_t, uint128, 64)
MUL_HI(s64, int64_t, int128, 64)

#define MUL_WIDE(name, T, W, U) \
	PTX_OP2(mulwide_##name, W, T, T, (W)a *(W)b) \
	PTX_OP3(madwide_##name, U, T, T, U, (U)((W)a * (W)b) + c)
MUL_WIDE(u16, uint16_t, uint32_t, uint32_t)
MUL_WIDE(s16, int16_t, int32_t, uint32_t)
MUL_WIDE(u32, uint32_t, uint64_t, uint64_t)
MUL_WIDE(s32, int32_t, int64_t, uint64_t)

static inline int32_t clamp32(int64_t v)
{
	return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
}

PTX_OP2(addsat, int32_t, int32_t, int32_t, clamp32((int64_t)a + b))
PTX_OP2(subsat, int32_t, int32_t, int32_t, clamp32((int64_t)a - b))
PTX_OP3(madsat, int32_t, int32_t, int32_t, int32_t, clamp32(((int64_t)a * b >> 32) + c))

static inline int64_t signed24(uint32_t v)
{
	return (int32_t)(v << 8) >> 8;
}

static inline uint64_t unsigned24(uint32_t v)
{
	return v & 0xffffff;
}

PTX_OP2(mul24lo_u, uint32_t, uint32_t, uint32_t, unsigned24(a) * unsigned24(b))
PTX_OP2(mul24lo_s, uint32_t, uint32_t, uint32_t, signed24(a) * signed24(b))
PTX_OP2(mul24hi_u, uint32_t, uint32_t, uint32_t, unsigned24(a) * unsigned24(b) >> 16)
PTX_OP2(mul24hi_s, uint32_t, uint32_t, uint32_t, signed24(a) * signed24(b) >> 16)
PTX_OP3(mad24lo_u, uint32_t, uint32_t, uint32_t, uint32_t, unsigned24(a) * unsigned24(b) + c)
PTX_OP3(mad24lo_s, uint32_t, uint32_t, uint32_t, uint32_t, (uint64_t)(signed24(a) * signed24(b)) + c)
PTX_OP3(mad24hi_u, uint32_t, uint32_t, uint32_t, uint32_t, (unsigned24(a) * unsigned24(b) >> 16) + c)
PTX_OP3(mad24hi_s, uint32_t, uint32_t, uint32_t, uint32_t, (uint64_t)(signed24(a) * signed24(b) >> 16) + c)
PTX_OP3(mad24sat, int32_t, uint32_t, uint32_t, int32_t,
	clamp32((int64_t)(int32_t)(signed24(a) * signed24(b) >> 16) + c))

/* PTX does not define division by zero. Quotient and remainder are all ones: measured on an H200,
 * docs/ptx.md. */
#define DIVIDE(name, T, U) \
	PTX_OP2(div_##name, T, T, T, b == 0 ? (T) ~(U)0 : (T)(a / b)) \
	PTX_OP2(rem_##name, T, T, T, b == 0 ? (T) ~(U)0 : (T)(a % b))
#define DIVIDE_SIGNED(name, T, U) \
	PTX_OP2(div_##name, T, T, T, b == 0 ? (T) ~(U)0 : b == -1 ? (T)(0u - (U)a) : (T)(a / b)) \
	PTX_OP2(rem_##name, T, T, T, b == 0 ? (T) ~(U)0 : b == -1 ? 0 : (T)(a % b))
DIVIDE(u16, uint16_t, uint16_t)
DIVIDE(u32, uint32_t, uint32_t)
DIVIDE(u64, uint64_t, uint64_t)
DIVIDE_SIGNED(s16, int16_t, uint16_t)
DIVIDE_SIGNED(s32, int32_t, uint32_t)
DIVIDE_SIGNED(s64, int64_t, uint64_t)

#define ORDERED(name, T, U) \
	PTX_OP2(min_##name, T, T, T, a < b ? a : b) \
	PTX_OP2(max_##name, T, T, T, a > b ? a : b) \
	PTX_OP3(sad_##name, U, T, T, U, (U)(a > b ? (U)a - (U)b : (U)b - (U)a) + c)
ORDERED(u16, uint16_t, uint16_t)
ORDERED(s16, int16_t, uint16_t)
ORDERED(u32, uint32_t, uint32_t)
ORDERED(s32, int32_t, uint32_t)
ORDERED(u64, uint64_t, uint64_t)
ORDERED(s64, int64_t, uint64_t)

static inline uint32_t pair(uint32_t low, uint32_t high)
{
	return (low & 0xffff) | high << 16;
}

#define LOW(T, v) ((T)(v))
#define HIGH(T, v) ((T)((v) >> 16))
#define MINIMUM(x, y) ((x) < (y) ? (x) : (y))
#define MAXIMUM(x, y) ((x) > (y) ? (x) : (y))
PTX_OP2(add_x2, uint32_t, uint32_t, uint32_t, pair(a + b, (a >> 16) + (b >> 16)))
#define PAIRS(name, T) \
	PTX_OP2(min_##name, uint32_t, uint32_t, uint32_t, \
		pair((uint32_t)MINIMUM(LOW(T, a), LOW(T, b)), (uint32_t)MINIMUM(HIGH(T, a), HIGH(T, b)))) \
	PTX_OP2(max_##name, uint32_t, uint32_t, uint32_t, \
		pair((uint32_t)MAXIMUM(LOW(T, a), LOW(T, b)), (uint32_t)MAXIMUM(HIGH(T, a), HIGH(T, b))))
PAIRS(u16x2, uint16_t)
PAIRS(s16x2, int16_t)

/* The carry of lane i is bit i of w->carry. A difference is a + ~b + 1 with the carry of that sum, 1 for no
 * borrow: measured on an H200 (docs/ptx.md), where sub.cc of equal numbers makes a following madc add one. */
#define CARRY(bits, W) \
	PTX_HANDLER(addcc_##bits) \
	{ \
		uint##bits##_t *d = ptx_out(w, op->r[0]); \
		const uint##bits##_t *a = ptx_in(w, op->r[1]), *b = ptx_in(w, op->r[2]); \
		uint32_t in = op->flags & PTX_CC_IN ? w->carry : 0, out = 0; \
		for (unsigned i = 0; i < PTX_LANES; i++) { \
			W sum = (W)a[i] + b[i] + (in >> i & 1); \
			out |= (uint32_t)(sum >> bits) << i; \
			if (mask >> i & 1) \
				d[i] = (uint##bits##_t)sum; \
		} \
		if (op->flags & PTX_CC_OUT) \
			w->carry = (w->carry & ~mask) | (out & mask); \
	} \
	PTX_HANDLER(subcc_##bits) \
	{ \
		uint##bits##_t *d = ptx_out(w, op->r[0]); \
		const uint##bits##_t *a = ptx_in(w, op->r[1]), *b = ptx_in(w, op->r[2]); \
		uint32_t in = op->flags & PTX_CC_IN ? w->carry : ~0u, out = 0; \
		for (unsigned i = 0; i < PTX_LANES; i++) { \
			W sum = (W)a[i] + (uint##bits##_t) ~b[i] + (in >> i & 1); \
			out |= (uint32_t)(sum >> bits) << i; \
			if (mask >> i & 1) \
				d[i] = (uint##bits##_t)sum; \
		} \
		if (op->flags & PTX_CC_OUT) \
			w->carry = (w->carry & ~mask) | (out & mask); \
	}
CARRY(32, uint64_t)
CARRY(64, uint128)

#define MAD_CARRY(name, bits, S, W) \
	PTX_HANDLER(madcc_##name) \
	{ \
		uint##bits##_t *d = ptx_out(w, op->r[0]); \
		const S *a = ptx_in(w, op->r[1]), *b = ptx_in(w, op->r[2]); \
		const uint##bits##_t *c = ptx_in(w, op->r[3]); \
		uint32_t in = op->flags & PTX_CC_IN ? w->carry : 0, out = 0; \
		for (unsigned i = 0; i < PTX_LANES; i++) { \
			W product = (W)a[i] * (W)b[i]; \
			uint##bits##_t part = \
				(uint##bits##_t)(op->flags & PTX_CC_HIGH ? product >> bits : product); \
			uint128 sum = (uint128)part + c[i] + (in >> i & 1); \
			out |= (uint32_t)(sum >> bits & 1) << i; \
			if (mask >> i & 1) \
				d[i] = (uint##bits##_t)sum; \
		} \
		if (op->flags & PTX_CC_OUT) \
			w->carry = (w->carry & ~mask) | (out & mask); \
	}
MAD_CARRY(u32, 32, uint32_t, uint64_t)
MAD_CARRY(s32, 32, int32_t, int64_t)
MAD_CARRY(u64, 64, uint64_t, uint128)
MAD_CARRY(s64, 64, int64_t, int128)

#define BOTH(family, handler, bits) \
	[family][PTX_TYPE_U##bits] = handler##_##bits, [family][PTX_TYPE_S##bits] = handler##_##bits
#define SAME(family, handler) BOTH(family, handler, 16), BOTH(family, handler, 32), BOTH(family, handler, 64)
#define SMALL(family, handler) \
	[family][PTX_TYPE_U16] = handler##_u16, [family][PTX_TYPE_S16] = handler##_s16, \
	[family][PTX_TYPE_U32] = handler##_u32, [family][PTX_TYPE_S32] = handler##_s32
#define EACH(family, handler) \
	SMALL(family, handler), [family][PTX_TYPE_U64] = handler##_u64, [family][PTX_TYPE_S64] = handler##_s64
#define ONLY24(family, handler) [family][PTX_TYPE_U32] = handler##_u, [family][PTX_TYPE_S32] = handler##_s

ptx_handler PTX_BUILT(ptx_find_integer)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT][PTX_TYPE_COUNT] = {
		SAME(PTX_ADD, add),
		SAME(PTX_SUB, sub),
		[PTX_ADD][PTX_TYPE_U16X2] = add_x2,
		[PTX_ADD][PTX_TYPE_S16X2] = add_x2,
		SAME(PTX_MULLO, mullo),
		SAME(PTX_MADLO, madlo),
		SAME(PTX_NEG, neg),
		SAME(PTX_ABS, abs),
		EACH(PTX_MULHI, mulhi),
		EACH(PTX_MADHI, madhi),
		SMALL(PTX_MULWIDE, mulwide),
		SMALL(PTX_MADWIDE, madwide),
		[PTX_ADDSAT][PTX_TYPE_S32] = addsat,
		[PTX_SUBSAT][PTX_TYPE_S32] = subsat,
		[PTX_MADSAT][PTX_TYPE_S32] = madsat,
		ONLY24(PTX_MUL24LO, mul24lo),
		ONLY24(PTX_MUL24HI, mul24hi),
		ONLY24(PTX_MAD24LO, mad24lo),
		ONLY24(PTX_MAD24HI, mad24hi),
		[PTX_MAD24SAT][PTX_TYPE_S32] = mad24sat,
		EACH(PTX_DIV, div),
		EACH(PTX_REM, rem),
		EACH(PTX_MIN, min),
		EACH(PTX_MAX, max),
		[PTX_MIN][PTX_TYPE_U16X2] = min_u16x2,
		[PTX_MIN][PTX_TYPE_S16X2] = min_s16x2,
		[PTX_MAX][PTX_TYPE_U16X2] = max_u16x2,
		[PTX_MAX][PTX_TYPE_S16X2] = max_s16x2,
		EACH(PTX_SAD, sad),
		BOTH(PTX_ADDCC, addcc, 32),
		BOTH(PTX_ADDCC, addcc, 64),
		BOTH(PTX_SUBCC, subcc, 32),
		BOTH(PTX_SUBCC, subcc, 64),
		[PTX_MADCC][PTX_TYPE_U32] = madcc_u32,
		[PTX_MADCC][PTX_TYPE_S32] = madcc_s32,
		[PTX_MADCC][PTX_TYPE_U64] = madcc_u64,
		[PTX_MADCC][PTX_TYPE_S64] = madcc_s64,
	};

	return handlers[family][type];
}

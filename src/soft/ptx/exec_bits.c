/* Bit operations: logic, shifts, fields, permutations. */
#include "soft/ptx/lane.h"

/* An arithmetic shift on unsigned numbers. */
#define ARITHMETIC(U, v, n) ((v) < 0 ? ~((U) ~(v) >> (n)) : (U)(v) >> (n))
#define LOGIC(u) \
	PTX_OP2(and_##u, uint##u##_t, uint##u##_t, uint##u##_t, a &b) \
	PTX_OP2(or_##u, uint##u##_t, uint##u##_t, uint##u##_t, a | b) \
	PTX_OP2(xor_##u, uint##u##_t, uint##u##_t, uint##u##_t, a ^ b) \
	PTX_OP1(not_##u, uint##u##_t, uint##u##_t, ~a) \
	PTX_OP1(cnot_##u, uint##u##_t, uint##u##_t, a == 0) \
	PTX_OP2(shl_##u, uint##u##_t, uint##u##_t, uint32_t, b < u ? (uint64_t)a << b : 0) \
	PTX_OP2(shr_##u, uint##u##_t, uint##u##_t, uint32_t, b < u ? a >> b : 0) \
	PTX_OP2(sar_##u, int##u##_t, int##u##_t, uint32_t, ARITHMETIC(uint##u##_t, a, b < u ? b : u - 1))
LOGIC(16)
LOGIC(64)

PTX_OP2(and_32, uint32_t, uint32_t, uint32_t, a &b)
PTX_OP2(or_32, uint32_t, uint32_t, uint32_t, a | b)
PTX_OP2(xor_32, uint32_t, uint32_t, uint32_t, a ^ b)
PTX_OP1(not_32, uint32_t, uint32_t, ~a)
PTX_OP1(cnot_32, uint32_t, uint32_t, a == 0)
PTX_OP2(shl_32, uint32_t, uint32_t, uint32_t, b < 32 ? a << (b & 31) : 0)
PTX_OP2(shr_32, uint32_t, uint32_t, uint32_t, b < 32 ? a >> (b & 31) : 0)
PTX_OP2(sar_32, int32_t, int32_t, uint32_t, ARITHMETIC(uint32_t, a, b < 32 ? b : 31))

PTX_HANDLER(and_pred)
{
	ptx_pred_put(w, op->r[0], ptx_pred(w, op, 1) & ptx_pred(w, op, 2), mask);
}

PTX_HANDLER(or_pred)
{
	ptx_pred_put(w, op->r[0], ptx_pred(w, op, 1) | ptx_pred(w, op, 2), mask);
}

PTX_HANDLER(xor_pred)
{
	ptx_pred_put(w, op->r[0], ptx_pred(w, op, 1) ^ ptx_pred(w, op, 2), mask);
}

PTX_HANDLER(not_pred)
{
	ptx_pred_put(w, op->r[0], ~ptx_pred(w, op, 1), mask);
}

static inline uint32_t pick_bit(uint32_t table, unsigned bit)
{
	return 0u - (table >> bit & 1);
}

static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
	return (pick_bit(table, 0) & ~a & ~b & ~c) | (pick_bit(table, 1) & ~a & ~b & c) |
	       (pick_bit(table, 2) & ~a & b & ~c) | (pick_bit(table, 3) & ~a & b & c) |
	       (pick_bit(table, 4) & a & ~b & ~c) | (pick_bit(table, 5) & a & ~b & c) |
	       (pick_bit(table, 6) & a & b & ~c) | (pick_bit(table, 7) & a & b & c);
}

PTX_OP3(lop3_32, uint32_t, uint32_t, uint32_t, uint32_t, lop3(a, b, c, op->aux))

#define MODE_WRAP 2

static inline uint32_t funnel(uint32_t a, uint32_t b, uint32_t c, bool is_right, bool is_wrap)
{
	uint64_t both = (uint64_t)b << 32 | a;
	uint32_t n = is_wrap ? c & 31 : c < 32 ? c : 32;

	return is_right ? (uint32_t)(both >> n) : (uint32_t)(both << n >> 32);
}

PTX_OP3(shf_32, uint32_t, uint32_t, uint32_t, uint32_t, funnel(a, b, c, op->aux, op->mode == MODE_WRAP))

/* The selector of the special modes of prmt, as the four digits of the general mode. */
static inline uint32_t permute_selector(unsigned mode, uint32_t c)
{
	static const uint16_t digits[6][4] = {
		{ 0x3210, 0x4321, 0x5432, 0x6543 }, /* f4e */
		{ 0x5670, 0x6701, 0x7012, 0x0123 }, /* b4e */
		{ 0x0000, 0x1111, 0x2222, 0x3333 }, /* rc8 */
		{ 0x3210, 0x3211, 0x3222, 0x3333 }, /* ecl */
		{ 0x0000, 0x1110, 0x2210, 0x3210 }, /* ecr */
		{ 0x1010, 0x3232, 0x1010, 0x3232 }, /* rc16 */
	};

	return mode < 3 ? c : digits[mode - 3][c & 3];
}

static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
	uint64_t both = (uint64_t)b << 32 | a;
	uint32_t result = 0;

	for (unsigned i = 0; i < 4; i++) {
		uint32_t digit = selector >> (4 * i);
		uint32_t byte = (uint32_t)(both >> (8 * (digit & 7))) & 0xff;

		if (digit & 8) /* replicate the sign over the byte */
			byte = byte & 0x80 ? 0xff : 0;
		result |= byte << (8 * i);
	}
	return result;
}

PTX_OP3(prmt_32, uint32_t, uint32_t, uint32_t, uint32_t, permute(a, b, permute_selector(op->mode, c)))

PTX_OP1(popc_32, uint32_t, uint32_t, __builtin_popcount(a))
PTX_OP1(popc_64, uint32_t, uint64_t, __builtin_popcountll(a))
PTX_OP1(clz_32, uint32_t, uint32_t, a ? __builtin_clz(a) : 32)
PTX_OP1(clz_64, uint32_t, uint64_t, a ? __builtin_clzll(a) : 64)

static inline uint32_t find_bit(uint64_t a, unsigned bits, bool is_shift)
{
	uint32_t at;

	if (!a)
		return ~0u;
	at = 63u - (uint32_t)__builtin_clzll(a);
	return is_shift ? bits - 1 - at : at;
}

#define MODE_SHIFTAMT 11
PTX_OP1(bfind_u32, uint32_t, uint32_t, find_bit(a, 32, op->mode == MODE_SHIFTAMT))
PTX_OP1(bfind_s32, uint32_t, int32_t, find_bit((uint32_t)(a < 0 ? ~a : a), 32, op->mode == MODE_SHIFTAMT))
PTX_OP1(bfind_u64, uint32_t, uint64_t, find_bit(a, 64, op->mode == MODE_SHIFTAMT))
PTX_OP1(bfind_s64, uint32_t, int64_t, find_bit((uint64_t)(a < 0 ? ~a : a), 64, op->mode == MODE_SHIFTAMT))

/* The nth set bit of a from bit `base` on, downwards for a negative n. */
static inline uint32_t find_nth(uint32_t a, uint32_t base, int32_t n)
{
	int32_t step = n < 0 ? -1 : 1, left = n < 0 ? (n < -32 ? 33 : -n) : n;

	if (!n)
		return base < 32 && a >> base & 1 ? base : ~0u;
	for (int64_t at = base; at >= 0 && at < 32; at += step)
		if (a >> at & 1 && --left == 0)
			return (uint32_t)at;
	return ~0u;
}

PTX_OP3(fns_32, uint32_t, uint32_t, uint32_t, int32_t, find_nth(a, b, c))

static inline uint32_t reverse32(uint32_t v)
{
	v = (v >> 1 & 0x55555555) | (v & 0x55555555) << 1;
	v = (v >> 2 & 0x33333333) | (v & 0x33333333) << 2;
	v = (v >> 4 & 0x0f0f0f0f) | (v & 0x0f0f0f0f) << 4;
	return __builtin_bswap32(v);
}

PTX_OP1(brev_32, uint32_t, uint32_t, reverse32(a))
PTX_OP1(brev_64, uint64_t, uint64_t, (uint64_t)reverse32((uint32_t)a) << 32 | reverse32((uint32_t)(a >> 32)))

/* Positions and lengths are 8 bits of their registers (PTX ISA, "bfe"). bfe.s64 and the length of bfi.b64 use
 * all 32 bits: measured on an H200, docs/ptx.md. The position of bfi.b64 and bfe.u64 were not measured. */
static inline uint32_t low_byte(uint32_t v)
{
	return v & 0xff;
}

static inline uint64_t extract(uint64_t a, uint32_t pos, uint32_t count, unsigned bits, bool is_signed)
{
	uint64_t len = count, top = pos + len - 1;
	uint64_t field = pos < 64 ? a >> pos : 0, sign;

	if (!len)
		return 0;
	sign = is_signed && (a >> (top < bits - 1 ? top : bits - 1) & 1) ? ~0ull : 0;
	if (pos >= bits)
		return sign;
	if (pos + len > bits)
		len = bits - pos;
	if (len >= 64)
		return field;
	return (field & ((1ull << len) - 1)) | sign << len;
}

PTX_OP3(bfe_u32, uint32_t, uint32_t, uint32_t, uint32_t, extract(a, low_byte(b), low_byte(c), 32, false))
PTX_OP3(bfe_s32, uint32_t, uint32_t, uint32_t, uint32_t, extract(a, low_byte(b), low_byte(c), 32, true))
PTX_OP3(bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a, low_byte(b), low_byte(c), 64, false))
PTX_OP3(bfe_s64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a, b, c, 64, true))

static inline uint64_t insert(uint64_t a, uint64_t b, uint32_t pos, uint32_t count, unsigned bits)
{
	uint64_t len = count, field;

	if (!len || pos >= bits)
		return b;
	if (pos + len > bits)
		len = bits - pos;
	field = len >= 64 ? ~0ull : (1ull << len) - 1;
	return (b & ~(field << pos)) | (a & field) << pos;
}

PTX_OP4(bfi_32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, insert(a, b, low_byte(c), low_byte(e), 32))
PTX_OP4(bfi_64, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t, insert(a, b, low_byte(c), e, 64))

/* The low n bits, n clamped to 32 or taken modulo 32. */
static inline uint32_t low_mask(uint32_t n)
{
	return n >= 32 ? ~0u : (1u << n) - 1;
}

static inline uint32_t extend(uint32_t a, uint32_t n, bool is_wrap, bool is_signed)
{
	uint32_t bits = is_wrap ? n & 31 : n < 32 ? n : 32;
	uint32_t kept = a & low_mask(bits);

	if (!bits)
		return 0;
	return is_signed && kept >> (bits - 1) & 1 ? kept | ~low_mask(bits) : kept;
}

PTX_OP2(szext_u32, uint32_t, uint32_t, uint32_t, extend(a, b, op->mode == MODE_WRAP, false))
PTX_OP2(szext_s32, uint32_t, uint32_t, uint32_t, extend(a, b, op->mode == MODE_WRAP, true))

static inline uint32_t bit_mask(uint32_t from, uint32_t count, bool is_wrap)
{
	uint32_t a = is_wrap ? from & 31 : from < 32 ? from : 32;
	uint32_t n = is_wrap ? count & 31 : count < 32 ? count : 32;

	return a >= 32 ? 0 : low_mask(n) << a;
}

PTX_OP2(bmsk_32, uint32_t, uint32_t, uint32_t, bit_mask(a, b, op->mode == MODE_WRAP))

static inline uint32_t part_of(uint32_t v, unsigned index, unsigned bits, bool is_signed)
{
	uint32_t part = v << (32 - bits - index * bits);

	return is_signed ? (uint32_t)((int32_t)part >> (32 - bits)) : part >> (32 - bits);
}

static inline uint32_t dot4(uint32_t a, uint32_t b, uint32_t c, const struct ptx_op *op)
{
	for (unsigned i = 0; i < 4; i++)
		c += part_of(a, i, 8, op->type == PTX_TYPE_S32) * part_of(b, i, 8, op->type2 == PTX_TYPE_S32);
	return c;
}

#define MODE_HI 10

static inline uint32_t dot2(uint32_t a, uint32_t b, uint32_t c, const struct ptx_op *op)
{
	unsigned first = op->mode == MODE_HI ? 2 : 0;

	for (unsigned i = 0; i < 2; i++)
		c += part_of(a, i, 16, op->type == PTX_TYPE_S32) *
		     part_of(b, first + i, 8, op->type2 == PTX_TYPE_S32);
	return c;
}

PTX_OP3(dp4a, uint32_t, uint32_t, uint32_t, uint32_t, dot4(a, b, c, op))
PTX_OP3(dp2a, uint32_t, uint32_t, uint32_t, uint32_t, dot2(a, b, c, op))

#define BITS(family, handler) \
	[family][PTX_TYPE_B16] = handler##_16, [family][PTX_TYPE_B32] = handler##_32, \
	[family][PTX_TYPE_B64] = handler##_64
#define FIELDS(family, handler) \
	[family][PTX_TYPE_U32] = handler##_u32, [family][PTX_TYPE_S32] = handler##_s32, \
	[family][PTX_TYPE_U64] = handler##_u64, [family][PTX_TYPE_S64] = handler##_s64
#define WORDS(family, handler) [family][PTX_TYPE_B32] = handler##_32, [family][PTX_TYPE_B64] = handler##_64

ptx_handler PTX_BUILT(ptx_find_bits)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT][PTX_TYPE_COUNT] = {
		BITS(PTX_AND, and),
		BITS(PTX_OR, or),
		BITS(PTX_XOR, xor),
		BITS(PTX_NOT, not ),
		BITS(PTX_CNOT, cnot),
		BITS(PTX_SHL, shl),
		BITS(PTX_SHR, shr),
		[PTX_SHR][PTX_TYPE_U16] = shr_16,
		[PTX_SHR][PTX_TYPE_U32] = shr_32,
		[PTX_SHR][PTX_TYPE_U64] = shr_64,
		[PTX_SHR][PTX_TYPE_S16] = sar_16,
		[PTX_SHR][PTX_TYPE_S32] = sar_32,
		[PTX_SHR][PTX_TYPE_S64] = sar_64,
		[PTX_AND][PTX_TYPE_PRED] = and_pred,
		[PTX_OR][PTX_TYPE_PRED] = or_pred,
		[PTX_XOR][PTX_TYPE_PRED] = xor_pred,
		[PTX_NOT][PTX_TYPE_PRED] = not_pred,
		[PTX_LOP3][PTX_TYPE_B32] = lop3_32,
		[PTX_SHF][PTX_TYPE_B32] = shf_32,
		[PTX_PRMT][PTX_TYPE_B32] = prmt_32,
		WORDS(PTX_POPC, popc),
		WORDS(PTX_CLZ, clz),
		WORDS(PTX_BREV, brev),
		WORDS(PTX_BFI, bfi),
		FIELDS(PTX_BFIND, bfind),
		FIELDS(PTX_BFE, bfe),
		[PTX_FNS][PTX_TYPE_B32] = fns_32,
		[PTX_SZEXT][PTX_TYPE_U32] = szext_u32,
		[PTX_SZEXT][PTX_TYPE_S32] = szext_s32,
		[PTX_BMSK][PTX_TYPE_B32] = bmsk_32,
		[PTX_DP4A][PTX_TYPE_U32] = dp4a,
		[PTX_DP4A][PTX_TYPE_S32] = dp4a,
		[PTX_DP2A][PTX_TYPE_U32] = dp2a,
		[PTX_DP2A][PTX_TYPE_S32] = dp2a,
	};

	return handlers[family][type];
}

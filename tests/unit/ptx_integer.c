/* ptx: integer instructions at their edges, against C written another way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

#define N 512

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 wide_u;

static const uint64_t edges[] = { 0,	      1,	  2,
				  3,	      7,	  31,
				  32,	      33,	  63,
				  64,	      0x7f,	  0x80,
				  0xff,	      0x7fff,	  0x8000,
				  0xffff,     0x7fffffff, 0x80000000,
				  0x80000001, 0xffffffff, 0x100000000,
				  1ull << 62, ~0ull >> 1, 1ull << 63,
				  ~0ull,      ~0ull - 1,  0x123456789abcdef0 };
#define EDGES (sizeof(edges) / sizeof(edges[0]))

static uint64_t a[N], b[N], c[N], d[N];

/* One number after the other: the operands are the same whatever the compiler, so that dumps can be compared. */
static uint64_t of_random_length(uint64_t *seed)
{
	uint64_t value = rig_random(seed);

	return value >> (rig_random(seed) % 64);
}

/* Half of them edges, half random of random length. */
static void fill(uint64_t seed)
{
	for (unsigned i = 0; i < N; i++) {
		a[i] = i % 2 ? edges[rig_random(&seed) % EDGES] : of_random_length(&seed);
		b[i] = i % 3 ? edges[rig_random(&seed) % EDGES] : of_random_length(&seed);
		c[i] = i % 5 ? edges[rig_random(&seed) % EDGES] : of_random_length(&seed);
	}
}

static wide value(uint64_t v, unsigned bits, bool is_signed)
{
	uint64_t kept = bits == 64 ? v : v & ((1ull << bits) - 1);

	if (is_signed && kept >> (bits - 1) & 1)
		return (wide)kept - ((wide)1 << bits);
	return kept;
}

enum op { ADD, SUB, MULLO, MULHI, MADLO, MADHI, DIV, REM, MIN, MAX, SAD, NEG, ABS };

static wide compute(enum op op, wide x, wide y, wide z, unsigned bits)
{
	switch (op) {
	case ADD:
		return x + y;
	case SUB:
		return x - y;
	case MULLO:
		return (wide)((wide_u)x * (wide_u)y);
	case MULHI:
	case MADHI: /* the product of two unsigned 64-bit numbers does not fit a signed wide */
		if (x >= 0 && y >= 0)
			return (wide)((wide_u)x * (wide_u)y >> bits) + (op == MADHI ? z : 0);
		return ((x * y) >> bits) + (op == MADHI ? z : 0);
	case MADLO:
		return (wide)((wide_u)x * (wide_u)y + (wide_u)z);
	case DIV: /* by zero: all ones, measured on an H200 */
		return y ? x / y : -1;
	case REM: /* the same */
		return y ? x % y : -1;
	case MIN:
		return x < y ? x : y;
	case MAX:
		return x > y ? x : y;
	case SAD:
		return (x > y ? x - y : y - x) + z;
	case NEG:
		return -x;
	default:
		return x < 0 ? -x : x;
	}
}

static void check_typed(const char *name, enum op op, unsigned operands, unsigned bits, bool is_signed)
{
	char text[64], types[8];
	char kind = bits == 16 ? 'h' : bits == 32 ? 'w' : 'd';
	static const char *const lists[] = { "", "%d, %a", "%d, %a, %b", "%d, %a, %b, %c" };

	snprintf(text, sizeof(text), "%s.%c%u %s;", name, is_signed ? 's' : 'u', bits, lists[operands]);
	snprintf(types, sizeof(types), "%c%c%c%c", kind, kind, operands > 1 ? kind : '-',
		 operands > 2 ? kind : '-');
	rig_op(text, types, N, a, b, c, d);
	for (unsigned i = 0; i < N; i++) {
		wide expected = compute(op, value(a[i], bits, is_signed), value(b[i], bits, is_signed),
					value(c[i], bits, is_signed), bits);
		uint64_t kept = (uint64_t)value((uint64_t)expected, bits, false);

		if (d[i] != kept)
			fail_msg("%s of %#llx %#llx %#llx: %#llx, not %#llx", text, (unsigned long long)a[i],
				 (unsigned long long)b[i], (unsigned long long)c[i], (unsigned long long)d[i],
				 (unsigned long long)kept);
	}
}

static void arithmetic_wraps_in_every_width(void **state)
{
	static const struct {
		const char *name;
		enum op op;
		unsigned operands;
		bool only_signed;
	} ops[] = {
		{ "add", ADD, 2, false },      { "sub", SUB, 2, false },      { "mul.lo", MULLO, 2, false },
		{ "mul.hi", MULHI, 2, false }, { "mad.lo", MADLO, 3, false }, { "mad.hi", MADHI, 3, false },
		{ "div", DIV, 2, false },      { "rem", REM, 2, false },      { "min", MIN, 2, false },
		{ "max", MAX, 2, false },      { "sad", SAD, 3, false },      { "neg", NEG, 1, true },
		{ "abs", ABS, 1, true },
	};

	(void)state;
	fill(41);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		for (unsigned bits = 16; bits <= 64; bits *= 2) {
			check_typed(ops[i].name, ops[i].op, ops[i].operands, bits, true);
			if (!ops[i].only_signed)
				check_typed(ops[i].name, ops[i].op, ops[i].operands, bits, false);
		}
}

static void check(const char *text, const char *types, uint64_t (*expected)(uint64_t, uint64_t, uint64_t))
{
	rig_op(text, types, N, a, b, c, d);
	for (unsigned i = 0; i < N; i++)
		if (d[i] != expected(a[i], b[i], c[i]))
			fail_msg("%s of %#llx %#llx %#llx: %#llx, not %#llx", text, (unsigned long long)a[i],
				 (unsigned long long)b[i], (unsigned long long)c[i], (unsigned long long)d[i],
				 (unsigned long long)expected(a[i], b[i], c[i]));
}

#define EXPECT(name, expr) \
	static uint64_t name(uint64_t x, uint64_t y, uint64_t z) \
	{ \
		(void)x; \
		(void)y; \
		(void)z; \
		return (uint64_t)(expr); \
	}
#define U32(v) ((uint32_t)(v))
#define S32(v) ((int32_t)(uint32_t)(v))
static int64_t clamp(int64_t v)
{
	return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
}
static int64_t low24(uint64_t v)
{
	return (int32_t)((uint32_t)v << 8) / 256;
}
EXPECT(wide_u16, U32((x & 0xffff) * (y & 0xffff)))
EXPECT(wide_s32, (int64_t)S32(x) * S32(y))
EXPECT(wide_u32, (uint64_t)U32(x) * U32(y))
EXPECT(madwide_s32, (uint64_t)((int64_t)S32(x) * S32(y)) + z)
EXPECT(add_sat, U32(clamp((int64_t)S32(x) + S32(y))))
EXPECT(sub_sat, U32(clamp((int64_t)S32(x) - S32(y))))
EXPECT(mul24_lo, U32(low24(x) * low24(y)))
EXPECT(mul24_hi_u, U32((x & 0xffffff) * (y & 0xffffff) >> 16))

static void wide_and_saturating_forms_are_exact(void **state)
{
	(void)state;
	fill(42);
	check("mul.wide.u16 %d, %a, %b;", "whh-", wide_u16);
	check("mul.wide.s32 %d, %a, %b;", "dww-", wide_s32);
	check("mul.wide.u32 %d, %a, %b;", "dww-", wide_u32);
	check("mad.wide.s32 %d, %a, %b, %c;", "dwwd", madwide_s32);
	check("add.sat.s32 %d, %a, %b;", "www-", add_sat);
	check("sub.sat.s32 %d, %a, %b;", "www-", sub_sat);
	check("mul24.lo.s32 %d, %a, %b;", "www-", mul24_lo);
	check("mul24.hi.u32 %d, %a, %b;", "www-", mul24_hi_u);
}

EXPECT(carry_add, U32(((uint64_t)U32(x) + U32(y)) >> 32) + U32(z) + 0)
EXPECT(borrow, U32(z) - U32(U32(x) < U32(y)))
EXPECT(mad_carry, U32(((uint64_t)U32(U32(x) * U32(y)) + U32(z)) >> 32))
EXPECT(mad_high, U32(((uint64_t)U32(x) * U32(y)) >> 32) + U32(z))
EXPECT(mad_high_and_one, U32(((uint64_t)U32(x) * U32(y)) >> 32) + U32(z) + 1)
EXPECT(borrow_64, z - (x < y))
EXPECT(difference_128, (((wide_u)z << 64 | x) - ((wide_u)x << 64 | y)) >> 64)
EXPECT(no_borrow, U32(x) >= U32(y))

static void carries_go_from_one_to_the_next(void **state)
{
	(void)state;
	fill(43);
	check("add.cc.u32 %d, %a, %b; addc.u32 %d, %c, 0; and.b32 %d, %d, -1;", "wwww", carry_add);
	check("sub.cc.u32 %d, %a, %b; subc.u32 %d, %c, 0;", "wwww", borrow);
	check("mad.lo.cc.u32 %d, %a, %b, %c; addc.u32 %d, 0, 0;", "wwww", mad_carry);
	/* a difference carries when it does not borrow: the first measured on an H200, the others follow */
	check("sub.cc.u32 %d, 0, 0; madc.hi.u32 %d, %a, %b, %c;", "wwww", mad_high_and_one);
	check("sub.cc.u32 %d, 0, 1; madc.hi.u32 %d, %a, %b, %c;", "wwww", mad_high);
	check("sub.cc.u32 %d, %a, %b; addc.u32 %d, 0, 0;", "www-", no_borrow);
	check("sub.cc.u64 %d, %a, %b; subc.u64 %d, %c, 0;", "dddd", borrow_64);
	check("sub.cc.u64 %d, %a, %b; subc.cc.u64 %d, %c, %a;", "dddd", difference_128);
}

EXPECT(shl16, U32(y) < 16 ? (uint16_t)(x << U32(y)) : 0)
EXPECT(shl32, U32(y) < 32 ? U32(x) << U32(y) : 0)
EXPECT(shl64, U32(y) < 64 ? x << U32(y) : 0)
EXPECT(shr32, U32(y) < 32 ? U32(x) >> U32(y) : 0)
EXPECT(sar16, (uint16_t)((int16_t)x >> (U32(y) < 15 ? U32(y) : 15)))
EXPECT(sar64, (int64_t)x >> (U32(y) < 63 ? U32(y) : 63))
EXPECT(funnel_l_wrap, U32(((uint64_t)U32(y) << 32 | U32(x)) << (U32(z) & 31) >> 32))
EXPECT(funnel_r_clamp, U32(((uint64_t)U32(y) << 32 | U32(x)) >> (U32(z) < 32 ? U32(z) : 32)))

static uint64_t by_bits(uint64_t x, uint64_t y, uint64_t z)
{
	uint64_t r = 0;

	for (int i = 0; i < 32; i++)
		r |= (0xd8ull >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | (z >> i & 1)) & 1) << i;
	return r;
}
EXPECT(cnot, U32(x) == 0)
EXPECT(xor64, x ^ y)

static void shifts_past_the_end_shift_everything_out(void **state)
{
	(void)state;
	fill(44);
	check("shl.b16 %d, %a, %b;", "hhw-", shl16);
	check("shl.b32 %d, %a, %b;", "www-", shl32);
	check("shl.b64 %d, %a, %b;", "ddw-", shl64);
	check("shr.u32 %d, %a, %b;", "www-", shr32);
	check("shr.s16 %d, %a, %b;", "hhw-", sar16);
	check("shr.s64 %d, %a, %b;", "ddw-", sar64);
	check("shf.l.wrap.b32 %d, %a, %b, %c;", "wwww", funnel_l_wrap);
	check("shf.r.clamp.b32 %d, %a, %b, %c;", "wwww", funnel_r_clamp);
	check("lop3.b32 %d, %a, %b, %c, 0xd8;", "wwww", by_bits);
	check("cnot.b32 %d, %a;", "ww--", cnot);
	check("xor.b64 %d, %a, %b;", "ddd-", xor64);
}

static uint64_t count_bits(uint64_t v, unsigned bits)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < bits; i++)
		n += v >> i & 1;
	return n;
}
static uint64_t top_bit(uint64_t v)
{
	for (unsigned i = 64; i-- > 0;)
		if (v >> i & 1)
			return i;
	return ~0ull;
}
static uint64_t field(uint64_t v, uint64_t pos, uint64_t len, unsigned bits, bool is_signed)
{
	uint64_t r = 0, sign = 0;
	uint64_t top = pos + len - 1 < bits - 1 ? pos + len - 1 : bits - 1;

	if (is_signed && len)
		sign = v >> top & 1;
	for (unsigned i = 0; i < bits; i++)
		r |= (i < len && pos + i < bits ? v >> (pos + i) & 1 : sign) << i;
	return r;
}
static uint64_t inserted(uint64_t x, uint64_t y, unsigned pos, unsigned len, unsigned bits)
{
	for (unsigned i = 0; i < len && pos + i < bits; i++)
		y = (y & ~(1ull << (pos + i))) | (x >> i & 1) << (pos + i);
	return y;
}
EXPECT(popc32, count_bits(x, 32))
EXPECT(popc64, count_bits(x, 64))
EXPECT(clz32, U32(x) ? 31 - top_bit(U32(x)) : 32)
EXPECT(clz64, x ? 63 - top_bit(x) : 64)
EXPECT(bfind_s32, U32(top_bit(S32(x) < 0 ? U32(~x) : U32(x))))
EXPECT(bfind_amount, U32(x) ? 31 - top_bit(U32(x)) : 0xffffffff)
EXPECT(bfe_u32, field(U32(x), y & 0xff, z & 0xff, 32, false))
EXPECT(bfe_s32, field(U32(x), y & 0xff, z & 0xff, 32, true))
/* all 32 bits of a position and a length, not 8 of them: measured on an H200 */
EXPECT(bfe_s64, field(x, U32(y), U32(z), 64, true))
EXPECT(bfi_32, inserted(U32(x), U32(y), z & 0xff, 5, 32))
EXPECT(bfi_64, inserted(x, y, 17, U32(z), 64))
EXPECT(brev_64, inserted(0, 0, 0, 0, 64) | (x >> 63) | 0)

static void fields_are_found_and_moved(void **state)
{
	(void)state;
	fill(45);
	check("popc.b32 %d, %a;", "ww--", popc32);
	check("popc.b64 %d, %a;", "wd--", popc64);
	check("clz.b32 %d, %a;", "ww--", clz32);
	check("clz.b64 %d, %a;", "wd--", clz64);
	check("bfind.s32 %d, %a;", "ww--", bfind_s32);
	check("bfind.shiftamt.u32 %d, %a;", "ww--", bfind_amount);
	check("bfe.u32 %d, %a, %b, %c;", "wwww", bfe_u32);
	check("bfe.s32 %d, %a, %b, %c;", "wwww", bfe_s32);
	check("bfe.s64 %d, %a, %b, %c;", "ddww", bfe_s64);
	check("bfi.b32 %d, %a, %b, %c, 5;", "wwww", bfi_32);
	check("bfi.b64 %d, %a, %b, 17, %c;", "dddw", bfi_64);
	check("brev.b64 %d, %a; and.b64 %d, %d, 1;", "dd--", brev_64);
}

static uint64_t permuted(uint64_t x, uint64_t y, uint64_t z)
{
	uint8_t bytes[8], out[4];
	uint32_t lo = U32(x), hi = U32(y), r;

	memcpy(bytes, &lo, 4);
	memcpy(bytes + 4, &hi, 4);
	for (int i = 0; i < 4; i++) {
		out[i] = bytes[z >> (4 * i) & 7];
		if (z >> (4 * i) & 8)
			out[i] = out[i] & 0x80 ? 0xff : 0;
	}
	memcpy(&r, out, 4);
	return r;
}
EXPECT(forward4, permuted(x, y, z & 1 ? (z & 2 ? 0x6543 : 0x4321) : (z & 2 ? 0x5432 : 0x3210)))
EXPECT(replicate8, U32((x >> (8 * (z & 3)) & 0xff) * 0x01010101))
EXPECT(replicate16, U32((x >> (16 * (z & 1)) & 0xffff) * 0x00010001))
EXPECT(edge_left, permuted(x, y,
			   (z & 3) == 0	  ? 0x3210
			   : (z & 3) == 1 ? 0x3211
			   : (z & 3) == 2 ? 0x3222
					  : 0x3333))
EXPECT(mask_clamp, U32(x) >= 32 ? 0 : U32((U32(y) >= 32 ? 0xffffffffull : (1ull << U32(y)) - 1) << U32(x)))
EXPECT(sign_extend, U32(y) >= 32 ? U32(x) : !U32(y) ? 0 : field(U32(x), 0, U32(y), 32, true))

static void bytes_are_permuted_in_every_mode(void **state)
{
	(void)state;
	fill(46);
	check("prmt.b32 %d, %a, %b, %c;", "wwww", permuted);
	check("prmt.b32.f4e %d, %a, %b, %c;", "wwww", forward4);
	check("prmt.b32.rc8 %d, %a, %b, %c;", "wwww", replicate8);
	check("prmt.b32.rc16 %d, %a, %b, %c;", "wwww", replicate16);
	check("prmt.b32.ecl %d, %a, %b, %c;", "wwww", edge_left);
	check("bmsk.clamp.b32 %d, %a, %b;", "www-", mask_clamp);
	check("szext.clamp.s32 %d, %a, %b;", "www-", sign_extend);
}

EXPECT(dot4_us,
       U32(U32(z) + U32((uint8_t)x * (int8_t)y + (uint8_t)(x >> 8) * (int8_t)(y >> 8) +
			(uint8_t)(x >> 16) * (int8_t)(y >> 16) + (uint8_t)(x >> 24) * (int8_t)(y >> 24))))
EXPECT(dot2_hi, U32(U32(z) + U32((int16_t)x * (int8_t)(y >> 16) + (int16_t)(x >> 16) * (int8_t)(y >> 24))))
EXPECT(pair_add, U32(((x + y) & 0xffff) | ((x >> 16) + (y >> 16)) << 16))
EXPECT(nth_bit, U32(x) >> 3 ? (uint64_t)(3 + __builtin_ctz(U32(x) >> 3)) : 0xffffffff)

static void dot_products_of_bytes_add_up(void **state)
{
	(void)state;
	fill(47);
	check("dp4a.u32.s32 %d, %a, %b, %c;", "wwww", dot4_us);
	check("dp2a.hi.s32.s32 %d, %a, %b, %c;", "wwww", dot2_hi);
	check("add.u16x2 %d, %a, %b;", "www-", pair_add);
	check("fns.b32 %d, %a, 3, 1;", "ww--", nth_bit);
}

EXPECT(lt_s16, (int16_t)x < (int16_t)y)
EXPECT(ge_u64, x >= y)
EXPECT(and_not, S32(x) == S32(y) && !(z & 1))
EXPECT(xor_ne, (U32(x) != U32(y)) != (z & 1))
EXPECT(chosen, z & 1 ? x : y)
EXPECT(chosen_by_sign, S32(z) >= 0 ? U32(x) : U32(y))
EXPECT(all_ones, U32(x) > U32(y) ? 0xffffffff : 0)

static void comparisons_choose(void **state)
{
	(void)state;
	fill(48);
	check("setp.lt.s16 %d, %a, %b;", "phh-", lt_s16);
	check("setp.hs.u64 %d, %a, %b;", "pdd-", ge_u64);
	check("setp.eq.and.s32 %d, %a, %b, !%c;", "pwwp", and_not);
	check("setp.ne.xor.b32 %d, %a, %b, %c;", "pwwp", xor_ne);
	check("selp.b64 %d, %a, %b, %c;", "dddp", chosen);
	check("slct.b32.s32 %d, %a, %b, %c;", "wwww", chosen_by_sign);
	check("set.hi.u32.u32 %d, %a, %b;", "www-", all_ones);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arithmetic_wraps_in_every_width),
		cmocka_unit_test(wide_and_saturating_forms_are_exact),
		cmocka_unit_test(carries_go_from_one_to_the_next),
		cmocka_unit_test(shifts_past_the_end_shift_everything_out),
		cmocka_unit_test(fields_are_found_and_moved),
		cmocka_unit_test(bytes_are_permuted_in_every_mode),
		cmocka_unit_test(dot_products_of_bytes_add_up),
		cmocka_unit_test(comparisons_choose),
	};

	return cmocka_run_group_tests_name("ptx integers", tests, NULL, NULL);
}

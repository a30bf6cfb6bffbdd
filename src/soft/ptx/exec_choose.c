/* Moves, selection, comparison. */
#include "soft/ptx/lane.h"
#include "soft/ptx/number.h"

PTX_OP1(mov_16, uint16_t, uint16_t, a)
PTX_OP1(mov_32, uint32_t, uint32_t, a)
PTX_OP1(mov_64, uint64_t, uint64_t, a)

PTX_HANDLER(mov_pred)
{
	ptx_pred_put(w, op->r[0], ptx_pred(w, op, 1), mask);
}

static inline uint64_t lane_get(const void *row, unsigned width, unsigned i)
{
	const uint8_t *at = (const uint8_t *)row + (size_t)i * width;
	uint64_t value = 0;

	memcpy(&value, at, width);
	return value;
}

static inline void lane_put(void *row, unsigned width, unsigned i, uint64_t value)
{
	memcpy((uint8_t *)row + (size_t)i * width, &value, width);
}

PTX_HANDLER(pack)
{
	unsigned width = op->width, whole = width * op->vector;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint64_t value = 0;

		for (unsigned k = op->vector; k-- > 0;)
			value = value << (8 * width) | lane_get(ptx_in(w, op->r[k + 1]), width, i);
		if (mask >> i & 1)
			lane_put(ptx_out(w, op->r[0]), whole, i, value);
	}
}

PTX_HANDLER(unpack)
{
	unsigned width = op->width, whole = width * op->vector;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint64_t value = lane_get(ptx_in(w, op->r[op->vector]), whole, i);

		for (unsigned k = 0; k < op->vector; k++)
			if (mask >> i & 1)
				lane_put(ptx_out(w, op->r[k]), width, i, value >> (8 * width * k));
	}
}

static uint64_t now_of(const struct ptx_warp *w)
{
	const struct ptx_host *host = w->block->host;

	return host->now_ns
		       ? host->now_ns(host->ctx, w->block->sm, w->block->cost + w->cost - w->block->run_cost)
		       : 0;
}

/* The value of a special register that is the same for all lanes. */
static uint64_t sreg_value(const struct ptx_warp *w, const struct ptx_op *op)
{
	const struct ptx_block *b = w->block;
	unsigned sreg = op->mode;

	if (sreg >= PTX_SREG_NTID_X && sreg <= PTX_SREG_NTID_Z)
		return b->launch.threads[sreg - PTX_SREG_NTID_X];
	if (sreg >= PTX_SREG_CTAID_X && sreg <= PTX_SREG_CTAID_Z)
		return b->index[sreg - PTX_SREG_CTAID_X];
	if (sreg >= PTX_SREG_NCTAID_X && sreg <= PTX_SREG_NCTAID_Z)
		return b->launch.grid[sreg - PTX_SREG_NCTAID_X];
	switch (sreg) {
	case PTX_SREG_WARPID:
		return w->index;
	case PTX_SREG_NWARPID:
		return b->warp_count;
	case PTX_SREG_SMID:
		return b->sm;
	case PTX_SREG_NSMID:
		return b->launch.sm_count;
	case PTX_SREG_GRIDID:
		return b->launch.grid_id;
	case PTX_SREG_CLOCK:
	case PTX_SREG_CLOCK64:
		return (b->cost + w->cost) / PTX_LANES;
	case PTX_SREG_CLOCK_HI:
		return (b->cost + w->cost) / PTX_LANES >> 32;
	case PTX_SREG_TIMER:
	case PTX_SREG_TIMER_LO:
		return now_of(w);
	case PTX_SREG_TIMER_HI:
		return now_of(w) >> 32;
	case PTX_SREG_DYNAMIC_BYTES:
		return b->launch.dynamic_shared_bytes;
	case PTX_SREG_TOTAL_BYTES:
		return b->shared_used;
	case PTX_SREG_RESERVED:
		return b->reserved_base;
	case PTX_SREG_RESERVED_END:
		return b->reserved_base + PTX_RESERVED_BYTES;
	case PTX_SREG_RESERVED_CAP:
		return 1024;
	case PTX_SREG_WORKSPACE_LO:
		return b->launch.workspace;
	case PTX_SREG_WORKSPACE_HI:
		return b->launch.workspace >> 32;
	case PTX_SREG_DYNAMIC_BASE:
		return b->dynamic_base;
	case PTX_SREG_ONE:
		return 1;
	default:
		return 0;
	}
}

static uint64_t sreg_of_lane(const struct ptx_warp *w, unsigned sreg, unsigned i)
{
	switch (sreg) {
	case PTX_SREG_TID_X:
	case PTX_SREG_TID_Y:
	case PTX_SREG_TID_Z:
		return w->tid[sreg - PTX_SREG_TID_X][i];
	case PTX_SREG_LANEID:
		return i;
	case PTX_SREG_MASK_EQ:
		return 1u << i;
	case PTX_SREG_MASK_LT:
		return (1u << i) - 1;
	case PTX_SREG_MASK_LE:
		return (2ull << i) - 1;
	case PTX_SREG_MASK_GT:
		return ~((2ull << i) - 1) & ~0u;
	default:
		return ~((1ull << i) - 1) & ~0u;
	}
}

static bool is_of_lane(unsigned sreg)
{
	return sreg <= PTX_SREG_TID_Z || sreg == PTX_SREG_LANEID ||
	       (sreg >= PTX_SREG_MASK_EQ && sreg <= PTX_SREG_MASK_GE);
}

PTX_HANDLER(sreg)
{
	bool differs = is_of_lane(op->mode);
	uint64_t value = differs ? 0 : sreg_value(w, op) + (uint64_t)op->offset;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		if (differs)
			value = sreg_of_lane(w, op->mode, i);
		if (mask >> i & 1)
			lane_put(ptx_out(w, op->r[0]), op->width, i, value);
	}
}

#define SELECT(u) \
	PTX_LANE_OP(selp_##u, uint##u##_t, const uint##u##_t *pa = ptx_in(w, op->r[1]); \
		    const uint##u##_t *pb = ptx_in(w, op->r[2]); uint32_t p = ptx_pred(w, op, 3); \
		    , , p >> i & 1 ? pa[i] : pb[i]) \
	PTX_LANE_OP(slct_##u, uint##u##_t, const uint##u##_t *pa = ptx_in(w, op->r[1]); \
		    const uint##u##_t *pb = ptx_in(w, op->r[2]); const uint32_t *pc = ptx_in(w, op->r[3]); \
		    uint32_t zero = op->type2 == PTX_TYPE_F32 ? 0x80000000u : 0; \
		    uint32_t top = zero ? 0x7f800000u : ~0u;, uint32_t c = pc[i] == zero ? 0 : pc[i]; \
		    , !(c >> 31) && c <= top ? pa[i] : pb[i])
SELECT(16)
SELECT(32)
SELECT(64)

/* The lanes for which a comparison holds. A switch around loops, so that each loop is vectorized. */
#define HOLDS(expr) \
	do { \
		for (unsigned i = 0; i < PTX_LANES; i++) \
			bits |= (uint32_t)(expr) << i; \
	} while (0)

#define COMPARE_INT(name, T) \
	static uint32_t holds_##name(const struct ptx_warp *w, const struct ptx_op *op) \
	{ \
		const T *a = ptx_in(w, op->r[2]), *b = ptx_in(w, op->r[3]); \
		uint32_t bits = 0; \
		switch (op->mode) { \
		case PTX_CMP_EQ: \
			HOLDS(a[i] == b[i]); \
			break; \
		case PTX_CMP_NE: \
			HOLDS(a[i] != b[i]); \
			break; \
		case PTX_CMP_LT: \
			HOLDS(a[i] < b[i]); \
			break; \
		case PTX_CMP_LE: \
			HOLDS(a[i] <= b[i]); \
			break; \
		case PTX_CMP_GT: \
			HOLDS(a[i] > b[i]); \
			break; \
		default: \
			HOLDS(a[i] >= b[i]); \
			break; \
		} \
		return bits; \
	}
COMPARE_INT(u16, uint16_t)
COMPARE_INT(s16, int16_t)
COMPARE_INT(u32, uint32_t)
COMPARE_INT(s32, int32_t)
COMPARE_INT(u64, uint64_t)
COMPARE_INT(s64, int64_t)

static inline bool compare_floats(double a, double b, unsigned mode)
{
	bool is_unordered = a != a || b != b;

	switch (mode) {
	case PTX_CMP_EQ:
	case PTX_CMP_EQU:
		return a == b || (is_unordered && mode == PTX_CMP_EQU);
	case PTX_CMP_NE:
	case PTX_CMP_NEU:
		return a < b || a > b || (is_unordered && mode == PTX_CMP_NEU);
	case PTX_CMP_LT:
	case PTX_CMP_LTU:
		return a < b || (is_unordered && mode == PTX_CMP_LTU);
	case PTX_CMP_LE:
	case PTX_CMP_LEU:
		return a <= b || (is_unordered && mode == PTX_CMP_LEU);
	case PTX_CMP_GT:
	case PTX_CMP_GTU:
		return a > b || (is_unordered && mode == PTX_CMP_GTU);
	case PTX_CMP_GE:
	case PTX_CMP_GEU:
		return a >= b || (is_unordered && mode == PTX_CMP_GEU);
	case PTX_CMP_NUM:
		return !is_unordered;
	default:
		return is_unordered;
	}
}

#define COMPARE_FLOAT(name, T, get) \
	static uint32_t holds_##name(const struct ptx_warp *w, const struct ptx_op *op) \
	{ \
		const T *a = ptx_in(w, op->r[2]), *b = ptx_in(w, op->r[3]); \
		uint32_t bits = 0; \
		switch (op->mode) { \
		case PTX_CMP_LT: \
			HOLDS(get(a[i]) < get(b[i])); \
			break; \
		case PTX_CMP_GT: \
			HOLDS(get(a[i]) > get(b[i])); \
			break; \
		case PTX_CMP_LE: \
			HOLDS(get(a[i]) <= get(b[i])); \
			break; \
		case PTX_CMP_GE: \
			HOLDS(get(a[i]) >= get(b[i])); \
			break; \
		case PTX_CMP_EQ: \
			HOLDS(get(a[i]) == get(b[i])); \
			break; \
		case PTX_CMP_NEU: \
			HOLDS(get(a[i]) != get(b[i])); \
			break; \
		default: \
			HOLDS(compare_floats((double)get(a[i]), (double)get(b[i]), op->mode)); \
			break; \
		} \
		return bits; \
	}
#define AS_IS(x) (x)
COMPARE_FLOAT(f32, float, AS_IS)
COMPARE_FLOAT(f64, double, AS_IS)
COMPARE_FLOAT(f32z, float, ptx_flush)
COMPARE_FLOAT(f16, uint16_t, ptx_from_f16)
COMPARE_FLOAT(bf16, uint16_t, ptx_from_bf16)

/* For packed pairs: bits of the low halves, then of the high halves. */
static uint32_t holds_pair(const struct ptx_warp *w, const struct ptx_op *op, unsigned shift)
{
	const uint32_t *a = ptx_in(w, op->r[2]), *b = ptx_in(w, op->r[3]);
	bool is_half = op->type == PTX_TYPE_F16X2;
	uint32_t bits = 0;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint16_t x = (uint16_t)(a[i] >> shift), y = (uint16_t)(b[i] >> shift);

		bits |= (uint32_t)(is_half ? compare_floats((double)ptx_from_f16(x), (double)ptx_from_f16(y),
							    op->mode)
					   : compare_floats((double)ptx_from_bf16(x),
							    (double)ptx_from_bf16(y), op->mode))
			<< i;
	}
	return bits;
}

static uint32_t combined(const struct ptx_warp *w, const struct ptx_op *op, uint32_t bits)
{
	switch (op->combine) {
	case PTX_COMBINE_AND:
		return bits & ptx_pred(w, op, 4);
	case PTX_COMBINE_OR:
		return bits | ptx_pred(w, op, 4);
	case PTX_COMBINE_XOR:
		return bits ^ ptx_pred(w, op, 4);
	default:
		return bits;
	}
}

static inline void setp_put(const struct ptx_warp *w, const struct ptx_op *op, uint32_t bits, uint32_t mask)
{
	uint32_t first = op->combine ? combined(w, op, bits) : bits;
	uint32_t second = op->combine ? combined(w, op, ~bits) : ~bits;

	ptx_pred_put(w, op->r[0], first, mask);
	if (op->r[1] != PTX_NO_OPERAND)
		ptx_pred_put(w, op->r[1], second, mask);
}

/* The value that `set` writes where the comparison holds. */
static uint64_t set_value(enum ptx_type type)
{
	switch (type) {
	case PTX_TYPE_F32:
		return 0x3f800000;
	case PTX_TYPE_F16:
		return 0x3c00;
	case PTX_TYPE_BF16:
		return 0x3f80;
	default:
		return ~0ull;
	}
}

static void set_put(const struct ptx_warp *w, const struct ptx_op *op, uint32_t bits, uint32_t mask)
{
	uint64_t value = set_value((enum ptx_type)op->type2);
	unsigned width = ptx_type_bytes((enum ptx_type)op->type2);

	bits = combined(w, op, bits);
	for (unsigned i = 0; i < PTX_LANES; i++)
		if (mask >> i & 1)
			lane_put(ptx_out(w, op->r[0]), width, i, bits >> i & 1 ? value : 0);
}

#define SETS(name) \
	PTX_HANDLER(setp_##name) \
	{ \
		setp_put(w, op, holds_##name(w, op), mask); \
	} \
	PTX_HANDLER(set_##name) \
	{ \
		set_put(w, op, holds_##name(w, op), mask); \
	}
SETS(u16)
SETS(s16)
SETS(u32)
SETS(s32)
SETS(u64)
SETS(s64)
SETS(f64)
SETS(f16)
SETS(bf16)

PTX_HANDLER(setp_f32)
{
	setp_put(w, op, op->flags & PTX_FLAG_FTZ ? holds_f32z(w, op) : holds_f32(w, op), mask);
}

PTX_HANDLER(set_f32)
{
	set_put(w, op, op->flags & PTX_FLAG_FTZ ? holds_f32z(w, op) : holds_f32(w, op), mask);
}

/* p is for the low halves, q for the high halves. */
PTX_HANDLER(setp_pair)
{
	uint32_t low = combined(w, op, holds_pair(w, op, 0)), high = combined(w, op, holds_pair(w, op, 16));

	ptx_pred_put(w, op->r[0], low, mask);
	if (op->r[1] != PTX_NO_OPERAND)
		ptx_pred_put(w, op->r[1], high, mask);
}

PTX_HANDLER(set_pair)
{
	uint32_t low = combined(w, op, holds_pair(w, op, 0)), high = combined(w, op, holds_pair(w, op, 16));
	uint32_t one = op->type2 == PTX_TYPE_F16X2 ? 0x3c00 : op->type2 == PTX_TYPE_BF16X2 ? 0x3f80 : 0xffff;
	uint32_t *d = ptx_out(w, op->r[0]);

	for (unsigned i = 0; i < PTX_LANES; i++)
		if (mask >> i & 1)
			d[i] = (low >> i & 1 ? one : 0) | (high >> i & 1 ? one << 16 : 0);
}

static bool test_number(double v, bool is_subnormal, unsigned mode)
{
	switch (mode - 12) {
	case 0:
		return isfinite(v);
	case 1:
		return isinf(v);
	case 2:
		return v == v;
	case 3:
		return v != v;
	case 4:
		return isfinite(v) && !is_subnormal && v != 0;
	default:
		return is_subnormal;
	}
}

PTX_HANDLER(testp)
{
	const float *f = ptx_in(w, op->r[1]);
	const double *d = ptx_in(w, op->r[1]);
	uint32_t bits = 0;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		bool is_single = op->type == PTX_TYPE_F32;
		bool is_subnormal = is_single ? fpclassify(f[i]) == FP_SUBNORMAL
					      : fpclassify(d[i]) == FP_SUBNORMAL;

		bits |= (uint32_t)test_number(is_single ? (double)f[i] : d[i], is_subnormal, op->mode) << i;
	}
	ptx_pred_put(w, op->r[0], bits, mask);
}

#define WIDTHS(family, handler) \
	[family][PTX_TYPE_B16] = handler##_16, [family][PTX_TYPE_U16] = handler##_16, \
	[family][PTX_TYPE_S16] = handler##_16, [family][PTX_TYPE_F16] = handler##_16, \
	[family][PTX_TYPE_BF16] = handler##_16, [family][PTX_TYPE_B32] = handler##_32, \
	[family][PTX_TYPE_U32] = handler##_32, [family][PTX_TYPE_S32] = handler##_32, \
	[family][PTX_TYPE_F32] = handler##_32, [family][PTX_TYPE_B64] = handler##_64, \
	[family][PTX_TYPE_U64] = handler##_64, [family][PTX_TYPE_S64] = handler##_64, \
	[family][PTX_TYPE_F64] = handler##_64
#define COMPARED(family, handler) \
	[family][PTX_TYPE_B16] = handler##_u16, [family][PTX_TYPE_U16] = handler##_u16, \
	[family][PTX_TYPE_S16] = handler##_s16, [family][PTX_TYPE_B32] = handler##_u32, \
	[family][PTX_TYPE_U32] = handler##_u32, [family][PTX_TYPE_S32] = handler##_s32, \
	[family][PTX_TYPE_B64] = handler##_u64, [family][PTX_TYPE_U64] = handler##_u64, \
	[family][PTX_TYPE_S64] = handler##_s64, [family][PTX_TYPE_F32] = handler##_f32, \
	[family][PTX_TYPE_F64] = handler##_f64, [family][PTX_TYPE_F16] = handler##_f16, \
	[family][PTX_TYPE_BF16] = handler##_bf16, [family][PTX_TYPE_F16X2] = handler##_pair, \
	[family][PTX_TYPE_BF16X2] = handler##_pair

ptx_handler PTX_BUILT(ptx_find_choose)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT][PTX_TYPE_COUNT] = {
		WIDTHS(PTX_MOV, mov),
		[PTX_MOV][PTX_TYPE_PRED] = mov_pred,
		[PTX_PACK][PTX_TYPE_NONE] = pack,
		[PTX_UNPACK][PTX_TYPE_NONE] = unpack,
		[PTX_SREG][PTX_TYPE_NONE] = sreg,
		WIDTHS(PTX_SELP, selp),
		WIDTHS(PTX_SLCT, slct),
		COMPARED(PTX_SETP, setp),
		COMPARED(PTX_SET, set),
		[PTX_TESTP][PTX_TYPE_F32] = testp,
		[PTX_TESTP][PTX_TYPE_F64] = testp,
	};

	return handlers[family][type];
}

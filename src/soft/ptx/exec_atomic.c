/* Atomics: lane by lane, each with a compare-and-swap on host memory, so that blocks on several host threads
 * see one order. An f32 addition in device memory flushes subnormals, one in shared memory does not (PTX ISA,
 * atom). */
#include "soft/ptx/access.h"
#include "soft/ptx/number.h"

static uint32_t add_pair(uint32_t a, uint32_t b, bool is_bf16)
{
	uint32_t result = 0;

	for (unsigned shift = 0; shift < 32; shift += 16) {
		uint16_t x = (uint16_t)(a >> shift), y = (uint16_t)(b >> shift);
		double sum = is_bf16 ? ptx_add_odd((double)ptx_from_bf16(x), (double)ptx_from_bf16(y))
				     : ptx_add_odd((double)ptx_from_f16(x), (double)ptx_from_f16(y));

		result |= (uint32_t)(is_bf16 ? ptx_round_bf16(sum, PTX_RN) : ptx_round_f16(sum, PTX_RN))
			  << shift;
	}
	return result;
}

static uint64_t add(uint64_t old, uint64_t b, unsigned type, bool is_flushed)
{
	float x, y, sum;

	switch (type) {
	case PTX_TYPE_F32:
		x = ptx_f32((uint32_t)old);
		y = ptx_f32((uint32_t)b);
		if (!is_flushed)
			return ptx_bits32(ptx_canon(x + y));
		sum = ptx_canon(ptx_flush(x) + ptx_flush(y));
		return ptx_bits32(ptx_flush(sum));
	case PTX_TYPE_F64:
		return ptx_bits64(ptx_f64(old) + ptx_f64(b));
	case PTX_TYPE_F16:
	case PTX_TYPE_F16X2:
		return add_pair((uint32_t)old, (uint32_t)b, false);
	case PTX_TYPE_BF16:
	case PTX_TYPE_BF16X2:
		return add_pair((uint32_t)old, (uint32_t)b, true);
	default:
		return old + b;
	}
}

static bool is_less(uint64_t a, uint64_t b, unsigned type)
{
	switch (type) {
	case PTX_TYPE_S32:
		return (int32_t)a < (int32_t)b;
	case PTX_TYPE_S64:
		return (int64_t)a < (int64_t)b;
	default:
		return a < b;
	}
}

static uint64_t changed(const struct ptx_op *op, uint64_t old, uint64_t b, uint64_t c, bool is_flushed)
{
	switch (op->mode) {
	case PTX_ATOM_ADD:
		return add(old, b, op->type2, is_flushed);
	case PTX_ATOM_MIN:
		return is_less(b, old, op->type2) ? b : old;
	case PTX_ATOM_MAX:
		return is_less(old, b, op->type2) ? b : old;
	case PTX_ATOM_AND:
		return old & b;
	case PTX_ATOM_OR:
		return old | b;
	case PTX_ATOM_XOR:
		return old ^ b;
	case PTX_ATOM_INC:
		return old >= b ? 0 : old + 1;
	case PTX_ATOM_DEC:
		return old == 0 || old > b ? b : old - 1;
	case PTX_ATOM_EXCH:
		return b;
	default:
		return old == b ? c : old;
	}
}

#define ATOMIC(bits) \
	static uint64_t atomic_##bits(const struct ptx_op *op, uint8_t *at, uint64_t b, uint64_t c, \
				      bool is_own) \
	{ \
		uint##bits##_t *p = (uint##bits##_t *)(void *)at, old, new; \
		if (is_own) { \
			old = *p; \
			*p = (uint##bits##_t)changed(op, old, b, c, false); \
			return old; \
		} \
		old = __atomic_load_n(p, __ATOMIC_RELAXED); \
		do \
			new = (uint##bits##_t)changed(op, old, b, c, true); \
		while (!__atomic_compare_exchange_n(p, &old, new, false, __ATOMIC_SEQ_CST, \
						    __ATOMIC_RELAXED)); \
		return old; \
	}
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

static bool is_own(const struct ptx_block *b, const uint8_t *at)
{
	return at >= b->shared && at < b->shared + b->shared_bytes;
}

static uint64_t lane_of(const struct ptx_warp *w, uint32_t r, unsigned width, unsigned i)
{
	uint64_t v = 0;

	if (r != PTX_NO_OPERAND)
		memcpy(&v, (const uint8_t *)ptx_in(w, r) + (size_t)i * width, width);
	return v;
}

PTX_HANDLER(atomic)
{
	unsigned width = op->width;
	uint8_t *at[PTX_LANES];

	if (!PTX_BUILT(ptx_resolve)(w, op, mask, 1, width, true, at))
		return;
	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint64_t b, c, old;
		bool own;

		if (!(mask >> i & 1))
			continue;
		b = lane_of(w, op->r[2], width, i);
		c = lane_of(w, op->r[3], width, i);
		own = is_own(w->block, at[i]);
		old = width == 4   ? atomic_32(op, at[i], b, c, own)
		      : width == 8 ? atomic_64(op, at[i], b, c, own)
				   : atomic_16(op, at[i], b, c, own);
		if (op->r[0] != PTX_NO_OPERAND)
			memcpy((uint8_t *)ptx_out(w, op->r[0]) + (size_t)i * width, &old, width);
	}
}

ptx_handler PTX_BUILT(ptx_find_atomic)(unsigned family, unsigned type)
{
	return family == PTX_ATOM && type == PTX_TYPE_NONE ? atomic : NULL;
}

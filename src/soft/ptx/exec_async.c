/* Barriers in shared memory (mbarrier), and bulk copies that complete on them. A block runs on one host
 * thread, so operations on its shared memory are atomic. */
#include "soft/ptx/access.h"

/* The layout of the 64 bits is private: missing arrivals, arrivals that a phase needs, pending bytes of
 * copies (signed: a copy may complete before it is expected) and the phase. A state is the word before an
 * arrival. */
#define COUNT_BITS 20u
#define COUNT_MASK ((1u << COUNT_BITS) - 1)
#define NEEDED_SHIFT COUNT_BITS
#define OWED_SHIFT (2 * COUNT_BITS)
#define OWED_MASK 0x3fffffull /* 22 bits */
#define PHASE_SHIFT 63

struct mbarrier {
	uint32_t missing;
	uint32_t needed;
	uint32_t owed;
	uint32_t phase;
};

static struct mbarrier unpack(uint64_t word)
{
	return (struct mbarrier){ .missing = (uint32_t)word & COUNT_MASK,
				  .needed = (uint32_t)(word >> NEEDED_SHIFT) & COUNT_MASK,
				  .owed = (uint32_t)(word >> OWED_SHIFT & OWED_MASK),
				  .phase = (uint32_t)(word >> PHASE_SHIFT) };
}

static uint64_t pack(const struct mbarrier *b)
{
	return (b->missing & COUNT_MASK) | (uint64_t)(b->needed & COUNT_MASK) << NEEDED_SHIFT |
	       (b->owed & OWED_MASK) << OWED_SHIFT | (uint64_t)b->phase << PHASE_SHIFT;
}

/* The phase is complete when no arrivals are missing and no bytes are pending; then the next phase begins. */
static uint64_t settled(struct mbarrier *b)
{
	if (!(b->missing & COUNT_MASK) && !(b->owed & OWED_MASK)) {
		b->phase ^= 1;
		b->missing = b->needed;
	}
	return pack(b);
}

/* The word after the operation. */
static uint64_t changed(unsigned mode, uint64_t word, uint32_t value)
{
	struct mbarrier b = unpack(word);

	switch (mode) {
	case PTX_MBARRIER_INIT:
		b = (struct mbarrier){ .missing = value, .needed = value };
		return pack(&b);
	case PTX_MBARRIER_INVAL:
		return 0;
	case PTX_MBARRIER_DROP:
		b.needed -= value;
		b.missing -= value;
		return settled(&b);
	case PTX_MBARRIER_ARRIVE:
		b.missing -= value;
		return settled(&b);
	case PTX_MBARRIER_ARRIVE_EXPECT:
		b.owed += value;
		b.missing--;
		return settled(&b);
	case PTX_MBARRIER_EXPECT:
		b.owed += value;
		return pack(&b);
	default:
		b.owed -= value;
		return settled(&b);
	}
}

static uint64_t value_of(const struct ptx_warp *w, const struct ptx_op *op, unsigned lane)
{
	bool is_wide = op->mode == PTX_MBARRIER_WAIT || op->mode == PTX_MBARRIER_PENDING;

	if (op->r[2] == PTX_NO_OPERAND)
		return 1; /* the default count of arrivals */
	return is_wide ? ((const uint64_t *)ptx_in(w, op->r[2]))[lane]
		       : ((const uint32_t *)ptx_in(w, op->r[2]))[lane];
}

static bool is_over(unsigned mode, uint64_t word, uint64_t value)
{
	uint64_t phase = mode == PTX_MBARRIER_WAIT ? value >> PHASE_SHIFT : value & 1;

	return word >> PHASE_SHIFT != phase;
}

/* A barrier must be in shared memory, also with a generic address. */
static uint64_t *barrier_at(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint8_t *at)
{
	const struct ptx_block *b = w->block;

	if (at >= b->shared && at < b->shared + b->shared_bytes)
		return (uint64_t *)(void *)at;
	ptx_fault_set(w, op, PTX_FAULT_SHARED, lane, 0, 8, true);
	return NULL;
}

PTX_HANDLER(mbarrier)
{
	bool is_wait = op->mode == PTX_MBARRIER_WAIT || op->mode == PTX_MBARRIER_WAIT_PARITY;
	uint8_t *at[PTX_LANES];
	uint32_t over = 0;

	if (op->mode == PTX_MBARRIER_PENDING) {
		for (unsigned i = 0; i < PTX_LANES; i++)
			if (mask >> i & 1)
				((uint32_t *)ptx_out(w, op->r[0]))[i] = (uint32_t)value_of(w, op, i) &
									COUNT_MASK;
		return;
	}
	if (!PTX_BUILT(ptx_resolve)(w, op, mask, 1, 8, true, at))
		return;
	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint64_t *word = mask >> i & 1 ? barrier_at(w, op, i, at[i]) : NULL, before;

		if (!(mask >> i & 1))
			continue;
		if (!word)
			return;
		before = *word;
		if (is_wait) {
			over |= (uint32_t)is_over(op->mode, before, value_of(w, op, i)) << i;
			continue;
		}
		*word = changed(op->mode, before, (uint32_t)value_of(w, op, i));
		if (op->r[0] != PTX_NO_OPERAND)
			((uint64_t *)ptx_out(w, op->r[0]))[i] = before;
	}
	if (!is_wait)
		return;
	ptx_pred_put(w, op->r[0], over, mask);
	if (over == mask)
		return;
	w->is_spinning = true; /* let the lanes or warps run that it waits for */
	w->stop = 0;
}

static uint64_t shared_address(const struct ptx_warp *w, uint32_t place, unsigned width, unsigned lane)
{
	uint64_t address = 0;

	memcpy(&address, (const uint8_t *)ptx_in(w, place) + (size_t)lane * width, width);
	return address;
}

/* The host address of `bytes` of shared memory at `address`, or NULL and a fault. */
static uint8_t *shared_range(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t address,
			     uint32_t bytes, uint32_t align, bool is_write)
{
	const struct ptx_block *b = w->block;

	if (address & (align - 1))
		ptx_fault_set(w, op, PTX_FAULT_MISALIGNED, lane, address, bytes, is_write);
	else if (address >= b->shared_bytes || b->shared_bytes - address < bytes)
		ptx_fault_set(w, op, PTX_FAULT_SHARED, lane, address, bytes, is_write);
	else
		return b->shared + address;
	return NULL;
}

/* Device memory is copied in pieces, because it may be in several spans, and with atomics, because other
 * threads may access it. */
static bool copy_pieces(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t device,
			uint8_t *own, uint32_t bytes)
{
	bool is_write = op->mode;

	w->block->moved_bytes += bytes;
	for (uint32_t done = 0; done < bytes; done += 8) {
		uint8_t *at = ptx_span_find(w->block, device + done, 8, is_write);
		uint64_t word;

		if (!at) {
			ptx_fault_set(w, op, PTX_FAULT_ADDRESS, lane, device + done, bytes, is_write);
			return false;
		}
		if (is_write) {
			memcpy(&word, own + done, 8);
			__atomic_store_n((uint64_t *)(void *)at, word, __ATOMIC_RELAXED);
		} else {
			word = __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
			memcpy(own + done, &word, 8);
		}
	}
	return true;
}

/* The copy of one lane; bytes and addresses are multiples of 16. */
static bool copy_bulk(struct ptx_warp *w, const struct ptx_op *op, unsigned lane)
{
	uint64_t device = ((const uint64_t *)ptx_in(w, op->r[0]))[lane] + (uint64_t)op->offset;
	uint32_t bytes = ((const uint32_t *)ptx_in(w, op->r[2]))[lane];
	uint8_t *own =
		shared_range(w, op, lane, shared_address(w, op->r[1], op->width, lane), bytes, 16, !op->mode);
	uint8_t *barrier = NULL;
	uint64_t word;

	if (!own)
		return false;
	if ((device | bytes) & 15) {
		ptx_fault_set(w, op, PTX_FAULT_MISALIGNED, lane, device, bytes, op->mode);
		return false;
	}
	if (op->r[3] != PTX_NO_OPERAND) {
		barrier = shared_range(w, op, lane, shared_address(w, op->r[3], op->aux, lane), 8, 8, true);
		if (!barrier)
			return false;
	}
	if (!copy_pieces(w, op, lane, device, own, bytes))
		return false;
	if (barrier) {
		memcpy(&word, barrier, 8);
		word = changed(PTX_MBARRIER_COMPLETE, word, bytes);
		memcpy(barrier, &word, 8);
	}
	return true;
}

PTX_HANDLER(cp_bulk)
{
	for (unsigned i = 0; i < PTX_LANES; i++)
		if ((mask >> i & 1) && !copy_bulk(w, op, i))
			return;
}

ptx_handler PTX_BUILT(ptx_find_async)(unsigned family, unsigned type)
{
	if (type != PTX_TYPE_NONE)
		return NULL;
	return family == PTX_MBARRIER ? mbarrier : family == PTX_CPBULK ? cp_bulk : NULL;
}

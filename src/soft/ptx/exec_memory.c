/* Loads, stores and addresses. First the host address of every active lane is found, then the bytes are
 * moved. Blocks on other host threads share device memory, so it is accessed with relaxed atomics. Only one
 * host thread accesses the memory of a block. */
#include "soft/ptx/access.h"

static inline void fetch_addresses(const struct ptx_warp *w, const struct ptx_op *op, unsigned slot,
				   uint64_t *address)
{
	if (op->address_width == 4) {
		const uint32_t *row = ptx_in(w, op->r[slot]);

		PTX_EACH_LANE
		address[i] = (uint32_t)(row[i] + (uint64_t)op->offset);
	} else {
		const uint64_t *row = ptx_in(w, op->r[slot]);

		PTX_EACH_LANE
		address[i] = row[i] + (uint64_t)op->offset;
	}
}

static uint8_t *resolve_shared(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t at,
			       uint32_t bytes, bool is_write)
{
	const struct ptx_block *b = w->block;

	if (at < b->shared_bytes && b->shared_bytes - at >= bytes)
		return b->shared + at;
	ptx_fault_set(w, op, PTX_FAULT_SHARED, lane, at, bytes, is_write);
	return NULL;
}

static uint8_t *resolve_local(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t at,
			      uint32_t bytes, bool is_write)
{
	uint32_t room = w->block->local_bytes;

	if (at < room && room - at >= bytes)
		return ptx_local_of(w, lane) + at;
	ptx_fault_set(w, op, PTX_FAULT_LOCAL, lane, at, bytes, is_write);
	return NULL;
}

static uint8_t *resolve_param(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t at,
			      uint32_t bytes, bool is_write)
{
	uint32_t room = w->block->function->kernel.param_bytes;

	if (!is_write && at < room && room - at >= bytes)
		return w->block->params + at;
	ptx_fault_set(w, op, PTX_FAULT_ADDRESS, lane, PTX_PARAM_WINDOW + at, bytes, is_write);
	return NULL;
}

static uint8_t *resolve_device(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t address,
			       uint32_t bytes, bool is_write)
{
	uint8_t *at = ptx_span_find(w->block, address, bytes, is_write);

	if (!at)
		ptx_fault_set(w, op, PTX_FAULT_ADDRESS, lane, address, bytes, is_write);
	return at;
}

/* The host address of memory of the block, or of a generic address. */
static uint8_t *resolve_own(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t address,
			    uint32_t bytes, bool is_write)
{
	switch (op->space) {
	case PTX_SPACE_SHARED:
		return resolve_shared(w, op, lane, address, bytes, is_write);
	case PTX_SPACE_LOCAL:
		return resolve_local(w, op, lane, address, bytes, is_write);
	case PTX_SPACE_PARAM:
		return resolve_param(w, op, lane, address, bytes, is_write);
	default:
		if (address - PTX_SHARED_WINDOW < PTX_WINDOW_BYTES)
			return resolve_shared(w, op, lane, address - PTX_SHARED_WINDOW, bytes, is_write);
		if (address - PTX_LOCAL_WINDOW < PTX_WINDOW_BYTES)
			return resolve_local(w, op, lane, address - PTX_LOCAL_WINDOW, bytes, is_write);
		if (address - PTX_PARAM_WINDOW < PTX_WINDOW_BYTES)
			return resolve_param(w, op, lane, address - PTX_PARAM_WINDOW, bytes, is_write);
		w->block->moved_bytes += bytes;
		return resolve_device(w, op, lane, address, bytes, is_write);
	}
}

uint8_t *PTX_BUILT(ptx_resolve_one)(struct ptx_warp *w, const struct ptx_op *op, unsigned lane,
				    uint64_t address, uint32_t bytes, bool is_write)
{
	if (address & (bytes - 1)) {
		ptx_fault_set(w, op, PTX_FAULT_MISALIGNED, lane, address, bytes, is_write);
		return NULL;
	}
	if (op->space != PTX_SPACE_GLOBAL)
		return resolve_own(w, op, lane, address, bytes, is_write);
	w->block->moved_bytes += bytes;
	return resolve_device(w, op, lane, address, bytes, is_write);
}

/* The fast path: all lanes are in the span used last, or all in shared memory. */
static inline bool resolve_together(const struct ptx_warp *w, const struct ptx_op *op,
				    const uint64_t *address, uint32_t bytes, bool is_write, uint8_t **at)
{
	const struct ptx_block *b = w->block;
	const struct ptx_span *s = &b->spans[0];
	bool is_shared = op->space == PTX_SPACE_SHARED;
	uint64_t base = is_shared ? 0 : s->base, room = is_shared ? b->shared_bytes : s->bytes;
	uint8_t *host = is_shared ? b->shared : s->host;
	uint64_t wrong = 0;

	if (room < bytes || op->space == PTX_SPACE_LOCAL || op->space == PTX_SPACE_PARAM)
		return false;
	if (!is_shared && (!s->host || (is_write && !s->is_writable)))
		return false;
	for (unsigned i = 0; i < PTX_LANES; i++)
		wrong |= (uint64_t)(address[i] - base > room - bytes) | (address[i] & (bytes - 1));
	if (wrong)
		return false;
	PTX_EACH_LANE
	at[i] = host + (address[i] - base);
	return true;
}

/* Lane by lane: not inlined, to keep the fast path fast. */
static __attribute__((noinline)) bool resolve_each(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask,
						   const uint64_t *address, uint32_t bytes, bool is_write,
						   uint8_t **at)
{
	bool is_device = op->space == PTX_SPACE_GLOBAL;

	if (is_device)
		w->block->moved_bytes += (uint64_t)bytes * (uint32_t)__builtin_popcount(mask);
	for (unsigned i = 0; i < PTX_LANES; i++) {
		if (!(mask >> i & 1))
			continue;
		if (address[i] & (bytes - 1)) {
			ptx_fault_set(w, op, PTX_FAULT_MISALIGNED, i, address[i], bytes, is_write);
			return false;
		}
		at[i] = is_device ? resolve_device(w, op, i, address[i], bytes, is_write)
				  : resolve_own(w, op, i, address[i], bytes, is_write);
		if (!at[i])
			return false;
	}
	return true;
}

bool PTX_BUILT(ptx_resolve)(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, unsigned slot,
			    uint32_t bytes, bool is_write, uint8_t **at)
{
	uint64_t address[PTX_LANES];

	fetch_addresses(w, op, slot, address);
	if (mask != ~0u || !resolve_together(w, op, address, bytes, is_write, at))
		return resolve_each(w, op, mask, address, bytes, is_write, at);
	if (op->space != PTX_SPACE_SHARED)
		w->block->moved_bytes += (uint64_t)bytes * PTX_LANES;
	return true;
}

static inline bool is_signed(unsigned type)
{
	return type == PTX_TYPE_S8 || type == PTX_TYPE_S16 || type == PTX_TYPE_S32;
}

/* Load one element per lane into a row whose lanes have the size of the element. */
#define MOVE_ROW(bits) \
	static inline void load_##bits(void *row, uint8_t *const *at, unsigned offset, uint32_t mask) \
	{ \
		uint##bits##_t *d = row; \
		if (mask == ~0u) { \
			for (unsigned i = 0; i < PTX_LANES; i++) \
				d[i] = __atomic_load_n( \
					(const uint##bits##_t *)(const void *)(at[i] + offset), \
					__ATOMIC_RELAXED); \
			return; \
		} \
		for (unsigned i = 0; i < PTX_LANES; i++) \
			if (mask >> i & 1) \
				d[i] = __atomic_load_n( \
					(const uint##bits##_t *)(const void *)(at[i] + offset), \
					__ATOMIC_RELAXED); \
	} \
	static inline void store_##bits(const void *row, uint8_t *const *at, unsigned offset, uint32_t mask) \
	{ \
		const uint##bits##_t *s = row; \
		for (unsigned i = 0; i < PTX_LANES; i++) \
			if (mask >> i & 1) \
				__atomic_store_n((uint##bits##_t *)(void *)(at[i] + offset), s[i], \
						 __ATOMIC_RELAXED); \
	}
MOVE_ROW(16)
MOVE_ROW(32)
MOVE_ROW(64)

static inline uint64_t load_any(const uint8_t *at, unsigned bytes)
{
	switch (bytes) {
	case 1:
		return __atomic_load_n(at, __ATOMIC_RELAXED);
	case 2:
		return __atomic_load_n((const uint16_t *)(const void *)at, __ATOMIC_RELAXED);
	case 4:
		return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_RELAXED);
	default:
		return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
	}
}

/* Elements narrower than the register are extended by the sign of their type. */
static void load_extended(uint8_t *row, unsigned width, uint8_t *const *at, unsigned offset, unsigned type,
			  uint32_t mask)
{
	unsigned bytes = ptx_type_bytes((enum ptx_type)type), unused = 64 - 8 * bytes;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint64_t v;

		if (!(mask >> i & 1))
			continue;
		v = load_any(at[i] + offset, bytes);
		if (is_signed(type))
			v = (uint64_t)((int64_t)(v << unused) >> unused);
		memcpy(row + (size_t)i * width, &v, width);
	}
}

static void store_narrowed(const uint8_t *row, unsigned width, uint8_t *const *at, unsigned offset,
			   unsigned bytes, uint32_t mask)
{
	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint32_t v = 0;

		if (!(mask >> i & 1))
			continue;
		memcpy(&v, row + (size_t)i * width, bytes);
		if (bytes == 1)
			__atomic_store_n(at[i] + offset, (uint8_t)v, __ATOMIC_RELAXED);
		else if (bytes == 2)
			__atomic_store_n((uint16_t *)(void *)(at[i] + offset), (uint16_t)v, __ATOMIC_RELAXED);
		else
			__atomic_store_n((uint32_t *)(void *)(at[i] + offset), v, __ATOMIC_RELAXED);
	}
}

void PTX_BUILT(ptx_load_rows)(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, uint8_t *const *at)
{
	unsigned bytes = ptx_type_bytes((enum ptx_type)op->type2);

	for (unsigned k = 0; k < op->vector; k++) {
		void *row = ptx_out(w, op->r[k]);

		if (bytes != op->width)
			load_extended(row, op->width, at, k * bytes, op->type2, mask);
		else if (bytes == 4)
			load_32(row, at, k * bytes, mask);
		else if (bytes == 8)
			load_64(row, at, k * bytes, mask);
		else
			load_16(row, at, k * bytes, mask);
	}
}

void PTX_BUILT(ptx_store_rows)(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, uint8_t *const *at)
{
	unsigned size = ptx_type_bytes((enum ptx_type)op->type2);

	for (unsigned k = 0; k < op->vector; k++) {
		const void *row = ptx_in(w, op->r[k]);

		if (size != op->width)
			store_narrowed(row, op->width, at, k * size, size, mask);
		else if (size == 4)
			store_32(row, at, k * size, mask);
		else if (size == 8)
			store_64(row, at, k * size, mask);
		else
			store_16(row, at, k * size, mask);
	}
}

PTX_HANDLER(load)
{
	uint32_t bytes = ptx_type_bytes((enum ptx_type)op->type2) * op->vector;
	uint8_t *at[PTX_LANES];

	if (!PTX_BUILT(ptx_resolve)(w, op, mask, op->vector, bytes, false, at))
		return;
	PTX_BUILT(ptx_load_rows)(w, op, mask, at);
	if (op->flags & PTX_FLAG_ACQUIRE)
		ptx_fence();
}

PTX_HANDLER(store)
{
	unsigned size = ptx_type_bytes((enum ptx_type)op->type2);
	uint8_t *at[PTX_LANES];

	if (!PTX_BUILT(ptx_resolve)(w, op, mask, op->vector, size * op->vector, true, at))
		return;
	if (op->flags & PTX_FLAG_RELEASE)
		ptx_fence();
	PTX_BUILT(ptx_store_rows)(w, op, mask, at);
}

/* The same address for all lanes; the loader has checked that it is inside. */
PTX_HANDLER(load_param)
{
	uint8_t *at[PTX_LANES];
	uint8_t *from = w->block->params + op->offset;
	uint32_t bytes = ptx_type_bytes((enum ptx_type)op->type2) * op->vector;

	if (((uintptr_t)op->offset & (bytes - 1)) != 0) {
		ptx_fault_set(w, op, PTX_FAULT_MISALIGNED, (unsigned)__builtin_ctz(mask),
			      (uint64_t)op->offset, bytes, false);
		return;
	}
	PTX_EACH_LANE
	at[i] = from;
	PTX_BUILT(ptx_load_rows)(w, op, mask, at);
}

static uint64_t window_of(unsigned space)
{
	return space == PTX_SPACE_SHARED  ? PTX_SHARED_WINDOW
	       : space == PTX_SPACE_LOCAL ? PTX_LOCAL_WINDOW
	       : space == PTX_SPACE_PARAM ? PTX_PARAM_WINDOW
					  : 0;
}

PTX_LANE_OP(cvta, uint64_t, const uint64_t *pa = ptx_in(w, op->r[1]);
	    uint64_t window = op->mode ? 0 - window_of(op->space) : window_of(op->space);, , pa[i] + window)

PTX_HANDLER(isspacep)
{
	const uint64_t *a = ptx_in(w, op->r[1]);
	uint64_t window = window_of(op->space);
	uint32_t bits = 0;

	for (unsigned i = 0; i < PTX_LANES; i++)
		bits |= (uint32_t)(window ? a[i] - window < PTX_WINDOW_BYTES : a[i] < PTX_SHARED_WINDOW) << i;
	ptx_pred_put(w, op->r[0], bits, mask);
}

/* Bytes after `wanted` are zero. */
static void copy_one(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t wanted)
{
	memset(to, 0, bytes);
	for (uint32_t k = 0; k < wanted && k < bytes; k += 4) {
		uint32_t word = __atomic_load_n((const uint32_t *)(const void *)(from + k), __ATOMIC_RELAXED);

		memcpy(to + k, &word, wanted - k < 4 ? wanted - k : 4);
	}
}

PTX_HANDLER(cp_async)
{
	const uint32_t *wanted = op->r[2] == PTX_NO_OPERAND ? NULL : ptx_in(w, op->r[2]);
	const uint8_t *row = ptx_in(w, op->r[1]);
	uint8_t *from[PTX_LANES];
	uint32_t reading = mask;

	for (unsigned i = 0; wanted && i < PTX_LANES; i++)
		if (!wanted[i])
			reading &= ~(1u << i); /* nothing is read, whatever the address */
	if (reading && !PTX_BUILT(ptx_resolve)(w, op, reading, 0, op->aux, false, from))
		return;
	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint64_t address = 0;
		uint8_t *to;

		if (!(mask >> i & 1))
			continue;
		memcpy(&address, row + (size_t)i * op->width, op->width);
		if (address & (op->aux - 1)) {
			ptx_fault_set(w, op, PTX_FAULT_MISALIGNED, i, address, op->aux, true);
			return;
		}
		to = resolve_shared(w, op, i, address, op->aux, true);
		if (!to)
			return;
		copy_one(to, reading >> i & 1 ? from[i] : to, op->aux,
			 !(reading >> i & 1) ? 0
			 : wanted	     ? wanted[i]
					     : op->aux);
	}
}

PTX_HANDLER(fence)
{
	(void)w;
	ptx_fence();
}

PTX_HANDLER(nop)
{
	(void)w;
}

ptx_handler PTX_BUILT(ptx_find_memory)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT] = {
		[PTX_LDPARAM] = load_param, [PTX_LD] = load,	      [PTX_ST] = store,
		[PTX_ISSPACEP] = isspacep,  [PTX_CPASYNC] = cp_async, [PTX_FENCE] = fence,
	};

	if (family == PTX_CVTA)
		return type == PTX_TYPE_U64 ? cvta : NULL;
	if (family == PTX_NOP)
		return nop;
	return type == PTX_TYPE_NONE ? handlers[family] : NULL;
}

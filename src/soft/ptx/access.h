/* Shared by loads, stores and atomics. */
#ifndef BELFRY_SOFT_PTX_ACCESS_H
#define BELFRY_SOFT_PTX_ACCESS_H

#include "soft/ptx/lane.h"

/* Host addresses of operand `slot` of the op for the lanes of mask; false: the warp has faulted. */
bool PTX_BUILT(ptx_resolve)(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, unsigned slot,
			    uint32_t bytes, bool is_write, uint8_t **at);

/* The host address of `bytes` bytes in the op's space; NULL: the warp has faulted. */
uint8_t *PTX_BUILT(ptx_resolve_one)(struct ptx_warp *w, const struct ptx_op *op, unsigned lane,
				    uint64_t address, uint32_t bytes, bool is_write);
/* Copy elements between these addresses and the op's registers r[0] and so on. */
void PTX_BUILT(ptx_load_rows)(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, uint8_t *const *at);
void PTX_BUILT(ptx_store_rows)(struct ptx_warp *w, const struct ptx_op *op, uint32_t mask,
			       uint8_t *const *at);

/* A full memory fence for device memory. The thread sanitizer does not support fences; an atomic addition has
 * the same effect. */
static inline void ptx_fence(void)
{
#if defined(__SANITIZE_THREAD__)
	static uint32_t word;

	__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

#endif

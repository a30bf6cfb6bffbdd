/* Move lanes to another pc: shared by branches, calls and returns. */
#ifndef BELFRY_SOFT_PTX_SEND_H
#define BELFRY_SOFT_PTX_SEND_H

#include "soft/ptx/lane.h"

/* Move the lanes of mask; the others stay. */
static inline void ptx_send(struct ptx_warp *w, uint32_t mask, uint32_t pc)
{
	if (mask == w->mask)
		w->pc = pc;
	else
		ptx_warp_split(w, mask, pc);
}

/* Move each lane to its pc: all lanes with the pc of the first lane, until none is left. */
static inline void ptx_send_each(struct ptx_warp *w, uint32_t mask, const uint32_t *pc)
{
	while (mask) {
		uint32_t to = pc[__builtin_ctz(mask)], group = 0;

		for (unsigned i = 0; i < PTX_LANES; i++)
			if ((mask >> i & 1) && pc[i] == to)
				group |= 1u << i;
		ptx_send(w, group, to);
		mask &= ~group;
	}
}

#endif

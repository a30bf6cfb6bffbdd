/* The basic blocks of a body and their order. */
#ifndef BELFRY_SOFT_PTX_FLOW_H
#define BELFRY_SOFT_PTX_FLOW_H

#include "soft/ptx/load.h"

struct ptx_flow_block {
	uint32_t first; /* op */
	uint32_t end;	/* one past the last */
	uint32_t fall;	/* next block without a jump; ~0: none */
	uint32_t jump;	/* target block of a branch; ~0: none */
	uint32_t table; /* brx: index of its op, else ~0 */
};

struct ptx_flow {
	struct ptx_flow_block *blocks;
	uint32_t count;
	uint32_t *block_of; /* op -> block */
};

int ptx_flow_find(struct ptx_loader *loader, const struct ptx_body *body, struct ptx_flow *flow);
void ptx_flow_free(struct ptx_flow *flow);
/* Successor `index` of a block, or ~0 after the last one. */
uint32_t ptx_flow_next(const struct ptx_loader *loader, const struct ptx_body *body,
		       const struct ptx_flow *flow, uint32_t block, uint32_t index);
/* order.c: the reachable blocks, each loop contiguous and before its successors. */
int ptx_flow_sort(struct ptx_loader *loader, const struct ptx_body *body, const struct ptx_flow *flow,
		  uint32_t *order, uint32_t *count);

#endif

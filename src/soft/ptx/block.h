/* A running block: everything that the handlers access. */
#ifndef BELFRY_SOFT_PTX_BLOCK_H
#define BELFRY_SOFT_PTX_BLOCK_H

#include <string.h>

#include "soft/ptx/code.h"

#define PTX_BARRIERS 16u
#define PTX_SPANS 4u
/* Reserved shared memory for cooperative groups (details/memory.h), if the module uses it. Measured on an
 * H200: begin 0, end 288, cap 1024, both offsets 0. Here it follows the program's shared memory. */
#define PTX_RESERVED_BYTES 288u

enum ptx_wait { PTX_WAIT_NOTHING, PTX_WAIT_LANES, PTX_WAIT_BARRIER };

/* Lanes of a warp at the same pc. */
struct ptx_fragment {
	uint32_t pc;
	uint32_t mask;
	enum ptx_wait wait;
	uint32_t barrier;
};

struct ptx_warp {
	uint8_t *base[2]; /* registers, constants: see PTX_CONST_BIT */
	uint32_t pc;	  /* of the running fragment; its lanes: */
	uint32_t mask;
	uint32_t stop;	/* at or after this pc another fragment must run; 0: stop now */
	uint32_t carry; /* CC.CF of each lane */
	struct ptx_block *block;
	uint32_t *extra; /* PTX_EXTRA_ROWS rows, if the module uses them */
	uint32_t index;
	uint32_t exists;
	uint32_t live;				  /* not exited */
	struct ptx_fragment fragments[PTX_LANES]; /* fragments that do not run */
	uint32_t fragment_count;
	uint32_t turn;	  /* for fairness among fragments */
	bool is_spinning; /* a wait has failed: others run first */
	uint32_t forced;  /* lanes that no longer wait for others */
	uint64_t cost;
	uint32_t tid[3][PTX_LANES];
	uint32_t top[PTX_LANES];   /* of the stack of each lane, in its local memory */
	uint32_t depth[PTX_LANES]; /* bytes in use of its control stack */
};

struct ptx_barrier {
	uint32_t arrived;
	uint32_t expected; /* 0: all running threads of the block */
	uint32_t votes;
	bool all;
	bool any;
};

struct ptx_block {
	const struct ptx_module *module;
	const struct ptx_function *function;
	const struct ptx_host *host;
	struct ptx_launch launch;
	uint8_t *params;
	uint8_t *shared;
	uint32_t shared_bytes;
	uint32_t shared_used;	/* the program's part of shared_bytes */
	uint32_t reserved_base; /* after that, if the module uses reserved shared memory */
	uint32_t dynamic_base;
	uint8_t *local;
	uint32_t local_bytes; /* per thread, with its stack */
	uint32_t stack_used;  /* the highest top of all lanes */
	uint8_t *control; /* return addresses and saved registers per thread; not accessible to the program */
	uint32_t control_bytes;
	uint8_t *files;	 /* register files of all warps */
	uint32_t *extra; /* rows of operands of all warps, or NULL */
	struct ptx_warp *warps;
	uint32_t warp_count;
	uint32_t thread_count;
	uint32_t live_threads;
	uint32_t next_warp;
	uint32_t idle_warps; /* consecutive warps that could not run */
	uint64_t run_cost;   /* cost at the last start of ptx_block_run */
	uint32_t index[3];
	uint32_t sm;
	struct ptx_barrier barriers[PTX_BARRIERS];
	struct ptx_span spans[PTX_SPANS]; /* [0] was used last */
	struct ptx_fault fault;
	enum ptx_state state;
	uint64_t cost;	      /* since the start of the block: its clock */
	uint64_t moved_bytes; /* of device memory, since the last start of ptx_block_run */
};

/* block.c */
void ptx_fault_set(struct ptx_warp *warp, const struct ptx_op *op, enum ptx_fault_kind kind, unsigned lane,
		   uint64_t address, uint32_t bytes, bool is_write);
uint8_t *ptx_span_miss(struct ptx_block *block, uint64_t address, uint32_t bytes, bool is_write);
/* warp.c */
void ptx_warp_start(struct ptx_warp *warp);
/* Select the next fragment to run; false if none can. */
bool ptx_warp_pick(struct ptx_warp *warp);
/* Suspend the running fragment. */
void ptx_warp_park(struct ptx_warp *warp, enum ptx_wait wait, uint32_t barrier);
/* These lanes of the running fragment wait at its pc, the others continue. */
void ptx_warp_leave_behind(struct ptx_warp *warp, uint32_t mask, enum ptx_wait wait);
void ptx_warp_split(struct ptx_warp *warp, uint32_t mask, uint32_t pc);
void ptx_barrier_check(struct ptx_block *block, uint32_t barrier);
void ptx_barriers_check(struct ptx_block *block);

static inline void *ptx_out(const struct ptx_warp *warp, uint32_t r)
{
	return warp->base[0] + r;
}

static inline const void *ptx_in(const struct ptx_warp *warp, uint32_t r)
{
	return warp->base[r >> 31] + (r & ~PTX_CONST_BIT);
}

static inline uint32_t ptx_pred(const struct ptx_warp *warp, const struct ptx_op *op, unsigned slot)
{
	uint32_t bits;

	memcpy(&bits, ptx_in(warp, op->r[slot]), sizeof(bits));
	return op->negated >> slot & 1 ? ~bits : bits;
}

static inline void ptx_pred_put(const struct ptx_warp *warp, uint32_t r, uint32_t bits, uint32_t mask)
{
	uint32_t *at = ptx_out(warp, r);

	*at = (*at & ~mask) | (bits & mask);
}

/* The host address of [address, address + bytes), or NULL. */
static inline uint8_t *ptx_span_find(struct ptx_block *block, uint64_t address, uint32_t bytes, bool is_write)
{
	const struct ptx_span *s = &block->spans[0];
	uint64_t at = address - s->base;

	if (at < s->bytes && s->bytes - at >= bytes && (!is_write || s->is_writable))
		return s->host + at;
	return ptx_span_miss(block, address, bytes, is_write);
}

/* The offset of the frame of a stacked caller; 0 for others, whose `row` is PTX_NO_OPERAND. */
static inline uint64_t ptx_frame_of(const struct ptx_warp *warp, uint32_t row, unsigned lane)
{
	return row == PTX_NO_OPERAND ? 0 : ((const uint64_t *)ptx_in(warp, row))[lane];
}

static inline uint8_t *ptx_local_of(const struct ptx_warp *warp, unsigned lane)
{
	const struct ptx_block *b = warp->block;

	return b->local + ((size_t)warp->index * PTX_LANES + lane) * b->local_bytes;
}

#endif

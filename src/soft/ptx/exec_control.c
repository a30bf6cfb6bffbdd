/* Control: branches, calls, barriers, exits, and the loop that runs a fragment. */
#include <stdio.h>

#include "soft/ptx/send.h"

PTX_HANDLER(branch)
{
	ptx_send(w, mask, (uint32_t)op->offset);
}

PTX_HANDLER(branch_table)
{
	const uint32_t *index = ptx_in(w, op->r[0]);
	uint32_t pc[PTX_LANES] = { 0 };

	for (unsigned i = 0; i < PTX_LANES; i++) {
		if (!(mask >> i & 1))
			continue;
		if (index[i] >= op->aux) {
			ptx_fault_set(w, op, PTX_FAULT_INDEX, i, index[i], 0, false);
			return;
		}
		pc[i] = w->block->module->targets[(size_t)op->offset + index[i]];
	}
	ptx_send_each(w, mask, pc);
}

PTX_HANDLER(leave)
{
	w->live &= ~mask;
	w->mask &= ~mask;
	w->block->live_threads -= (uint32_t)__builtin_popcount(mask);
	if (!w->mask)
		w->stop = 0;
	ptx_barriers_check(w->block); /* barriers may have waited for these lanes */
}

PTX_HANDLER(trap)
{
	ptx_fault_set(w, op, op->family == PTX_TRAP ? PTX_FAULT_TRAP : PTX_FAULT_BREAKPOINT,
		      (unsigned)__builtin_ctz(mask), 0, 0, false);
}

static uint32_t uniform(const struct ptx_warp *w, uint32_t place, uint32_t mask)
{
	return place == PTX_NO_OPERAND ? 0 : ((const uint32_t *)ptx_in(w, place))[__builtin_ctz(mask)];
}

/* An aligned barrier with a count counts in warps: a whole warp counts as 32 threads. */
static uint32_t arriving(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask, uint32_t expected)
{
	return expected && op->aux && mask == w->live ? PTX_LANES : (uint32_t)__builtin_popcount(mask);
}

PTX_HANDLER(barrier)
{
	uint32_t id = uniform(w, op->r[1], mask), expected = uniform(w, op->r[2], mask);
	struct ptx_barrier *b;
	uint32_t votes;

	if (id >= PTX_BARRIERS) {
		ptx_fault_set(w, op, PTX_FAULT_BARRIER, (unsigned)__builtin_ctz(mask), id, 0, false);
		return;
	}
	b = &w->block->barriers[id];
	b->all |= !b->arrived;
	b->expected = expected;
	b->arrived += arriving(w, op, mask, expected);
	if (op->mode >= PTX_BAR_POPC) {
		votes = ptx_pred(w, op, 3) & mask;
		b->votes += (uint32_t)__builtin_popcount(votes);
		b->all &= votes == mask;
		b->any |= votes != 0;
	}
	if (op->mode != PTX_BAR_ARRIVE) {
		if (mask != w->mask) /* with a guard: the other lanes continue */
			ptx_warp_split(w, w->mask & ~mask, w->pc);
		ptx_warp_park(w, PTX_WAIT_BARRIER, id);
	}
	ptx_barrier_check(w->block, id);
}

enum { FORMAT_BYTES = 4096, ASSERT_BYTES = 72 };

/* Copy a string from device memory, truncated to `room`; other threads may change it meanwhile. Returns false
 * if it does not end in the span in which it starts. */
static bool device_text(struct ptx_block *block, uint64_t address, char *to, size_t room)
{
	const volatile uint8_t *at = ptx_span_find(block, address, 1, false);
	const struct ptx_span *s = &block->spans[0];
	uint64_t left = at ? s->bytes - (address - s->base) : 0;
	size_t length = 0;

	while (length < left && length < room - 1 && (to[length] = (char)at[length]))
		length++;
	to[length] = 0;
	return at && length < left;
}

static uint64_t argument(const struct ptx_warp *w, const struct ptx_op *op, const struct ptx_copy *c,
			 unsigned lane)
{
	uint64_t v = 0;

	memcpy(&v, ptx_local_of(w, lane) + ptx_frame_of(w, op->r[0], lane) + c->from, c->bytes);
	return v;
}

static void print_one(struct ptx_warp *w, const struct ptx_op *op, const struct ptx_copy *c, unsigned lane)
{
	const struct ptx_host *host = w->block->host;
	char format[FORMAT_BYTES];
	struct ptx_print print = { .format = format };
	uint64_t args = argument(w, op, c + 1, lane) - PTX_LOCAL_WINDOW;
	uint32_t room = w->block->local_bytes;
	int32_t result = -1;

	if (!device_text(w->block, argument(w, op, c, lane), format, sizeof(format))) {
		ptx_fault_set(w, op, PTX_FAULT_ADDRESS, lane, argument(w, op, c, lane), 1, false);
		return;
	}
	if (args < room) {
		print.args = ptx_local_of(w, lane) + args;
		print.args_bytes = room - args;
	}
	for (unsigned k = 0; k < 3; k++) {
		print.block[k] = w->block->index[k];
		print.thread[k] = w->tid[k][lane];
	}
	if (host->print)
		result = host->print(host->ctx, &print);
	if (c[2].bytes)
		memcpy(ptx_local_of(w, lane) + ptx_frame_of(w, op->r[0], lane) + c[2].to, &result,
		       sizeof(result));
}

PTX_HANDLER(print)
{
	const struct ptx_copy *c = w->block->module->copies + op->offset;

	for (unsigned i = 0; i < PTX_LANES; i++)
		if ((mask >> i & 1) && w->block->fault.kind == PTX_FAULT_NONE)
			print_one(w, op, c, i);
}

/* __assertfail(condition, file, line, function, character size) */
PTX_HANDLER(assert_fail)
{
	const struct ptx_copy *c = w->block->module->copies + op->offset;
	unsigned lane = (unsigned)__builtin_ctz(mask);
	char condition[ASSERT_BYTES], file[ASSERT_BYTES], function[ASSERT_BYTES];

	device_text(w->block, argument(w, op, c, lane), condition, sizeof(condition));
	device_text(w->block, argument(w, op, c + 1, lane), file, sizeof(file));
	device_text(w->block, argument(w, op, c + 3, lane), function, sizeof(function));
	ptx_fault_set(w, op, PTX_FAULT_ASSERT, lane, 0, 0, false);
	snprintf(w->block->fault.text, sizeof(w->block->fault.text), "%s:%u: %s: assertion `%s' failed", file,
		 (unsigned)argument(w, op, c + 2, lane), function, condition);
}

/* free(pointer), which a virtual destructor calls. There is no malloc: only a null pointer can be freed. */
PTX_HANDLER(free_null)
{
	const struct ptx_copy *c = w->block->module->copies + op->offset;

	for (unsigned i = 0; i < PTX_LANES; i++)
		if ((mask >> i & 1) && argument(w, op, c, i))
			ptx_fault_set(w, op, PTX_FAULT_ADDRESS, i, argument(w, op, c, i), 1, true);
}

/* cudaGraphSetConditional(handle, value): the handle is the address of a word, see src/soft/cuda/graph_condition.c */
PTX_HANDLER(set_condition)
{
	const struct ptx_copy *c = w->block->module->copies + op->offset;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint64_t address = mask >> i & 1 ? argument(w, op, c, i) : 0;
		uint32_t *at;

		if (!(mask >> i & 1))
			continue;
		at = address & 3 ? NULL : (void *)ptx_span_find(w->block, address, sizeof(*at), true);
		if (at)
			__atomic_store_n(at, (uint32_t)argument(w, op, c + 1, i), __ATOMIC_RELEASE);
		else
			ptx_fault_set(w, op, PTX_FAULT_ADDRESS, i, address, sizeof(*at), true);
	}
}

uint32_t PTX_BUILT(ptx_fragment_run)(struct ptx_warp *w, uint32_t limit)
{
	const struct ptx_op *code = w->block->module->code;
	uint32_t done = 0;

	while (w->pc < w->stop && done < limit) {
		const struct ptx_op *op = &code[w->pc++];
		uint32_t mask = w->mask;

		done++;
		w->cost += op->is_free ? 0 : (uint32_t)__builtin_popcount(mask);
		if (op->guard != PTX_NO_OPERAND) {
			mask &= *(const uint32_t *)ptx_in(w, op->guard) ^ op->guard_xor;
			if (!mask)
				continue;
		}
		op->run(w, op, mask);
	}
	return done;
}

ptx_handler PTX_BUILT(ptx_find_control)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT] = {
		[PTX_BRA] = branch,	[PTX_BRX] = branch_table,
		[PTX_EXIT] = leave,	[PTX_BAR] = barrier,
		[PTX_TRAP] = trap,	[PTX_BRKPT] = trap,
		[PTX_VPRINTF] = print,	[PTX_ASSERTFAIL] = assert_fail,
		[PTX_FREE] = free_null, [PTX_SET_CONDITION] = set_condition,
	};

	(void)type;
	return handlers[family];
}

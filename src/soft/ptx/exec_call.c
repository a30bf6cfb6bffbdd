/* Calls and returns. A function with a fixed frame has its return addresses in a register row. A stacked
 * function has a record on the control stack of each lane: the return address, and the caller's registers if
 * the callee may overwrite them. The program cannot write to the control stack, so records are trusted. */
#include "soft/ptx/send.h"

struct record {
	uint32_t site;
	uint32_t return_pc;
	uint32_t base;	/* of the callee's frame */
	uint32_t bytes; /* of the record and the registers below it */
};

PTX_HANDLER(call)
{
	uint32_t *place = ptx_out(w, op->r[0]);

	for (unsigned i = 0; i < PTX_LANES; i++)
		if (mask >> i & 1)
			place[i] = w->pc;
	ptx_send(w, mask, (uint32_t)op->offset);
}

PTX_HANDLER(ret)
{
	ptx_send_each(w, mask, ptx_out(w, op->r[0]));
}

/* Copy between a caller's frame, which may be on the stack (r[0]), and the fixed frame of its callee. */
PTX_HANDLER(copy)
{
	const struct ptx_copy *first = w->block->module->copies + op->offset;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint8_t *frame = ptx_local_of(w, i);
		uint64_t base = mask >> i & 1 ? ptx_frame_of(w, op->r[0], i) : 0;

		for (const struct ptx_copy *c = first; (mask >> i & 1) && c->bytes; c++)
			memcpy(frame + c->to + (op->mode ? base : 0), frame + c->from + (op->mode ? 0 : base),
			       c->bytes);
	}
}

static uint8_t *control_of(const struct ptx_warp *w, unsigned lane)
{
	const struct ptx_block *b = w->block;

	return b->control + ((size_t)w->index * PTX_LANES + lane) * b->control_bytes;
}

/* Copy the registers of a function for one lane to `saved` or back. */
static void move_registers(struct ptx_warp *w, const struct ptx_function *f, unsigned lane, uint8_t *saved,
			   bool is_back)
{
	static const uint32_t widths[3] = { 8, 4, 2 };
	uint8_t *row = ptx_out(w, f->regs_base);

	for (unsigned c = 0; c < 3; c++)
		for (uint32_t i = 0; i < f->rows[c];
		     i++, row += (size_t)widths[c] * PTX_LANES, saved += widths[c]) {
			uint8_t *at = row + (size_t)lane * widths[c];

			memcpy(is_back ? at : saved, is_back ? saved : at, widths[c]);
		}
	for (uint32_t i = 0; i < f->rows[3]; i++, row += 4, saved++) {
		uint32_t *bits = (uint32_t *)(void *)row;

		if (is_back)
			*bits = (*bits & ~(1u << lane)) | (uint32_t)*saved << lane;
		else
			*saved = *bits >> lane & 1;
	}
}

/* The function at an address, if its signature matches the call. */
static const struct ptx_function *find_callee(const struct ptx_module *m, const struct ptx_site *site,
					      uint64_t address)
{
	uint64_t number = (address - m->code_base) / PTX_FUNCTION_BYTES;
	const struct ptx_function *f;

	if (address < m->code_base || address % PTX_FUNCTION_BYTES || number >= m->numbered_count)
		return NULL;
	f = m->numbered[number];
	if (!f || !f->is_taken || f->kernel.param_count != site->arg_count ||
	    (site->result_bytes && f->result_bytes != site->result_bytes))
		return NULL;
	for (uint32_t i = 0; i < site->arg_count; i++)
		if (f->kernel.params[i].bytes != m->copies[site->args + i].bytes)
			return NULL;
	return f;
}

static uint64_t caller_base(const struct ptx_warp *w, const struct ptx_function *f, unsigned lane)
{
	return f->is_stacked ? ptx_frame_of(w, f->frame_at, lane) : f->local_base;
}

static bool enter(struct ptx_warp *w, const struct ptx_op *op, const struct ptx_function *callee,
		  unsigned lane)
{
	struct ptx_block *b = w->block;
	const struct ptx_site *site = &b->module->sites[op->offset];
	uint32_t saved = site->saves ? site->caller->saved_bytes : 0;
	uint32_t frame = (callee->local_bytes + 15) & ~15u;
	struct record record = { .site = (uint32_t)op->offset,
				 .return_pc = w->pc,
				 .base = w->top[lane],
				 .bytes = saved + (uint32_t)sizeof(record) };
	uint64_t from = site->caller->is_stacked ? caller_base(w, site->caller, lane) : 0;
	uint8_t *local = ptx_local_of(w, lane), *control = control_of(w, lane) + w->depth[lane];

	if (frame > b->local_bytes - w->top[lane] || record.bytes > b->control_bytes - w->depth[lane]) {
		ptx_fault_set(w, op, PTX_FAULT_STACK, lane, 0, frame, true);
		return false;
	}
	for (uint32_t i = 0; i < site->arg_count; i++) {
		const struct ptx_copy *c = &b->module->copies[site->args + i];

		memcpy(local + record.base + callee->kernel.params[i].offset, local + from + c->from,
		       c->bytes);
	}
	if (saved)
		move_registers(w, site->caller, lane, control, false);
	memcpy(control + saved, &record, sizeof(record));
	w->depth[lane] += record.bytes;
	w->top[lane] += frame;
	if (w->top[lane] > b->stack_used)
		b->stack_used = w->top[lane];
	((uint64_t *)ptx_out(w, callee->frame_at))[lane] = record.base;
	return true;
}

PTX_HANDLER(call_stacked)
{
	const struct ptx_module *m = w->block->module;
	const struct ptx_site *site = &m->sites[op->offset];
	uint64_t address[PTX_LANES] = { 0 };
	uint32_t pc[PTX_LANES] = { 0 };

	if (!site->callee) /* before any write: the callee may use the same registers */
		memcpy(address, ptx_in(w, op->r[0]), sizeof(address));
	for (unsigned i = 0; i < PTX_LANES; i++) {
		const struct ptx_function *f = site->callee;

		if (!(mask >> i & 1))
			continue;
		if (!f)
			f = find_callee(m, site, address[i]);
		if (!f) {
			ptx_fault_set(w, op, PTX_FAULT_CALL, i, address[i], 0, false);
			return;
		}
		if (!enter(w, op, f, i))
			return;
		pc[i] = f->entry;
	}
	ptx_send_each(w, mask, pc);
}

/* Restore the caller's registers first: one of them holds the address of its frame. */
static uint32_t leave_frame(struct ptx_warp *w, const struct ptx_function *f, unsigned lane)
{
	const struct ptx_block *b = w->block;
	uint8_t *control = control_of(w, lane), *local = ptx_local_of(w, lane);
	const struct ptx_site *site;
	struct record record;

	memcpy(&record, control + w->depth[lane] - sizeof(record), sizeof(record));
	site = &b->module->sites[record.site];
	w->depth[lane] -= record.bytes;
	w->top[lane] = record.base;
	if (site->saves)
		move_registers(w, site->caller, lane, control + w->depth[lane], true);
	if (site->result_bytes)
		memcpy(local + caller_base(w, site->caller, lane) + site->result_to,
		       local + record.base + f->result_at, site->result_bytes);
	return record.return_pc;
}

PTX_HANDLER(ret_stacked)
{
	const struct ptx_function *f = w->block->module->numbered[op->aux];
	uint32_t pc[PTX_LANES] = { 0 };

	for (unsigned i = 0; i < PTX_LANES; i++)
		if (mask >> i & 1)
			pc[i] = leave_frame(w, f, i);
	ptx_send_each(w, mask, pc);
}

ptx_handler PTX_BUILT(ptx_find_call)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT] = {
		[PTX_CALL] = call,	    [PTX_COPY] = copy,	      [PTX_RET] = ret,
		[PTX_CALLX] = call_stacked, [PTX_RETX] = ret_stacked,
	};

	(void)type;
	return handlers[family];
}

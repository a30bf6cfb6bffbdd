/* What registers and spilled pointers hold. States of different paths are merged where the paths meet, so the
 * number of states is the number of ops. */
#include <string.h>

#include "base/number.h"
#include "probe/inside.h"

unsigned reg_slot(const struct program *program, const struct op *op, unsigned number)
{
	if (number == BPF_REG_10)
		return FRAME_POINTER;
	return number < 6 ? number : number + 4 * program->frames[op->frame].depth;
}

struct reg state_get(const struct program *program, const struct op *op, const struct state *state,
		     unsigned number)
{
	if (number == BPF_REG_10)
		return (struct reg){ .kind = REG_STACK, .index = (uint8_t)op->frame, .is_known = true };
	return state->regs[reg_slot(program, op, number)];
}

void state_set(const struct program *program, const struct op *op, struct state *state, unsigned number,
	       struct reg reg)
{
	state->regs[reg_slot(program, op, number)] = reg;
}

static bool is_same(const struct reg *a, const struct reg *b)
{
	return a->kind == b->kind && a->index == b->index && a->is_known == b->is_known &&
	       a->may_be_null == b->may_be_null && a->id == b->id && a->number == b->number;
}

static bool is_zero(const struct reg *reg)
{
	return reg->kind == REG_NUMBER && reg->is_known && !reg->number;
}

/* A frame in which an address with an unknown offset is formed has at least the bytes above the start. From
 * the frame pointer itself the address can be anywhere. */
void frame_use_from(struct program *program, const struct reg *reg)
{
	struct frame *frame = &program->frames[reg->index];
	uint64_t bytes = reg->is_known && reg->number < 0 ? -(uint64_t)reg->number : PROBE_STACK_BYTES;

	if (bytes <= PROBE_STACK_BYTES)
		frame->used = (uint32_t)bf_max(frame->used, bf_round_up(bytes, 8));
}

static struct reg join_same_kind(struct program *program, const struct reg *a, const struct reg *b)
{
	struct reg reg = *a;

	if (a->index != b->index)
		return (struct reg){ .kind = REG_MIXED };
	reg.may_be_null = a->may_be_null || b->may_be_null;
	reg.id = a->id == b->id ? a->id : 0;
	if (a->is_known == b->is_known && a->number == b->number)
		return reg;
	if (a->kind == REG_CTX)
		return (struct reg){ .kind = REG_MIXED };
	if (a->kind == REG_STACK) {
		frame_use_from(program, a);
		frame_use_from(program, b);
	}
	reg.is_known = false;
	reg.number = 0;
	return reg;
}

static struct reg join_reg(struct program *program, const struct reg *a, const struct reg *b)
{
	const struct reg *value = a->kind == REG_VALUE ? a : b, *other = a->kind == REG_VALUE ? b : a;
	struct reg reg = *value;

	if (a->kind == REG_UNSET || b->kind == REG_UNSET)
		return (struct reg){ .kind = REG_UNSET };
	if (a->kind == b->kind)
		return join_same_kind(program, a, b);
	if (value->kind == REG_VALUE && is_zero(other)) {
		reg.may_be_null = true;
		reg.id = 0;
		return reg;
	}
	return (struct reg){ .kind = REG_MIXED };
}

static const struct spill *find_spill(const struct state *state, uint32_t frame, int64_t offset)
{
	for (uint32_t i = 0; i < state->spill_count; i++)
		if (state->spills[i].frame == frame && state->spills[i].offset == offset)
			return &state->spills[i];
	return NULL;
}

/* A pointer that is spilled on one path only is a number afterwards. */
static bool join_spills(struct program *program, struct state *to, const struct state *from)
{
	bool is_changed = false;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < to->spill_count; i++) {
		const struct spill *other = find_spill(from, to->spills[i].frame, to->spills[i].offset);
		struct spill joined = to->spills[i];

		if (other)
			joined.reg = join_reg(program, &to->spills[i].reg, &other->reg);
		if (!other || joined.reg.kind == REG_MIXED) {
			is_changed = true;
			continue;
		}
		is_changed |= !is_same(&joined.reg, &to->spills[i].reg);
		to->spills[kept++] = joined;
	}
	to->spill_count = kept;
	return is_changed;
}

bool state_join(struct program *program, struct state *to, const struct state *from)
{
	bool is_changed = false;

	if (!to->is_reached) {
		*to = *from;
		to->is_reached = true;
		return true;
	}
	for (unsigned i = 0; i < REGISTERS; i++) {
		struct reg joined = join_reg(program, &to->regs[i], &from->regs[i]);

		is_changed |= !is_same(&joined, &to->regs[i]);
		to->regs[i] = joined;
	}
	return join_spills(program, to, from) || is_changed;
}

static void drop_overlapping(struct state *state, uint32_t frame, int64_t offset, uint32_t bytes)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < state->spill_count; i++) {
		const struct spill *spill = &state->spills[i];

		if (spill->frame == frame && spill->offset < offset + bytes && offset < spill->offset + 8)
			continue;
		state->spills[kept++] = *spill;
	}
	state->spill_count = kept;
}

void state_spill(struct state *state, uint32_t frame, int64_t offset, uint32_t bytes, const struct reg *reg)
{
	drop_overlapping(state, frame, offset, bytes);
	if (bytes != 8 || reg->kind == REG_NUMBER || reg->kind == REG_MIXED ||
	    state->spill_count == SPILLS_MAX)
		return;
	state->spills[state->spill_count++] =
		(struct spill){ .frame = frame, .offset = (int32_t)offset, .reg = *reg };
}

struct reg state_unspill(const struct state *state, uint32_t frame, int64_t offset, uint32_t bytes)
{
	const struct spill *spill = bytes == 8 ? find_spill(state, frame, offset) : NULL;

	return spill ? spill->reg : (struct reg){ .kind = REG_NUMBER };
}

void state_forget_frame(struct state *state, uint32_t frame)
{
	drop_overlapping(state, frame, -PROBE_STACK_BYTES, PROBE_STACK_BYTES);
}

static void learn(struct reg *reg, bool is_null)
{
	if (!is_null)
		reg->may_be_null = false;
	else if (reg->is_known && !reg->number)
		*reg = (struct reg){ .kind = REG_NUMBER, .is_known = true };
}

void state_learn_null(const struct program *program, const struct op *op, struct state *state,
		      unsigned number, bool is_null)
{
	struct reg tested = state_get(program, op, state, number);

	/* An offset from NULL is not NULL, so a test of it says nothing. */
	if (tested.kind != REG_VALUE || !tested.may_be_null || !tested.is_known || tested.number)
		return;
	learn(&state->regs[reg_slot(program, op, number)], is_null);
	if (!tested.id)
		return;
	for (unsigned i = 0; i < REGISTERS; i++)
		if (state->regs[i].kind == REG_VALUE && state->regs[i].id == tested.id)
			learn(&state->regs[i], is_null);
	for (uint32_t i = 0; i < state->spill_count; i++)
		if (state->spills[i].reg.kind == REG_VALUE && state->spills[i].reg.id == tested.id)
			learn(&state->spills[i].reg, is_null);
}

/* When a lookup is repeated, its earlier result is another pointer. */
void state_forget_id(struct state *state, uint32_t id)
{
	for (unsigned i = 0; i < REGISTERS; i++)
		if (state->regs[i].id == id)
			state->regs[i].id = 0;
	for (uint32_t i = 0; i < state->spill_count; i++)
		if (state->spills[i].reg.id == id)
			state->spills[i].reg.id = 0;
}

/* A pointer into the frame becomes a number. */
void state_end_frame(struct state *state, uint32_t frame)
{
	uint32_t kept = 0;

	for (unsigned i = 0; i < REGISTERS; i++)
		if (state->regs[i].kind == REG_STACK && state->regs[i].index == frame)
			state->regs[i] = (struct reg){ .kind = REG_NUMBER };
	for (uint32_t i = 0; i < state->spill_count; i++) {
		const struct reg *reg = &state->spills[i].reg;

		if (state->spills[i].frame != frame && !(reg->kind == REG_STACK && reg->index == frame))
			state->spills[kept++] = state->spills[i];
	}
	state->spill_count = kept;
}

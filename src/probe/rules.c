/* The rules for one op, and what it does to a state. */
#include <errno.h>

#include "probe/inside.h"

enum { OFFSET_MAX = 1 << 24 };
enum { MODE_SIGNED = 0x80 }; /* BPF_MEMSX, which older headers lack */

static const struct reg a_number = { .kind = REG_NUMBER };

static int need_set(struct checker *c, const struct op *op, const struct state *state, unsigned number)
{
	if (number > BPF_REG_10)
		return code_refuse(c->code, op, c->err, "there is no register r%u", number);
	if (state_get(c->program, op, state, number).kind == REG_UNSET)
		return code_refuse(c->code, op, c->err, "register r%u is not set on every path", number);
	return 0;
}

static int need_writable(struct checker *c, const struct op *op)
{
	if (op->insn.dst_reg >= BPF_REG_10)
		return code_refuse(c->code, op, c->err, "register r%u cannot be written", op->insn.dst_reg);
	return 0;
}

static bool is_pointer(const struct reg *reg)
{
	return reg->kind != REG_UNSET && reg->kind != REG_NUMBER;
}

/* A pointer whose offset is not known before the run. */
static struct reg blur(struct program *program, const struct reg *pointer)
{
	struct reg reg = *pointer;

	if (pointer->kind != REG_STACK && pointer->kind != REG_VALUE)
		return (struct reg){ .kind = REG_MIXED };
	if (pointer->kind == REG_STACK)
		frame_use_from(program, pointer);
	reg.is_known = false;
	reg.number = 0;
	return reg;
}

static struct reg move_pointer(struct program *program, const struct reg *pointer, const struct reg *by,
			       bool is_back)
{
	struct reg reg = *pointer;

	if (!pointer->is_known || !by->is_known || pointer->kind == REG_MAP || pointer->kind == REG_MIXED ||
	    by->number > OFFSET_MAX || by->number < -OFFSET_MAX)
		return blur(program, pointer);
	reg.number += is_back ? -by->number : by->number;
	return reg.number > OFFSET_MAX || reg.number < -OFFSET_MAX ? blur(program, pointer) : reg;
}

static struct reg add(struct program *program, const struct reg *a, const struct reg *b, bool is_back)
{
	if (is_pointer(a) && b->kind == REG_NUMBER)
		return move_pointer(program, a, b, is_back);
	if (a->kind == REG_NUMBER && is_pointer(b) && !is_back)
		return move_pointer(program, b, a, false);
	if (a->kind == REG_NUMBER && b->kind == REG_NUMBER && a->is_known && b->is_known)
		return (struct reg){ .kind = REG_NUMBER,
				     .is_known = true,
				     .number =
					     (int64_t)(is_back ? (uint64_t)a->number - (uint64_t)b->number
							       : (uint64_t)a->number + (uint64_t)b->number) };
	return a_number;
}

static bool is_alu_known(const struct bpf_insn *insn)
{
	bool is_64 = BPF_CLASS(insn->code) == BPF_ALU64;

	switch (BPF_OP(insn->code)) {
	case BPF_DIV:
	case BPF_MOD:
		return insn->off == 0 || insn->off == 1;
	case BPF_MOV:
		if (BPF_SRC(insn->code) == BPF_K)
			return !insn->off;
		return insn->off == 0 || insn->off == 8 || insn->off == 16 || (is_64 && insn->off == 32);
	case BPF_END:
		if (is_64 && BPF_SRC(insn->code) != BPF_K)
			return false;
		return !insn->off && (insn->imm == 16 || insn->imm == 32 || insn->imm == 64);
	case BPF_NEG:
		return !insn->off && BPF_SRC(insn->code) == BPF_K;
	default:
		return !insn->off && BPF_OP(insn->code) <= BPF_END;
	}
}

static struct reg second_operand(struct checker *c, const struct op *op, const struct state *state)
{
	if (BPF_SRC(op->insn.code) == BPF_X)
		return state_get(c->program, op, state, op->insn.src_reg);
	return (struct reg){ .kind = REG_NUMBER, .is_known = true, .number = op->insn.imm };
}

static struct reg alu_result(struct checker *c, const struct op *op, const struct state *state)
{
	struct reg a = state_get(c->program, op, state, op->insn.dst_reg);
	struct reg b = second_operand(c, op, state);
	bool is_64 = BPF_CLASS(op->insn.code) == BPF_ALU64;

	switch (BPF_OP(op->insn.code)) {
	case BPF_MOV:
		if (op->insn.off)
			return a_number;
		if (is_64)
			return b;
		if (b.kind == REG_NUMBER && b.is_known)
			b.number = (uint32_t)b.number;
		return b.kind == REG_NUMBER ? b : a_number;
	case BPF_ADD:
		return is_64 ? add(c->program, &a, &b, false) : a_number;
	case BPF_SUB:
		return is_64 ? add(c->program, &a, &b, true) : a_number;
	default:
		return a_number;
	}
}

static int step_alu(struct checker *c, const struct op *op, struct state *state)
{
	uint8_t what = BPF_OP(op->insn.code);
	bool has_source = BPF_SRC(op->insn.code) == BPF_X && what != BPF_END;

	if (!is_alu_known(&op->insn))
		return code_refuse(c->code, op, c->err, "unknown instruction %#x", op->insn.code);
	if (need_writable(c, op) || (has_source && need_set(c, op, state, op->insn.src_reg)) ||
	    (what != BPF_MOV && need_set(c, op, state, op->insn.dst_reg)))
		return -EINVAL;
	state_set(c->program, op, state, op->insn.dst_reg, alu_result(c, op, state));
	return 0;
}

static int step_wide(struct checker *c, const struct op *op, struct state *state)
{
	struct reg reg = { .is_known = true };
	uint32_t map = (uint32_t)op->wide;

	if (op->insn.code != (BPF_LD | BPF_IMM | BPF_DW) || need_writable(c, op))
		return code_refuse(c->code, op, c->err, "unknown instruction %#x", op->insn.code);
	if (op->insn.src_reg && map >= c->code->map_count)
		return code_refuse(c->code, op, c->err, "it refers to a map that does not exist");
	switch (op->insn.src_reg) {
	case 0:
		reg.kind = REG_NUMBER;
		reg.number = (int64_t)op->wide;
		break;
	case BPF_PSEUDO_MAP_IDX:
		reg.kind = REG_MAP;
		reg.index = (uint8_t)map;
		break;
	case BPF_PSEUDO_MAP_IDX_VALUE:
		if (c->code->maps[map].kind != PROBE_MAP_DATA)
			return code_refuse(c->code, op, c->err, "it takes the address of a value of map %s",
					   c->code->maps[map].name);
		reg.kind = REG_VALUE;
		reg.index = (uint8_t)map;
		reg.number = (int64_t)(op->wide >> 32);
		break;
	default:
		return code_refuse(c->code, op, c->err, "it refers to a map by number, or to a function");
	}
	state_set(c->program, op, state, op->insn.dst_reg, reg);
	return 0;
}

static int read_field(struct checker *c, const struct op *op, const struct access *access, uint32_t bytes)
{
	const struct probe_field *field;

	for (unsigned i = 0; (field = probe_field_at(i)); i++) {
		if (access->offset < field->offset || access->offset + bytes > field->offset + field->bytes)
			continue;
		c->program->info.fields |= 1ull << i;
		c->program->info.is_per_thread |= field->is_per_thread;
		return 0;
	}
	return code_refuse(c->code, op, c->err, "%u bytes at offset %lld are not one field of the context",
			   bytes, (long long)access->offset);
}

static int step_load(struct checker *c, const struct op *op, struct state *state)
{
	struct reg pointer, result = a_number;
	uint32_t bytes = insn_bytes(&op->insn);
	uint8_t mode = BPF_MODE(op->insn.code);
	struct access access;

	if (mode != BPF_MEM && (mode != MODE_SIGNED || bytes == 8))
		return code_refuse(c->code, op, c->err, "unknown instruction %#x", op->insn.code);
	if (need_writable(c, op) || need_set(c, op, state, op->insn.src_reg))
		return -EINVAL;
	pointer = state_get(c->program, op, state, op->insn.src_reg);
	if (access_decide(c->code, c->program, op, &pointer, op->insn.off, bytes, ACCESS_READ, true, &access,
			  c->err))
		return -EINVAL;
	if (access.kind == REG_CTX && read_field(c, op, &access, bytes))
		return -EINVAL;
	if (access.kind == REG_STACK && !access.is_checked)
		result = state_unspill(state, access.index, access.offset, bytes);
	state_set(c->program, op, state, op->insn.dst_reg, result);
	return 0;
}

static void note_store(struct state *state, const struct access *access, uint32_t bytes,
		       const struct reg *stored)
{
	if (access->kind != REG_STACK)
		return;
	if (access->is_checked)
		state_forget_frame(state, access->index);
	else
		state_spill(state, access->index, access->offset, bytes, stored);
}

static bool is_atomic_known(const struct bpf_insn *insn)
{
	switch (insn->imm) {
	case BPF_ADD:
	case BPF_OR:
	case BPF_AND:
	case BPF_XOR:
	case BPF_ADD | BPF_FETCH:
	case BPF_OR | BPF_FETCH:
	case BPF_AND | BPF_FETCH:
	case BPF_XOR | BPF_FETCH:
	case BPF_XCHG:
	case BPF_CMPXCHG:
		return insn_bytes(insn) >= 4;
	default:
		return false;
	}
}

static int step_atomic(struct checker *c, const struct op *op, struct state *state)
{
	unsigned result = op->insn.imm == BPF_CMPXCHG ? BPF_REG_0 : op->insn.src_reg;

	if (!is_atomic_known(&op->insn))
		return code_refuse(c->code, op, c->err, "unknown atomic instruction %#x",
				   (unsigned)op->insn.imm);
	if (op->insn.imm == BPF_CMPXCHG && need_set(c, op, state, BPF_REG_0))
		return -EINVAL;
	if (op->insn.imm & BPF_FETCH && result == BPF_REG_10)
		return code_refuse(c->code, op, c->err, "register r10 cannot be written");
	if (op->insn.imm & BPF_FETCH)
		state_set(c->program, op, state, result, a_number);
	return 0;
}

static int step_store(struct checker *c, const struct op *op, struct state *state)
{
	bool has_source = BPF_CLASS(op->insn.code) == BPF_STX;
	bool is_atomic = has_source && BPF_MODE(op->insn.code) == BPF_ATOMIC;
	uint32_t bytes = insn_bytes(&op->insn);
	struct reg pointer, stored = a_number;
	struct access access;

	if (BPF_MODE(op->insn.code) != BPF_MEM && !is_atomic)
		return code_refuse(c->code, op, c->err, "unknown instruction %#x", op->insn.code);
	if (need_set(c, op, state, op->insn.dst_reg) ||
	    (has_source && need_set(c, op, state, op->insn.src_reg)))
		return -EINVAL;
	pointer = state_get(c->program, op, state, op->insn.dst_reg);
	if (access_decide(c->code, c->program, op, &pointer, op->insn.off, bytes, ACCESS_WRITE, true, &access,
			  c->err))
		return -EINVAL;
	if (is_atomic && step_atomic(c, op, state))
		return -EINVAL;
	if (has_source && !is_atomic)
		stored = state_get(c->program, op, state, op->insn.src_reg);
	note_store(state, &access, bytes, &stored);
	return 0;
}

static bool is_jump_known(const struct bpf_insn *insn)
{
	uint8_t what = BPF_OP(insn->code);

	return what <= BPF_JSLE && what != BPF_CALL && what != BPF_EXIT &&
	       (what != BPF_JA || BPF_SRC(insn->code) == BPF_K);
}

static int step_jump(struct checker *c, const struct op *op, struct state *state)
{
	uint8_t what = BPF_OP(op->insn.code);

	if (op->insn.code == (BPF_JMP | BPF_CALL))
		return helper_check(c->code, c->program, op, state, c->err);
	if (op->insn.code == (BPF_JMP | BPF_EXIT))
		return need_set(c, op, state, BPF_REG_0);
	if (!is_jump_known(&op->insn))
		return code_refuse(c->code, op, c->err, "unknown instruction %#x", op->insn.code);
	if (what == BPF_JA)
		return 0;
	if (need_set(c, op, state, op->insn.dst_reg) ||
	    (BPF_SRC(op->insn.code) == BPF_X && need_set(c, op, state, op->insn.src_reg)))
		return -EINVAL;
	return 0;
}

static int step_frame(struct checker *c, const struct op *op, struct state *state)
{
	unsigned first = op->kind == OP_ENTER ? BPF_REG_6 : BPF_REG_1;
	unsigned last = op->kind == OP_ENTER ? BPF_REG_9 : BPF_REG_5;

	if (op->kind == OP_LEAVE && need_set(c, op, state, BPF_REG_0))
		return -EINVAL;
	for (unsigned i = first; i <= last; i++)
		state_set(c->program, op, state, i, (struct reg){ .kind = REG_UNSET });
	if (op->kind == OP_LEAVE)
		state_end_frame(state, op->frame);
	return 0;
}

int rules_step(struct checker *c, const struct op *op, struct state *state)
{
	if (op->kind != OP_INSN)
		return step_frame(c, op, state);
	switch (BPF_CLASS(op->insn.code)) {
	case BPF_ALU:
	case BPF_ALU64:
		return step_alu(c, op, state);
	case BPF_LD:
		return step_wide(c, op, state);
	case BPF_LDX:
		return step_load(c, op, state);
	case BPF_ST:
	case BPF_STX:
		return step_store(c, op, state);
	default:
		return step_jump(c, op, state);
	}
}

/* Functions are inlined: a call in a kernel would need the ABI's stack, and registers of the kernel would be
 * saved around it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "probe/inside.h"

struct maker {
	const struct code *code;
	struct program *program;
	struct bf_error *err;
	uint8_t *starts; /* whether a function begins at an instruction */
};

static bool is_call(const struct bpf_insn *insn)
{
	return insn->code == (BPF_JMP | BPF_CALL) && insn->src_reg == BPF_PSEUDO_CALL;
}

static bool is_wide(const struct bpf_insn *insn)
{
	return insn->code == (BPF_LD | BPF_IMM | BPF_DW);
}

static bool is_exit(const struct bpf_insn *insn)
{
	return insn->code == (BPF_JMP | BPF_EXIT);
}

/* A jump inside its function. */
static bool is_jump(const struct bpf_insn *insn)
{
	uint8_t class = BPF_CLASS(insn->code), op = BPF_OP(insn->code);

	return (class == BPF_JMP || class == BPF_JMP32) && op != BPF_CALL && op != BPF_EXIT;
}

static int64_t jump_distance(const struct bpf_insn *insn)
{
	return insn->code == (BPF_JMP32 | BPF_JA) ? insn->imm : insn->off;
}

static struct op op_at(const struct maker *maker, uint32_t origin, uint32_t frame)
{
	return (struct op){ .insn = maker->code->insns[origin], .origin = origin, .frame = frame };
}

static int call_target(const struct maker *maker, uint32_t at, uint32_t *target)
{
	int64_t to = (int64_t)at + 1 + maker->code->insns[at].imm;
	struct op op = op_at(maker, at, 0);

	if (to < 0 || (uint64_t)to >= maker->code->count)
		return code_refuse(maker->code, &op, maker->err, "a call leaves the program");
	*target = (uint32_t)to;
	return 0;
}

static int mark_starts(struct maker *maker)
{
	const struct code *code = maker->code;

	for (uint32_t at = 0; at < code->count; at++) {
		uint32_t target = 0;

		if (is_call(&code->insns[at])) {
			int rc = call_target(maker, at, &target);

			if (rc)
				return rc;
			maker->starts[target] = 1;
		}
		at += is_wide(&code->insns[at]);
	}
	return 0;
}

static uint32_t function_end(const struct maker *maker, uint32_t start)
{
	uint32_t end = start + 1;

	while (end < maker->code->count && !maker->starts[end])
		end++;
	return end;
}

static int push(struct maker *maker, const struct op *op)
{
	struct program *program = maker->program;

	if (program->op_count == PROBE_INSNS_MAX)
		return code_refuse(
			maker->code, op, maker->err,
			"program %s has more than %d instructions, with the functions that it calls",
			program->name, PROBE_INSNS_MAX);
	program->ops[program->op_count++] = *op;
	return 0;
}

static int open_frame(struct maker *maker, const struct op *op, uint32_t *frame)
{
	struct program *program = maker->program;
	uint32_t depth = program->frames[op->frame].depth + 1;

	if (depth == PROBE_DEPTH_MAX)
		return code_refuse(maker->code, op, maker->err,
				   "functions call each other more than %d deep; recursion is not possible",
				   PROBE_DEPTH_MAX);
	if (program->frame_count == FRAMES_MAX)
		return code_refuse(maker->code, op, maker->err,
				   "program %s makes more than %d calls of functions", program->name,
				   FRAMES_MAX - 1);
	*frame = (uint32_t)program->frame_count++;
	program->frames[*frame] = (struct frame){ .parent = op->frame, .depth = depth };
	return 0;
}

static int add_function(struct maker *maker, uint32_t start, uint32_t frame);

static int add_call(struct maker *maker, const struct op *op)
{
	struct op enter = *op;
	uint32_t target = 0;
	size_t first;
	int rc = call_target(maker, op->origin, &target);

	if (!rc)
		rc = open_frame(maker, op, &enter.frame);
	enter.kind = OP_ENTER;
	first = maker->program->op_count + 1;
	if (!rc)
		rc = push(maker, &enter);
	if (!rc)
		rc = add_function(maker, target, enter.frame);
	for (size_t i = first; !rc && i < maker->program->op_count; i++) {
		struct op *inner = &maker->program->ops[i];

		if (inner->kind == OP_LEAVE && inner->frame == enter.frame)
			inner->target = (uint32_t)maker->program->op_count;
	}
	return rc;
}

static int add_wide(struct maker *maker, struct op *op, uint32_t end)
{
	const struct bpf_insn *second = &maker->code->insns[op->origin + 1];

	if (op->origin + 1 >= end || second->code)
		return code_refuse(maker->code, op, maker->err, "half an instruction; compile it again");
	op->wide = (uint32_t)op->insn.imm | (uint64_t)(uint32_t)second->imm << 32;
	return push(maker, op);
}

static int add_insn(struct maker *maker, uint32_t at, uint32_t end, uint32_t frame)
{
	struct op op = op_at(maker, at, frame);

	if (is_call(&op.insn))
		return add_call(maker, &op);
	if (is_wide(&op.insn))
		return add_wide(maker, &op, end);
	if (is_exit(&op.insn) && frame)
		op.kind = OP_LEAVE;
	return push(maker, &op);
}

/* Replaces the distances of the function's jumps by indices of ops. places[i]: the op of instruction start + i,
 * or UINT32_MAX. */
static int set_targets(struct maker *maker, const uint32_t *places, uint32_t start, uint32_t end,
		       size_t first, uint32_t frame)
{
	struct program *program = maker->program;

	for (size_t i = first; i < program->op_count; i++) {
		struct op *op = &program->ops[i];
		int64_t to;

		if (op->frame != frame || op->kind != OP_INSN || !is_jump(&op->insn))
			continue;
		to = (int64_t)op->origin + 1 + jump_distance(&op->insn);
		if (to < start || to >= end || places[to - start] == UINT32_MAX)
			return code_refuse(maker->code, op, maker->err,
					   "a jump leaves its function or ends inside an instruction");
		op->target = places[to - start];
	}
	return 0;
}

static int add_function(struct maker *maker, uint32_t start, uint32_t frame)
{
	uint32_t end = function_end(maker, start);
	uint32_t *places = malloc((size_t)(end - start) * sizeof(*places));
	size_t first = maker->program->op_count;
	int rc = 0;

	if (!places)
		return bf_fail(maker->err, ENOMEM, "not enough memory");
	memset(places, 0xff, (size_t)(end - start) * sizeof(*places));
	for (uint32_t at = start; !rc && at < end; at++) {
		places[at - start] = (uint32_t)maker->program->op_count;
		rc = add_insn(maker, at, end, frame);
		at += is_wide(&maker->code->insns[at]);
	}
	if (!rc)
		rc = set_targets(maker, places, start, end, first, frame);
	free(places);
	return rc;
}

static void mark_targets(struct program *program)
{
	for (size_t i = 0; i < program->op_count; i++) {
		const struct op *op = &program->ops[i];

		if ((op->kind == OP_LEAVE || (op->kind == OP_INSN && is_jump(&op->insn))) &&
		    op->target < program->op_count)
			program->ops[op->target].is_target = true;
	}
}

int inline_program(const struct code *code, struct program *program, struct bf_error *err)
{
	struct maker maker = { code, program, err, calloc(code->count + 1, 1) };
	int rc;

	program->ops = calloc(PROBE_INSNS_MAX, sizeof(*program->ops));
	program->frame_count = 1;
	program->frames[0] = (struct frame){ 0 };
	if (!maker.starts || !program->ops) {
		free(maker.starts);
		return bf_fail(err, ENOMEM, "not enough memory");
	}
	if (code->starts)
		memcpy(maker.starts, code->starts, code->count);
	rc = mark_starts(&maker);
	maker.starts[program->start] = 1;
	if (!rc)
		rc = add_function(&maker, program->start, 0);
	mark_targets(program);
	program->info.insn_count = (uint32_t)program->op_count;
	free(maker.starts);
	return rc;
}

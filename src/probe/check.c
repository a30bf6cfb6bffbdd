/* Abstract interpretation: states of registers go forward over the ops until they no longer change. An access
 * that the states do not prove is checked at run time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "probe/inside.h"

static int flow_to(struct checker *c, const struct op *op, uint32_t target, const struct state *state)
{
	if (target >= c->program->op_count)
		return code_refuse(c->code, op, c->err, "program %s ends without a return", c->program->name);
	if (target <= op - c->program->ops)
		c->program->info.has_loops = true;
	if (state_join(c->program, &c->program->states[target], state))
		c->is_due[target] = 1;
	return 0;
}

/* To the op behind this one, unless that belongs to another call. */
static int flow_on(struct checker *c, const struct op *op, const struct state *state)
{
	const struct op *next = op + 1, *end = c->program->ops + c->program->op_count;
	uint32_t frame = next < end ? next->frame : op->frame;

	if (next < end && next->kind == OP_ENTER)
		frame = c->program->frames[next->frame].parent;
	if (frame != op->frame)
		return code_refuse(c->code, op, c->err, "a function ends without a return");
	return flow_to(c, op, (uint32_t)(next - c->program->ops), state);
}

/* Whether a comparison with a constant can have this result. Only what compilers make of NULL matters. */
static bool can_be(const struct op *op, const struct reg *reg, bool is_equal)
{
	if (reg->kind != REG_NUMBER || !reg->is_known)
		return true;
	return (reg->number == op->insn.imm) == is_equal;
}

/* An equality with a constant. A test against 0 says whether a lookup found something. */
static int flow_equality(struct checker *c, const struct op *op, const struct state *state, bool is_taken,
			 bool is_equal)
{
	struct reg tested = state_get(c->program, op, state, op->insn.dst_reg);
	struct state after = *state;

	if (!can_be(op, &tested, is_equal))
		return 0;
	if (!op->insn.imm && op->insn.dst_reg < BPF_REG_10)
		state_learn_null(c->program, op, &after, op->insn.dst_reg, is_equal);
	return is_taken ? flow_to(c, op, op->target, &after) : flow_on(c, op, &after);
}

static int flow_branch(struct checker *c, const struct op *op, const struct state *state)
{
	bool is_equal = op->insn.code == (BPF_JMP | BPF_JEQ | BPF_K);
	int rc;

	if (is_equal || op->insn.code == (BPF_JMP | BPF_JNE | BPF_K)) {
		rc = flow_equality(c, op, state, true, is_equal);
		return rc ? rc : flow_equality(c, op, state, false, !is_equal);
	}
	rc = flow_to(c, op, op->target, state);
	return rc ? rc : flow_on(c, op, state);
}

static int flow(struct checker *c, const struct op *op, const struct state *state)
{
	uint8_t class = BPF_CLASS(op->insn.code), what = BPF_OP(op->insn.code);

	if (op->kind == OP_LEAVE)
		return flow_to(c, op, op->target, state);
	if (op->kind == OP_ENTER || (class != BPF_JMP && class != BPF_JMP32) ||
	    op->insn.code == (BPF_JMP | BPF_CALL))
		return flow_on(c, op, state);
	if (op->insn.code == (BPF_JMP | BPF_EXIT))
		return 0;
	if (what == BPF_JA)
		return flow_to(c, op, op->target, state);
	return flow_branch(c, op, state);
}

static int visit(struct checker *c, size_t i)
{
	struct state state = c->program->states[i];
	int rc = rules_step(c, &c->program->ops[i], &state);

	return rc ? rc : flow(c, &c->program->ops[i], &state);
}

/* The next op whose state has changed: the first one from `at` on, or else the first of all. So what a jump backwards
 * changes waits until the ops behind the jump have been visited. NULL: there is none. */
static const uint8_t *next_due(const struct checker *c, size_t at)
{
	const uint8_t *due = memchr(c->is_due + at, 1, c->program->op_count - at);

	return due ? due : memchr(c->is_due, 1, at);
}

/* An op that fails leads nowhere. Its state may still change to one in which it does not fail: a pointer that
 * is NULL on the first path can be a value on the next. */
static int settle(struct checker *c, struct bf_error *err)
{
	const uint8_t *due;
	size_t at = 0;

	while ((due = next_due(c, at))) {
		at = (size_t)(due - c->is_due);
		if (!*c->visits)
			return code_refuse(
				c->code, &c->program->ops[at], err,
				"the object needs more than %d steps to be checked; use shorter loops",
				PROBE_VISITS_MAX);
		--*c->visits;
		c->is_due[at] = 0;
		visit(c, at);
	}
	return 0;
}

/* No state changes any more, so this only reports. */
static int judge(struct checker *c, struct bf_error *err)
{
	int rc = 0;

	c->err = err;
	for (size_t i = 0; !rc && i < c->program->op_count; i++)
		if (c->program->states[i].is_reached)
			rc = visit(c, i);
	return rc;
}

/* Each frame lies below its caller's. */
static int place_frames(struct checker *c)
{
	struct program *program = c->program;

	for (size_t i = 0; i < program->frame_count; i++) {
		struct frame *frame = &program->frames[i], *parent = &program->frames[frame->parent];
		uint32_t end;

		frame->base = i ? parent->base + parent->used : 0;
		end = frame->base + frame->used;
		if (end > PROBE_STACK_BYTES)
			return bf_fail(
				c->err, EINVAL,
				"program %s uses %u bytes of stack, with the functions that it calls; the limit is %d",
				program->name, end, PROBE_STACK_BYTES);
		program->info.stack_bytes = (uint32_t)bf_max(program->info.stack_bytes, end);
	}
	return 0;
}

int check_program(const struct code *code, struct program *program, uint32_t *visits, struct bf_error *err)
{
	struct checker c = { code, program, NULL, calloc(program->op_count + 1, 1), visits };
	struct state *first;
	int rc;

	program->states = calloc(program->op_count + 1, sizeof(*program->states));
	if (!c.is_due || !program->states) {
		free(c.is_due);
		return bf_fail(err, ENOMEM, "not enough memory");
	}
	first = &program->states[0];
	first->is_reached = true;
	first->regs[BPF_REG_1] = (struct reg){ .kind = REG_CTX, .is_known = true };
	c.is_due[0] = 1;
	rc = settle(&c, err);
	if (!rc)
		rc = judge(&c, err);
	if (!rc)
		rc = place_frames(&c);
	free(c.is_due);
	return rc;
}

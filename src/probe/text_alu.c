/* Arithmetic and jumps. */
#include "probe/inside.h"

/* The operands of an instruction in PTX. 32-bit ones are copied to and from $w registers. */
struct operands {
	unsigned bits;
	char temp; /* temporary registers of this width: $t or $w */
	char to[16], a[16], b[32];
};

static void put_source(struct text *text, const struct op *op, struct operands *o)
{
	unsigned slot = reg_slot(text->program, op, op->insn.src_reg);

	if (BPF_SRC(op->insn.code) == BPF_K && o->bits == 64)
		snprintf(o->b, sizeof(o->b), "%d", op->insn.imm);
	else if (BPF_SRC(op->insn.code) == BPF_K)
		snprintf(o->b, sizeof(o->b), "%u", (uint32_t)op->insn.imm);
	else if (o->bits == 64)
		snprintf(o->b, sizeof(o->b), "$r%u", slot);
	else {
		text_put(text, "cvt.u32.u64 $w1, $r%u;", slot);
		snprintf(o->b, sizeof(o->b), "$w1");
	}
}

static struct operands operands_of(struct text *text, const struct op *op, bool is_64)
{
	struct operands o = { .bits = is_64 ? 64 : 32, .temp = is_64 ? 't' : 'w' };
	unsigned slot = reg_slot(text->program, op, op->insn.dst_reg);

	if (is_64) {
		snprintf(o.a, sizeof(o.a), "$r%u", slot);
		snprintf(o.to, sizeof(o.to), "$r%u", slot);
	} else {
		text_put(text, "cvt.u32.u64 $w0, $r%u;", slot);
		snprintf(o.a, sizeof(o.a), "$w0");
		snprintf(o.to, sizeof(o.to), "$w0");
	}
	put_source(text, op, &o);
	return o;
}

/* Division by 0 gives 0, and the remainder is the dividend. The quotient of the least number and -1 is the
 * least number. PTX defines none of these. */
static void put_division(struct text *text, const struct op *op, const struct operands *o)
{
	bool is_division = BPF_OP(op->insn.code) == BPF_DIV, is_signed = op->insn.off == 1;
	unsigned bits = o->bits;
	char v = o->temp;

	text_put(text, "mov.b%u $%c2, %s;", bits, v, o->b);
	text_put(text, "setp.eq.s%u $p0, $%c2, 0;", bits, v);
	text_put(text, "selp.b%u $%c3, 1, $%c2, $p0;", bits, v, v);
	if (is_signed) {
		text_put(text, "setp.eq.s%u $p1, $%c2, -1;", bits, v);
		text_put(text, "selp.b%u $%c3, 1, $%c3, $p1;", bits, v, v);
	}
	text_put(text, "%s.%c%u $%c4, %s, $%c3;", is_division ? "div" : "rem", is_signed ? 's' : 'u', bits, v,
		 o->a, v);
	if (is_signed && is_division) {
		text_put(text, "neg.s%u $%c5, %s;", bits, v, o->a);
		text_put(text, "selp.b%u $%c4, $%c5, $%c4, $p1;", bits, v, v, v);
	}
	if (is_division)
		text_put(text, "selp.b%u %s, 0, $%c4, $p0;", bits, o->to, v);
	else
		text_put(text, "selp.b%u %s, %s, $%c4, $p0;", bits, o->to, o->a, v);
}

static void put_shift(struct text *text, const struct op *op, const struct operands *o, const char *name)
{
	if (BPF_SRC(op->insn.code) == BPF_K)
		text_put(text, "%s%u %s, %s, %u;", name, o->bits, o->to, o->a,
			 (uint32_t)op->insn.imm & (o->bits - 1));
	else {
		if (o->bits == 64)
			text_put(text, "cvt.u32.u64 $w1, %s;", o->b);
		text_put(text, "and.b32 $w1, $w1, %u;", o->bits - 1);
		text_put(text, "%s%u %s, %s, $w1;", name, o->bits, o->to, o->a);
	}
}

static void put_move(struct text *text, const struct op *op, const struct operands *o)
{
	if (op->insn.off)
		text_put(text, "cvt.s%u.s%d %s, %s;", o->bits, op->insn.off, o->to, o->b);
	else
		text_put(text, "mov.b%u %s, %s;", o->bits, o->to, o->b);
}

static void put_plain(struct text *text, const struct operands *o, const char *name)
{
	text_put(text, "%s%u %s, %s, %s;", name, o->bits, o->to, o->a, o->b);
}

static void put_operation(struct text *text, const struct op *op, const struct operands *o)
{
	switch (BPF_OP(op->insn.code)) {
	case BPF_ADD:
		put_plain(text, o, "add.u");
		break;
	case BPF_SUB:
		put_plain(text, o, "sub.u");
		break;
	case BPF_MUL:
		put_plain(text, o, "mul.lo.u");
		break;
	case BPF_OR:
		put_plain(text, o, "or.b");
		break;
	case BPF_AND:
		put_plain(text, o, "and.b");
		break;
	case BPF_XOR:
		put_plain(text, o, "xor.b");
		break;
	case BPF_LSH:
		put_shift(text, op, o, "shl.b");
		break;
	case BPF_RSH:
		put_shift(text, op, o, "shr.u");
		break;
	case BPF_ARSH:
		put_shift(text, op, o, "shr.s");
		break;
	case BPF_NEG:
		text_put(text, "neg.s%u %s, %s;", o->bits, o->to, o->a);
		break;
	case BPF_MOV:
		put_move(text, op, o);
		break;
	default:
		put_division(text, op, o);
	}
}

/* Byte order: to little-endian only cuts the number off. */
static void put_end(struct text *text, const struct op *op)
{
	unsigned slot = reg_slot(text->program, op, op->insn.dst_reg);
	bool is_swap = BPF_CLASS(op->insn.code) == BPF_ALU64 || BPF_SRC(op->insn.code) == BPF_TO_BE;

	if (op->insn.imm == 64 && is_swap) {
		text_put(text, "mov.b64 {$w0, $w1}, $r%u;", slot);
		text_put(text, "prmt.b32 $w0, $w0, 0, 0x0123;");
		text_put(text, "prmt.b32 $w1, $w1, 0, 0x0123;");
		text_put(text, "mov.b64 $r%u, {$w1, $w0};", slot);
	} else if (op->insn.imm < 64) {
		unsigned order = op->insn.imm == 32 ? (is_swap ? 0x0123 : 0x3210)
						    : (is_swap ? 0x4401 : 0x4410);

		text_put(text, "cvt.u32.u64 $w0, $r%u;", slot);
		text_put(text, "prmt.b32 $w0, $w0, 0, 0x%04x;", order);
		text_put(text, "cvt.u64.u32 $r%u, $w0;", slot);
	}
}

void text_alu(struct text *text, const struct op *op)
{
	bool is_64 = BPF_CLASS(op->insn.code) == BPF_ALU64;
	struct operands o;

	if (BPF_OP(op->insn.code) == BPF_END) {
		put_end(text, op);
		return;
	}
	o = operands_of(text, op, is_64);
	put_operation(text, op, &o);
	if (!is_64)
		text_put(text, "cvt.u64.u32 $r%u, $w0;", reg_slot(text->program, op, op->insn.dst_reg));
}

static const char *comparison(uint8_t what, char *type)
{
	static const struct {
		const char *name;
		char type;
	} names[] = {
		[BPF_JEQ >> 4] = { "eq", 's' },	 [BPF_JNE >> 4] = { "ne", 's' },
		[BPF_JGT >> 4] = { "gt", 'u' },	 [BPF_JGE >> 4] = { "ge", 'u' },
		[BPF_JLT >> 4] = { "lt", 'u' },	 [BPF_JLE >> 4] = { "le", 'u' },
		[BPF_JSGT >> 4] = { "gt", 's' }, [BPF_JSGE >> 4] = { "ge", 's' },
		[BPF_JSLT >> 4] = { "lt", 's' }, [BPF_JSLE >> 4] = { "le", 's' },
	};

	*type = names[what >> 4].type;
	return names[what >> 4].name;
}

/* Sets $p0 if the jump is taken. */
static void put_condition(struct text *text, const struct op *op)
{
	struct operands o = operands_of(text, op, BPF_CLASS(op->insn.code) == BPF_JMP);
	uint8_t what = BPF_OP(op->insn.code);
	const char *name;
	char type;

	if (what == BPF_JSET) {
		text_put(text, "and.b%u $%c2, %s, %s;", o.bits, o.temp, o.a, o.b);
		text_put(text, "setp.ne.s%u $p0, $%c2, 0;", o.bits, o.temp);
		return;
	}
	name = comparison(what, &type);
	/* A 64-bit immediate is signed in the text, also where the comparison is not. */
	text_put(text, "mov.b%u $%c2, %s;", o.bits, o.temp, o.b);
	text_put(text, "setp.%s.%c%u $p0, %s, $%c2;", name, type, o.bits, o.a, o.temp);
}

static bool is_reached(const struct text *text, size_t op)
{
	return text->program->states[op].is_reached;
}

/* A jump back uses one unit of fuel. */
static void put_jump_back(struct text *text, uint32_t target, bool is_conditional)
{
	unsigned label = text->labels++;

	if (is_conditional)
		text_put(text, "@!$p0 bra #s%u;", label);
	text_put(text, "sub.u32 $fuel, $fuel, 1;");
	text_put(text, "setp.eq.u32 $p1, $fuel, 0;");
	text_put(text, "@$p1 bra #no_fuel;");
	text_put(text, "bra #o%u;", target);
	if (is_conditional)
		text_put(text, "#s%u:", label);
}

/* An op that the analysis does not reach has no text. The way to it is never taken, and ends the run. */
void text_jump(struct text *text, const struct op *op)
{
	bool is_conditional = op->kind == OP_INSN && BPF_OP(op->insn.code) != BPF_JA;
	size_t index = (size_t)(op - text->program->ops);

	if (is_conditional)
		put_condition(text, op);
	if (!is_reached(text, op->target))
		text_put(text, "%sbra #fault;", is_conditional ? "@$p0 " : "");
	else if (op->target <= index)
		put_jump_back(text, op->target, is_conditional);
	else
		text_put(text, "%sbra #o%u;", is_conditional ? "@$p0 " : "", op->target);
	if (is_conditional && !is_reached(text, index + 1))
		text_put(text, "bra #fault;");
}

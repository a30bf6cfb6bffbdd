/* Loads, stores and atomic instructions. Values of maps are accessed with relaxed order at the scope of the
 * GPU, because all threads share them. */
#include "base/number.h"
#include "probe/inside.h"

#define GLOBAL "relaxed.gpu.global"

/* Ends the run unless `bytes` bytes at $t0 are within [start, start + room), with `start` in $t1. */
static void put_check(struct text *text, uint64_t room, uint32_t bytes, bool is_whole)
{
	if (room < bytes) {
		text_put(text, "bra #fault;");
		return;
	}
	text_put(text, "sub.u64 $t1, $t0, $t1;");
	text_put(text, "setp.gt.u64 $p0, $t1, %llu;", (unsigned long long)(room - bytes));
	text_put(text, "@$p0 bra #fault;");
	if (!is_whole || bytes == 1)
		return;
	text_put(text, "and.b64 $t1, $t1, %u;", bytes - 1);
	text_put(text, "setp.ne.u64 $p0, $t1, 0;");
	text_put(text, "@$p0 bra #fault;");
}

static void put_access_check(struct text *text, const struct access *access, unsigned slot, int32_t offset,
			     uint32_t bytes, bool is_whole)
{
	const struct frame *frame = &text->program->frames[access->index];
	const struct probe_map *map = &text->probe->code.maps[access->index];

	text_put(text, "add.s64 $t0, $r%u, %d;", slot, offset);
	if (access->kind == REG_STACK) {
		text_put(text, "add.u64 $t1, $stack, %u;",
			 text->program->info.stack_bytes - frame->base - frame->used);
		put_check(text, frame->used, bytes, is_whole);
		return;
	}
	text_put(text, "add.u64 $t1, $area, %llu;", (unsigned long long)map->values);
	put_check(text, map->value_area_bytes, bytes, is_whole);
}

static struct access access_of(struct text *text, const struct op *op, const struct reg *reg, int32_t offset,
			       uint32_t bytes, enum access_how how, bool is_whole)
{
	struct access access;

	/* check_program has accepted it. */
	access_decide(&text->probe->code, text->program, op, reg, offset, bytes, how, is_whole, &access,
		      NULL);
	return access;
}

/* From the start of the stack, in bytes. */
static uint64_t stack_offset(const struct text *text, const struct access *access)
{
	const struct program *program = text->program;

	return (uint64_t)(program->info.stack_bytes - program->frames[access->index].base + access->offset);
}

/* The smallest access that begins in each part of the stack: see put_zeros. */
static void use_cells(const struct source *source, uint32_t at, uint32_t bytes)
{
	for (uint32_t i = 0; source->cells && i < bytes; i++)
		if (!source->cells[at + i] || source->cells[at + i] > bytes)
			source->cells[at + i] = (uint8_t)bytes;
}

struct source text_source(struct text *text, const struct op *op, const struct state *state, unsigned number,
			  int32_t offset, uint32_t bytes, enum access_how how, bool is_whole)
{
	struct reg reg = state_get(text->program, op, state, number);
	struct access access = access_of(text, op, &reg, offset, bytes, how, is_whole);
	struct source source = { .slot = reg_slot(text->program, op, number),
				 .offset = offset,
				 .align = access.align,
				 .space = access.kind == REG_STACK ? "local" : GLOBAL };

	if (access.is_checked)
		put_access_check(text, &access, source.slot, offset, bytes, is_whole);
	else if (access.kind == REG_STACK)
		source.cells = &text->cells[stack_offset(text, &access)];
	if (is_whole)
		use_cells(&source, 0, bytes);
	return source;
}

void text_gather(struct text *text, const struct source *source, uint32_t at, uint32_t bytes, const char *to)
{
	uint32_t align = source->align;

	for (uint32_t done = 0, part; done < bytes; done += part) {
		const char *into = done ? "$t9" : to;

		part = 8;
		while (part > align || part > bytes - done || (at + done) % part)
			part /= 2;
		use_cells(source, at + done, part);
		text_put(text, "ld.%s.u%u %s, [$r%u+%lld];", source->space, part * 8, into, source->slot,
			 (long long)source->offset + at + done);
		if (!done)
			continue;
		text_put(text, "shl.b64 $t9, $t9, %u;", done * 8);
		text_put(text, "or.b64 %s, %s, $t9;", to, to);
	}
}

static void put_linear_warp(struct text *text)
{
	text_put(text, "mov.u32 $w0, %%tid.z;");
	text_put(text, "mov.u32 $w1, %%ntid.y;");
	text_put(text, "mov.u32 $w2, %%tid.y;");
	text_put(text, "mad.lo.u32 $w0, $w0, $w1, $w2;");
	text_put(text, "mov.u32 $w1, %%ntid.x;");
	text_put(text, "mov.u32 $w2, %%tid.x;");
	text_put(text, "mad.lo.u32 $w0, $w0, $w1, $w2;");
	text_put(text, "shr.u32 $w0, $w0, 5;");
}

/* A field of the context, into $t0. */
static void put_field(struct text *text, unsigned index)
{
	const struct probe_field *field = probe_field_at(index);
	const char *operand = text->site->operands[index];

	if (!operand)
		operand = field->operand;
	if (operand && field->bytes == 8) {
		text_put(text, "mov.u64 $t0, %s;", operand);
		return;
	}
	if (operand)
		text_put(text, "mov.u32 $w0, %s;", operand);
	else if (field->offset == offsetof(struct belfry_probe_ctx, lanes))
		text_put(text, "mov.u32 $w0, $lanes;");
	else if (field->offset == offsetof(struct belfry_probe_ctx, warp))
		put_linear_warp(text);
	else if (field->bytes == 8)
		text_put(text, "mov.u32 $w0, 0;");
	else
		text_put(text, "mov.u32 $w0, %u;",
			 field->offset == offsetof(struct belfry_probe_ctx, event) ? text->program->info.event
										   : 0);
	text_put(text, "cvt.u64.u32 $t0, $w0;");
}

static void put_context(struct text *text, const struct op *op, const struct access *access, uint32_t bytes)
{
	unsigned slot = reg_slot(text->program, op, op->insn.dst_reg), index = 0;
	const struct probe_field *field = probe_field_at(0);
	bool is_signed = BPF_MODE(op->insn.code) != BPF_MEM;

	while (access->offset < field->offset || access->offset >= field->offset + field->bytes)
		field = probe_field_at(++index);
	put_field(text, index);
	if (access->offset > field->offset)
		text_put(text, "shr.u64 $t0, $t0, %u;", 8 * (unsigned)(access->offset - field->offset));
	if (bytes == 8)
		text_put(text, "mov.u64 $r%u, $t0;", slot);
	else
		text_put(text, "cvt.%c64.%c%u $r%u, $t0;", is_signed ? 's' : 'u', is_signed ? 's' : 'u',
			 bytes * 8, slot);
}

static void put_load(struct text *text, const struct op *op, const struct state *state)
{
	struct reg reg = state_get(text->program, op, state, op->insn.src_reg);
	uint32_t bytes = insn_bytes(&op->insn);
	bool is_signed = BPF_MODE(op->insn.code) != BPF_MEM;
	struct source source;

	if (reg.kind == REG_CTX) {
		struct access access = access_of(text, op, &reg, op->insn.off, bytes, ACCESS_READ, true);

		put_context(text, op, &access, bytes);
		return;
	}
	source = text_source(text, op, state, op->insn.src_reg, op->insn.off, bytes, ACCESS_READ, true);
	text_put(text, "ld.%s.%c%u $r%u, [$r%u+%d];", source.space, is_signed ? 's' : 'u', bytes * 8,
		 reg_slot(text->program, op, op->insn.dst_reg), source.slot, op->insn.off);
}

static void put_store(struct text *text, const struct op *op, const struct state *state)
{
	uint32_t bytes = insn_bytes(&op->insn);
	struct source to =
		text_source(text, op, state, op->insn.dst_reg, op->insn.off, bytes, ACCESS_WRITE, true);

	if (BPF_CLASS(op->insn.code) == BPF_ST)
		text_put(text, "mov.s64 $t0, %d;", op->insn.imm);
	else
		text_put(text, "mov.u64 $t0, $r%u;", reg_slot(text->program, op, op->insn.src_reg));
	text_put(text, "st.%s.u%u [$r%u+%d], $t0;", to.space, bytes * 8, to.slot, op->insn.off);
}

static const char *atomic_name(int32_t imm)
{
	switch (imm) {
	case BPF_XCHG:
		return "exch.b";
	case BPF_CMPXCHG:
		return "cas.b";
	default:
		break;
	}
	switch (imm & ~BPF_FETCH) {
	case BPF_ADD:
		return "add.u";
	case BPF_OR:
		return "or.b";
	case BPF_AND:
		return "and.b";
	default:
		return "xor.b";
	}
}

/* Operands of an atomic instruction: $t2 or $w2 is the source, $t3 or $w3 what r0 expects. */
static void put_atomic_operands(struct text *text, const struct op *op, uint32_t bits)
{
	unsigned source = reg_slot(text->program, op, op->insn.src_reg);

	if (bits == 64)
		text_put(text, "mov.u64 $t2, $r%u;", source);
	else
		text_put(text, "cvt.u32.u64 $w2, $r%u;", source);
	if (op->insn.imm != BPF_CMPXCHG)
		return;
	if (bits == 64)
		text_put(text, "mov.u64 $t3, $r0;");
	else
		text_put(text, "cvt.u32.u64 $w3, $r0;");
}

static void put_global_atomic(struct text *text, const struct op *op, const struct source *to, uint32_t bits)
{
	char v = bits == 64 ? 't' : 'w';
	const char *name = atomic_name(op->insn.imm);

	if (op->insn.imm == BPF_CMPXCHG)
		text_put(text, "atom.acq_rel.gpu.global.%s%u $%c4, [$r%u+%d], $%c3, $%c2;", name, bits, v,
			 to->slot, op->insn.off, v, v);
	else if (op->insn.imm & BPF_FETCH)
		text_put(text, "atom.acq_rel.gpu.global.%s%u $%c4, [$r%u+%d], $%c2;", name, bits, v, to->slot,
			 op->insn.off, v);
	else
		text_put(text, "red.relaxed.gpu.global.%s%u [$r%u+%d], $%c2;", name, bits, to->slot,
			 op->insn.off, v);
}

/* No other thread sees the stack. */
static void put_local_atomic(struct text *text, const struct op *op, const struct source *to, uint32_t bits)
{
	char v = bits == 64 ? 't' : 'w';

	text_put(text, "ld.local.u%u $%c4, [$r%u+%d];", bits, v, to->slot, op->insn.off);
	if (op->insn.imm == BPF_CMPXCHG) {
		text_put(text, "setp.eq.u%u $p0, $%c4, $%c3;", bits, v, v);
		text_put(text, "selp.b%u $%c5, $%c2, $%c4, $p0;", bits, v, v, v);
	} else if (op->insn.imm == BPF_XCHG)
		text_put(text, "mov.b%u $%c5, $%c2;", bits, v, v);
	else
		text_put(text, "%s%u $%c5, $%c4, $%c2;", atomic_name(op->insn.imm), bits, v, v, v);
	text_put(text, "st.local.u%u [$r%u+%d], $%c5;", bits, to->slot, op->insn.off, v);
}

static void put_atomic(struct text *text, const struct op *op, const struct state *state)
{
	uint32_t bytes = insn_bytes(&op->insn);
	struct source to =
		text_source(text, op, state, op->insn.dst_reg, op->insn.off, bytes, ACCESS_WRITE, true);
	unsigned result = op->insn.imm == BPF_CMPXCHG ? 0 : reg_slot(text->program, op, op->insn.src_reg);

	put_atomic_operands(text, op, bytes * 8);
	if (to.space[0] == 'l')
		put_local_atomic(text, op, &to, bytes * 8);
	else
		put_global_atomic(text, op, &to, bytes * 8);
	if (!(op->insn.imm & BPF_FETCH))
		return;
	if (bytes == 8)
		text_put(text, "mov.u64 $r%u, $t4;", result);
	else
		text_put(text, "cvt.u64.u32 $r%u, $w4;", result);
}

void text_memory(struct text *text, const struct op *op, const struct state *state)
{
	if (BPF_CLASS(op->insn.code) == BPF_LDX)
		put_load(text, op, state);
	else if (BPF_MODE(op->insn.code) == BPF_ATOMIC)
		put_atomic(text, op, state);
	else
		put_store(text, op, state);
}

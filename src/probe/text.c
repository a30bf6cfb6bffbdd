/* The frame of the text: declarations, which threads run the program, and how a run ends. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "probe/inside.h"

#define PREFIX "probe"

void text_put(struct text *text, const char *format, ...)
{
	const char *registers = text->site->registers ? text->site->registers : text->site->prefix;
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	for (const char *c = line; *c; c++)
		if (*c == '$') {
			putc_unlocked('%', text->file);
			fputs(registers, text->file);
			putc_unlocked('_', text->file);
		} else if (*c == '#') {
			fputs(text->site->prefix, text->file);
			putc_unlocked('_', text->file);
		} else {
			putc_unlocked(*c, text->file);
		}
	putc_unlocked('\n', text->file);
}

static void put_registers(struct text *text)
{
	text_put(text, ".reg .b64 $r<%d>;", REGISTERS + 1);
	text_put(text, ".reg .b64 $t<10>;");
	text_put(text, ".reg .b64 $k<%d>;", PROBE_KEY_BYTES_MAX / 8);
	text_put(text, ".reg .b64 $area, $stack, $h, $slot, $sa;");
	text_put(text, ".reg .b32 $w<6>;");
	text_put(text, ".reg .b32 $fuel, $lanes, $tag, $n, $tries, $s;");
	text_put(text, ".reg .pred $p<2>;");
}

static void put_declarations(struct text *text)
{
	if (!text->site->registers)
		put_registers(text);
	if (text->program->info.stack_bytes && !text->site->stack)
		text_put(text, ".local .align 8 .b8 #memory[%u];", text->program->info.stack_bytes);
}

/* The lanes that execute activemask together get the same mask, so exactly one of them goes on. */
static void put_choice(struct text *text)
{
	if (text->program->info.is_per_thread || text->site->is_per_thread) {
		text_put(text, "mov.u32 $lanes, 1;");
		return;
	}
	text_put(text, "activemask.b32 $w0;");
	text_put(text, "popc.b32 $lanes, $w0;");
	text_put(text, "neg.s32 $w1, $w0;");
	text_put(text, "and.b32 $w1, $w1, $w0;");
	text_put(text, "mov.u32 $w2, %%lanemask_eq;");
	text_put(text, "setp.ne.u32 $p0, $w1, $w2;");
	text_put(text, "@$p0 bra #end;");
}

/* The stack begins as zeros. Each part of it is cleared in the sizes in which the program accesses it: ptxas keeps a
 * variable in registers only if all accesses to its parts have one size. */
static void put_zeros(struct text *text)
{
	uint32_t bytes;

	text_put(text, "mov.u64 $t0, 0;");
	for (uint32_t at = 0; at < text->program->info.stack_bytes; at += bytes) {
		bytes = at % 8 ? at & -at : 8;
		for (uint32_t i = at; i < at + bytes; i++)
			if (text->cells[i] && text->cells[i] < bytes)
				bytes = text->cells[i];
		text_put(text, "st.local.u%u [$stack+%u], $t0;", 8 * bytes, at);
	}
}

/* Pointers to the context and to maps are 0: no instruction uses their value as an address. */
static void put_start(struct text *text)
{
	text_put(text, "mov.u64 $area, %s;", text->site->area);
	text_put(text, "mov.u64 $r1, 0;");
	if (text->program->info.has_loops)
		text_put(text, "mov.u32 $fuel, %u;", text->probe->fuel);
	if (!text->program->info.stack_bytes)
		return;
	text_put(text, "mov.u64 $stack, %s;", text->site->stack ? text->site->stack : "#memory");
	put_zeros(text);
}

static bool uses_frame_pointer(const struct op *op)
{
	uint8_t class = BPF_CLASS(op->insn.code);
	bool has_source = class == BPF_LDX || class == BPF_STX ||
			  (class != BPF_LD && class != BPF_ST && BPF_SRC(op->insn.code) == BPF_X);

	return op->insn.dst_reg == BPF_REG_10 || (has_source && op->insn.src_reg == BPF_REG_10);
}

/* Pointers to maps are 0. */
static void put_wide(struct text *text, const struct op *op)
{
	unsigned slot = reg_slot(text->program, op, op->insn.dst_reg);
	unsigned long long value = op->insn.src_reg ? 0 : op->wide;

	if (op->insn.src_reg == BPF_PSEUDO_MAP_IDX_VALUE) {
		value = text->probe->code.maps[(uint32_t)op->wide].values + (op->wide >> 32);
		text_put(text, "add.u64 $r%u, $area, %llu;", slot, value);
		return;
	}
	text_put(text, "mov.u64 $r%u, 0x%llx;", slot, value);
}

static void put_insn(struct text *text, const struct op *op, const struct state *state)
{
	const struct program *program = text->program;

	if (uses_frame_pointer(op) && program->info.stack_bytes)
		text_put(text, "add.u64 $r%d, $stack, %u;", FRAME_POINTER,
			 program->info.stack_bytes - program->frames[op->frame].base);
	else if (uses_frame_pointer(op))
		text_put(text, "mov.u64 $r%d, 0;", FRAME_POINTER);
	switch (BPF_CLASS(op->insn.code)) {
	case BPF_ALU:
	case BPF_ALU64:
		text_alu(text, op);
		break;
	case BPF_LD:
		put_wide(text, op);
		break;
	case BPF_LDX:
	case BPF_ST:
	case BPF_STX:
		text_memory(text, op, state);
		break;
	default:
		if (op->insn.code == (BPF_JMP | BPF_CALL))
			text_call(text, op, state);
		else if (op->insn.code == (BPF_JMP | BPF_EXIT))
			text_put(text, "bra #exit;");
		else
			text_jump(text, op);
	}
}

static void put_ops(struct text *text)
{
	for (size_t i = 0; i < text->program->op_count; i++) {
		const struct op *op = &text->program->ops[i];
		const struct state *state = &text->program->states[i];

		if (!state->is_reached)
			continue;
		if (op->is_target)
			text_put(text, "#o%zu:", i);
		if (op->kind == OP_LEAVE)
			text_jump(text, op);
		else if (op->kind == OP_INSN)
			put_insn(text, op, state);
	}
}

static void put_ends(struct text *text)
{
	text_put(text, "#fault:");
	text_put(text, "red.relaxed.gpu.global.add.u64 [$area+%zu], 1;",
		 offsetof(struct probe_area, out_of_bounds));
	text_put(text, "mov.u64 $r0, 0;");
	text_put(text, "bra #exit;");
	text_put(text, "#no_fuel:");
	text_put(text, "red.relaxed.gpu.global.add.u64 [$area+%zu], 1;",
		 offsetof(struct probe_area, out_of_fuel));
	text_put(text, "mov.u64 $r0, 0;");
	text_put(text, "#exit:");
	if (text->site->result)
		text_put(text, "mov.u64 %s, $r0;", text->site->result);
	text_put(text, "#end:");
}

/* The code of the program is written first: it tells how the stack is used. */
static bool put_body(struct text *text)
{
	FILE *file = text->file;
	cleanup_free char *ops = NULL;
	size_t size;

	text->file = open_memstream(&ops, &size);
	if (text->file) {
		put_ops(text);
		if (ferror(text->file) | fclose(text->file))
			size = 0;
	}
	text->file = file;
	if (!ops || !size)
		return false;
	text_put(text, "{");
	put_declarations(text);
	put_choice(text);
	put_start(text);
	fwrite(ops, 1, size, file);
	put_ends(text);
	text_put(text, "}");
	return true;
}

void probe_write_registers(FILE *file, const char *prefix)
{
	struct probe_site site = { .prefix = prefix };
	struct text text = { .file = file, .site = &site };

	put_registers(&text);
}

static bool is_operand(const char *text)
{
	return !text || (*text && strlen(text) < 64 && !strpbrk(text, "$#;{}\n"));
}

static bool is_prefix(const char *text)
{
	if (!text || !isalpha((unsigned char)*text) || strlen(text) > 32)
		return false;
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && *text != '_')
			return false;
	return true;
}

static int check_site(const struct probe_site *site, struct bf_error *err)
{
	bool is_fine = is_prefix(site->prefix) && (!site->registers || is_prefix(site->registers)) &&
		       site->area && is_operand(site->area) && is_operand(site->result);

	for (unsigned i = 0; i < PROBE_FIELDS_MAX; i++)
		is_fine = is_fine && is_operand(site->operands[i]);
	return is_fine ? 0 : bf_fail(err, EINVAL, "the place of a probe has an invalid prefix or operand");
}

static int finish(FILE *file, bool is_whole, char **text, struct bf_error *err)
{
	bool is_bad = !is_whole || ferror(file);

	if (!fclose(file) && !is_bad)
		return 0;
	free(*text);
	*text = NULL;
	return bf_fail(err, ENOMEM, "not enough memory");
}

static int open_text(const struct probe *probe, size_t program, const struct probe_site *site,
		     struct text *to, char **text, size_t *size, struct bf_error *err)
{
	*text = NULL;
	if (program >= probe->program_count) {
		bf_fail(err, EINVAL, "there is no program %zu", program);
		return -EINVAL;
	}
	if (probe->is_checked_only) {
		bf_fail(err, EINVAL, "its programs were checked only");
		return -EINVAL;
	}
	if (check_site(site, err))
		return -EINVAL;
	*to = (struct text){ .file = open_memstream(text, size),
			     .probe = probe,
			     .program = (struct program *)&probe->programs[program],
			     .site = site };
	if (to->file)
		return 0;
	bf_fail(err, ENOMEM, "not enough memory");
	return -ENOMEM;
}

int probe_write_body(const struct probe *probe, size_t program, const struct probe_site *site, char **text,
		     struct bf_error *err)
{
	struct text to = { 0 };
	size_t size;
	int rc = open_text(probe, program, site, &to, text, &size, err);

	if (rc)
		return rc;
	return finish(to.file, put_body(&to), text, err);
}

static bool is_timer(const struct probe_field *field)
{
	return field->offset == offsetof(struct belfry_probe_ctx, time_ns) ||
	       field->offset == offsetof(struct belfry_probe_ctx, clock);
}

static bool comes_from_context(const struct probe_program *info, const struct probe_field *field,
			       unsigned index, bool is_per_thread)
{
	bool is_lanes = field->offset == offsetof(struct belfry_probe_ctx, lanes);

	return info->fields >> index & 1 && (is_per_thread || (!is_timer(field) && !is_lanes));
}

static void put_entry(struct text *text)
{
	fprintf(text->file,
		".version 7.0\n.target sm_80\n.address_size 64\n\n"
		".visible .entry probe(.param .u64 area, .param .u64 contexts, .param .u64 results,\n"
		"\t.param .u32 count)\n{\n"
		".reg .b64 %%area, %%ctx, %%out, %%result;\n"
		".reg .b32 %%i, %%n, %%m;\n.reg .pred %%p;\n"
		"mov.u32 %%i, %%ctaid.x;\nmov.u32 %%n, %%ntid.x;\nmov.u32 %%m, %%tid.x;\n"
		"mad.lo.u32 %%i, %%i, %%n, %%m;\n"
		"ld.param.u32 %%n, [count];\nsetp.ge.u32 %%p, %%i, %%n;\n@%%p bra done;\n"
		"ld.param.u64 %%area, [area];\nld.param.u64 %%ctx, [contexts];\n"
		"ld.param.u64 %%out, [results];\n"
		"cvta.to.global.u64 %%area, %%area;\ncvta.to.global.u64 %%ctx, %%ctx;\n"
		"cvta.to.global.u64 %%out, %%out;\n"
		"mad.wide.u32 %%ctx, %%i, %zu, %%ctx;\nmad.wide.u32 %%out, %%i, 8, %%out;\n"
		"ld.global.u64 %%result, [%%out];\n",
		sizeof(struct belfry_probe_ctx));
}

int probe_write_module(const struct probe *probe, size_t program, bool is_per_thread, char **text,
		       struct bf_error *err)
{
	struct probe_site site = {
		.prefix = PREFIX, .area = "%area", .result = "%result", .is_per_thread = is_per_thread
	};
	char names[PROBE_FIELDS_MAX][8];
	const struct probe_field *field;
	struct text to = { 0 };
	bool is_whole;
	size_t size;
	int rc = open_text(probe, program, &site, &to, text, &size, err);

	if (rc)
		return rc;
	put_entry(&to);
	for (unsigned i = 0; (field = probe_field_at(i)); i++) {
		if (!comes_from_context(&to.program->info, field, i, is_per_thread))
			continue;
		snprintf(names[i], sizeof(names[i]), "%%f%u", i);
		site.operands[i] = names[i];
		fprintf(to.file, ".reg .b%u %%f%u;\nld.global.u%u %%f%u, [%%ctx+%u];\n", field->bytes * 8, i,
			field->bytes * 8, i, field->offset);
	}
	is_whole = put_body(&to);
	fprintf(to.file, "st.global.u64 [%%out], %%result;\ndone:\nret;\n}\n");
	return finish(to.file, is_whole, text, err);
}

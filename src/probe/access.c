#include <errno.h>
#include <stdarg.h>

#include "base/number.h"
#include "probe/inside.h"

static const struct code_line *line_of(const struct code *code, uint32_t insn)
{
	const struct code_line *found = NULL;

	for (size_t i = 0; i < code->line_count && code->lines[i].insn <= insn; i++)
		found = &code->lines[i];
	return found;
}

int code_refuse(const struct code *code, const struct op *op, struct bf_error *err, const char *format, ...)
{
	const struct code_line *line = err ? line_of(code, op->origin) : NULL;
	char why[256];
	va_list args;

	if (!err) /* many times for one program: see settle() */
		return -EINVAL;
	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	if (line)
		return bf_fail(err, EINVAL, "%.80s:%u: %s", line->file, line->number, why);
	return bf_fail(err, EINVAL, "instruction %u: %s", op->origin, why);
}

uint32_t insn_bytes(const struct bpf_insn *insn)
{
	switch (BPF_SIZE(insn->code)) {
	case BPF_B:
		return 1;
	case BPF_H:
		return 2;
	case BPF_W:
		return 4;
	default:
		return 8;
	}
}

static uint32_t alignment_of(int64_t offset)
{
	uint64_t bits = (uint64_t)offset | 8;

	return (uint32_t)(bits & -bits);
}

static int decide_stack(const struct code *code, struct program *program, const struct op *op, uint32_t bytes,
			struct access *access, struct bf_error *err)
{
	struct frame *frame = &program->frames[access->index];

	if (access->is_checked)
		return 0;
	if (access->offset < -PROBE_STACK_BYTES || access->offset + bytes > 0)
		return code_refuse(code, op, err,
				   "%u bytes at stack offset %lld are outside of the function's %d bytes",
				   bytes, (long long)access->offset, PROBE_STACK_BYTES);
	/* Nothing is stored once the program has been checked: threads can write bodies of it at the same time. */
	if (frame->used < bf_round_up((uint64_t)-access->offset, 8))
		frame->used = (uint32_t)bf_round_up((uint64_t)-access->offset, 8);
	return 0;
}

static int decide_value(const struct code *code, const struct op *op, const struct reg *reg, uint32_t bytes,
			enum access_how how, struct access *access, struct bf_error *err)
{
	const struct probe_map *map = &code->maps[access->index];

	if (how == ACCESS_WRITE && map->is_read_only)
		return code_refuse(code, op, err, "it writes to the constants in %s", map->name);
	if (bytes > map->value_bytes ||
	    (!access->is_checked && (access->offset < 0 || access->offset + bytes > map->value_bytes)))
		return code_refuse(
			code, op, err,
			"%u bytes at offset %lld are outside of a value of map %s, which has %u bytes", bytes,
			(long long)access->offset, map->name, map->value_bytes);
	/* NULL fails the check at run time. */
	access->is_checked |= reg->may_be_null;
	return 0;
}

static int decide_ctx(const struct code *code, const struct op *op, uint32_t bytes, enum access_how how,
		      const struct access *access, struct bf_error *err)
{
	if (how == ACCESS_WRITE)
		return code_refuse(code, op, err, "it writes to the context, which is read-only");
	if (access->offset < 0 || access->offset + bytes > (int64_t)sizeof(struct belfry_probe_ctx))
		return code_refuse(code, op, err, "%u bytes at offset %lld are outside of the context", bytes,
				   (long long)access->offset);
	return 0;
}

static int not_a_pointer(const struct code *code, const struct op *op, const struct reg *reg,
			 struct bf_error *err)
{
	switch (reg->kind) {
	case REG_UNSET:
		return code_refuse(code, op, err, "it uses a register that is not set on every path");
	case REG_MAP:
		return code_refuse(code, op, err, "it accesses a map without a lookup");
	case REG_MIXED:
		return code_refuse(
			code, op, err,
			"an address depends on the path or has an unknown offset; use one pointer for each object");
	default:
		return code_refuse(code, op, err, "it uses a number as an address");
	}
}

int access_decide(const struct code *code, struct program *program, const struct op *op,
		  const struct reg *reg, int32_t offset, uint32_t bytes, enum access_how how, bool is_whole,
		  struct access *access, struct bf_error *err)
{
	int rc;

	*access = (struct access){ .kind = reg->kind,
				   .index = reg->index,
				   .is_checked = !reg->is_known,
				   .offset = reg->number + offset };
	access->align = reg->is_known ? alignment_of(access->offset) : 1;
	if (reg->kind == REG_STACK)
		rc = decide_stack(code, program, op, bytes, access, err);
	else if (reg->kind == REG_VALUE)
		rc = decide_value(code, op, reg, bytes, how, access, err);
	else if (reg->kind == REG_CTX)
		rc = decide_ctx(code, op, bytes, how, access, err);
	else
		return not_a_pointer(code, op, reg, err);
	if (!rc && is_whole && !access->is_checked && access->align < bytes)
		return code_refuse(code, op, err, "%u bytes at offset %lld are not aligned", bytes,
				   (long long)access->offset);
	return rc;
}

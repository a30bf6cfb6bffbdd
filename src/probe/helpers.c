/* Helpers: which ones a probe may call, and with what. */
#include <errno.h>

#include "probe/inside.h"

static const char *helper_name(int32_t helper)
{
#define NAME(name) "bpf_" #name
	static const char *const names[] = { __BPF_FUNC_MAPPER(NAME) };
#undef NAME

	return helper > 0 && helper < (int32_t)(sizeof(names) / sizeof(names[0])) ? names[helper]
										  : "an unknown helper";
}

const struct probe_map *helper_map(const struct code *code, const struct program *program,
				   const struct op *op, const struct state *state)
{
	struct reg reg = state_get(program, op, state, BPF_REG_1);

	return reg.kind == REG_MAP ? &code->maps[reg.index] : NULL;
}

static int check_data(const struct code *code, struct program *program, const struct op *op,
		      const struct state *state, unsigned number, uint32_t bytes, struct bf_error *err)
{
	struct reg reg = state_get(program, op, state, number);
	struct access access;

	if (reg.kind == REG_CTX)
		return code_refuse(code, op, err,
				   "%s cannot read from the context; copy the field to a variable first",
				   helper_name(op->insn.imm));
	return access_decide(code, program, op, &reg, 0, bytes, ACCESS_READ, false, &access, err);
}

static int check_number(const struct code *code, const struct program *program, const struct op *op,
			const struct state *state, unsigned number, struct bf_error *err)
{
	if (state_get(program, op, state, number).kind != REG_NUMBER)
		return code_refuse(code, op, err, "argument %u of %s is not a number", number,
				   helper_name(op->insn.imm));
	return 0;
}

static int check_map_call(const struct code *code, struct program *program, const struct op *op,
			  struct state *state, struct bf_error *err)
{
	const struct probe_map *map = helper_map(code, program, op, state);
	int rc;

	if (!map)
		return code_refuse(code, op, err, "the first argument of %s is not a map",
				   helper_name(op->insn.imm));
	if (map->kind == PROBE_MAP_RING || map->kind == PROBE_MAP_DATA)
		return code_refuse(code, op, err, "%s is not possible on %s", helper_name(op->insn.imm),
				   map->name);
	rc = check_data(code, program, op, state, BPF_REG_2, map->key_bytes, err);
	if (rc || op->insn.imm != BPF_FUNC_map_update_elem)
		return rc;
	rc = check_data(code, program, op, state, BPF_REG_3, map->value_bytes, err);
	return rc ? rc : check_number(code, program, op, state, BPF_REG_4, err);
}

static int check_ring_call(const struct code *code, struct program *program, const struct op *op,
			   struct state *state, struct bf_error *err)
{
	const struct probe_map *map = helper_map(code, program, op, state);
	struct reg size = state_get(program, op, state, BPF_REG_3);

	if (!map || map->kind != PROBE_MAP_RING)
		return code_refuse(code, op, err,
				   "the first argument of bpf_ringbuf_output is not a ring buffer");
	if (size.kind != REG_NUMBER || !size.is_known)
		return code_refuse(code, op, err, "the size of a record must be a constant");
	if (size.number <= 0 || size.number > PROBE_RECORD_BYTES_MAX || size.number + 8 > map->max_entries)
		return code_refuse(code, op, err,
				   "a record has %lld bytes; the limit is %d, and the size of the ring",
				   (long long)size.number, PROBE_RECORD_BYTES_MAX);
	if (check_data(code, program, op, state, BPF_REG_2, (uint32_t)size.number, err))
		return -EINVAL;
	return check_number(code, program, op, state, BPF_REG_4, err);
}

static void clobber(const struct program *program, const struct op *op, struct state *state)
{
	for (unsigned i = BPF_REG_1; i <= BPF_REG_5; i++)
		state_set(program, op, state, i, (struct reg){ .kind = REG_UNSET });
}

static int take_lookup(const struct code *code, struct program *program, const struct op *op,
		       struct state *state, struct bf_error *err)
{
	uint32_t id = (uint32_t)(op - program->ops) + 1;
	const struct probe_map *map = helper_map(code, program, op, state);
	int rc = check_map_call(code, program, op, state, err);

	if (rc)
		return rc;
	state_forget_id(state, id);
	clobber(program, op, state);
	state_set(program, op, state, BPF_REG_0,
		  (struct reg){ .kind = REG_VALUE,
				.index = (uint8_t)(map - code->maps),
				.is_known = true,
				.may_be_null = true,
				.id = id });
	return 0;
}

int helper_check(const struct code *code, struct program *program, const struct op *op, struct state *state,
		 struct bf_error *err)
{
	int rc = 0;

	if (op->insn.src_reg)
		return code_refuse(code, op, err, "it calls a function of the kernel");
	switch (op->insn.imm) {
	case BPF_FUNC_map_lookup_elem:
		return take_lookup(code, program, op, state, err);
	case BPF_FUNC_map_update_elem:
	case BPF_FUNC_map_delete_elem:
		rc = check_map_call(code, program, op, state, err);
		break;
	case BPF_FUNC_ringbuf_output:
		rc = check_ring_call(code, program, op, state, err);
		break;
	case BPF_FUNC_ktime_get_ns:
	case BPF_FUNC_jiffies64:
	case BPF_FUNC_get_smp_processor_id:
		break;
	default:
		return code_refuse(code, op, err,
				   "it calls %s, which probes may not call; docs/probes.md lists the helpers",
				   helper_name(op->insn.imm));
	}
	if (rc)
		return rc;
	clobber(program, op, state);
	state_set(program, op, state, BPF_REG_0, (struct reg){ .kind = REG_NUMBER });
	return 0;
}

/* Short programs as arrays of instructions, and the maps that they refer to, for the tests of probes. */
#ifndef BELFRY_TESTS_PROBE_CODE_H
#define BELFRY_TESTS_PROBE_CODE_H

#include "policy_rig.h"
#include "probe/probe.h"

static const struct probe_map maps[] = {
	{ .name = "array", .kind = PROBE_MAP_ARRAY, .key_bytes = 4, .value_bytes = 16, .max_entries = 2 },
	{ .name = "ring", .kind = PROBE_MAP_RING, .max_entries = 4096 },
	{ .name = ".rodata",
	  .kind = PROBE_MAP_DATA,
	  .key_bytes = 4,
	  .value_bytes = 16,
	  .max_entries = 1,
	  .is_read_only = true },
	{ .name = "after", .kind = PROBE_MAP_ARRAY, .key_bytes = 4, .value_bytes = 8, .max_entries = 1 },
};

#define INSN(c, d, s, o, i) \
	{ \
		.code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) \
	}
#define MOV(d, i) INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define COPY(d, s) INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define ADD(d, i) INSN(BPF_ALU64 | BPF_ADD, d, 0, 0, i)
#define SUM(d, s) INSN(BPF_ALU64 | BPF_ADD | BPF_X, d, s, 0, 0)
#define LOAD(size, d, s, o) INSN(BPF_LDX | BPF_MEM | (size), d, s, o, 0)
#define STORE(size, d, o, s) INSN(BPF_STX | BPF_MEM | (size), d, s, o, 0)
#define MAP(d, i) INSN(BPF_LD | BPF_IMM | BPF_DW, d, BPF_PSEUDO_MAP_IDX, 0, i), INSN(0, 0, 0, 0, 0)
#define DATA(d, i, o) INSN(BPF_LD | BPF_IMM | BPF_DW, d, BPF_PSEUDO_MAP_IDX_VALUE, 0, i), INSN(0, 0, 0, 0, o)
#define CALL(helper) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##helper)
#define JUMP(o) INSN(BPF_JMP | BPF_JA, 0, 0, o, 0)
#define EXIT INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
/* r0 = the value of array entry `key`, or NULL. */
#define LOOKUP(map, key) \
	INSN(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, key), COPY(2, 10), ADD(2, -4), MAP(1, map), \
		CALL(map_lookup_elem)

#define PROGRAM(...) ((const struct bpf_insn[]){ __VA_ARGS__ })
#define PROGRAM_SIZE(...) (sizeof((const struct bpf_insn[]){ __VA_ARGS__ }) / sizeof(struct bpf_insn))

static inline int make(const struct bpf_insn *insns, size_t count, const struct probe_options *options,
		       struct probe **probe, struct bf_error *err)
{
	struct probe_code code = {
		.insns = insns, .insn_count = count, .maps = maps, .map_count = COUNT(maps)
	};

	return probe_make(&code, options, probe, err);
}

#endif

#include "probe_interpreter.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

struct machine {
	const struct bpf_insn *insns;
	struct interpreted_map *maps;
	uint64_t r[11];
};

void interpreted_map_init(struct interpreted_map *to, const struct probe_map *map)
{
	memset(to, 0, sizeof(*to));
	to->map = map;
	assert_true(map->max_entries <= INTERPRETED_ENTRIES && map->value_bytes <= sizeof(to->values[0]));
	if (map->kind == PROBE_MAP_HASH)
		return;
	to->count = map->max_entries;
	for (uint32_t i = 0; i < to->count; i++)
		memcpy(to->keys[i], &i, sizeof(i));
}

void *interpreted_value(struct interpreted_map *map, const void *key)
{
	for (uint32_t i = 0; i < map->count; i++)
		if (!memcmp(map->keys[i], key, map->map->key_bytes))
			return map->values[i];
	return NULL;
}

static int64_t update(struct interpreted_map *map, const void *key, const void *value, uint64_t flags)
{
	void *found = interpreted_value(map, key);

	if (flags > BPF_EXIST)
		return -EINVAL;
	if (map->map->kind != PROBE_MAP_HASH && !found)
		return -E2BIG;
	if (found && flags == BPF_NOEXIST)
		return -EEXIST;
	if (!found && flags == BPF_EXIST)
		return -ENOENT;
	if (!found) {
		assert_true(map->count < INTERPRETED_ENTRIES);
		memcpy(map->keys[map->count], key, map->map->key_bytes);
		found = map->values[map->count++];
	}
	memcpy(found, value, map->map->value_bytes);
	return 0;
}

static int64_t erase(struct interpreted_map *map, const void *key)
{
	uint64_t *found = interpreted_value(map, key);
	uint32_t at, last = map->count - 1;

	if (map->map->kind != PROBE_MAP_HASH)
		return -EINVAL;
	if (!found)
		return -ENOENT;
	at = (uint32_t)((found - map->values[0]) / 8);
	memmove(map->keys[at], map->keys[last], sizeof(map->keys[0]));
	memmove(map->values[at], map->values[last], sizeof(map->values[0]));
	map->count = last;
	return 0;
}

static void call_helper(struct machine *m, int32_t helper)
{
	struct interpreted_map *map = (void *)(uintptr_t)m->r[1];
	const void *key = (void *)(uintptr_t)m->r[2];

	if (helper == BPF_FUNC_map_lookup_elem)
		m->r[0] = (uintptr_t)interpreted_value(map, key);
	else if (helper == BPF_FUNC_map_update_elem)
		m->r[0] = (uint64_t)update(map, key, (void *)(uintptr_t)m->r[3], m->r[4]);
	else if (helper == BPF_FUNC_map_delete_elem)
		m->r[0] = (uint64_t)erase(map, key);
	else
		fail_msg("the interpreter has no helper %d", helper);
}

static uint64_t swap(uint64_t value, int bits)
{
	uint64_t to = 0;

	for (int at = 0; at < bits; at += 8)
		to |= (value >> at & 0xff) << (bits - 8 - at);
	return to;
}

static int64_t extend(uint64_t value, unsigned bits)
{
	uint64_t sign = 1ull << (bits - 1), kept = bits == 64 ? value : value & ((1ull << bits) - 1);

	return (int64_t)((kept ^ sign) - sign);
}

static uint64_t divide(uint64_t a, uint64_t b, unsigned bits, bool is_signed, bool is_mod)
{
	int64_t x = extend(a, bits), y = extend(b, bits);

	if (!b)
		return is_mod ? a : 0;
	if (!is_signed)
		return is_mod ? a % b : a / b;
	if (y == -1)
		return is_mod ? 0 : 0 - (uint64_t)x;
	return (uint64_t)(is_mod ? x % y : x / y);
}

static uint64_t compute(const struct bpf_insn *insn, uint64_t a, uint64_t b, unsigned bits)
{
	unsigned shift = (unsigned)(b & (bits - 1));

	switch (BPF_OP(insn->code)) {
	case BPF_ADD:
		return a + b;
	case BPF_SUB:
		return a - b;
	case BPF_MUL:
		return a * b;
	case BPF_DIV:
	case BPF_MOD:
		return divide(a, b, bits, insn->off == 1, BPF_OP(insn->code) == BPF_MOD);
	case BPF_OR:
		return a | b;
	case BPF_AND:
		return a & b;
	case BPF_XOR:
		return a ^ b;
	case BPF_LSH:
		return a << shift;
	case BPF_RSH:
		return a >> shift;
	case BPF_ARSH:
		return (uint64_t)(extend(a, bits) >> shift);
	case BPF_NEG:
		return 0 - a;
	case BPF_MOV:
		return insn->off ? (uint64_t)extend(b, (unsigned)insn->off) : b;
	default:
		fail_msg("the interpreter has no instruction %#x", insn->code);
		return 0;
	}
}

static void alu(struct machine *m, const struct bpf_insn *insn)
{
	bool is_64 = BPF_CLASS(insn->code) == BPF_ALU64;
	uint64_t a = m->r[insn->dst_reg];
	uint64_t b = BPF_SRC(insn->code) == BPF_X ? m->r[insn->src_reg] : (uint64_t)(int64_t)insn->imm;

	if (BPF_OP(insn->code) == BPF_END) {
		if (is_64 || BPF_SRC(insn->code) == BPF_TO_BE)
			m->r[insn->dst_reg] = swap(a, insn->imm);
		else
			m->r[insn->dst_reg] = insn->imm == 64 ? a : a & ((1ull << insn->imm) - 1);
		return;
	}
	if (is_64)
		m->r[insn->dst_reg] = compute(insn, a, b, 64);
	else
		m->r[insn->dst_reg] = (uint32_t)compute(insn, (uint32_t)a, (uint32_t)b, 32);
}

static unsigned size_of(const struct bpf_insn *insn)
{
	static const unsigned sizes[] = { 4, 2, 1, 8 };

	return sizes[BPF_SIZE(insn->code) >> 3];
}

static uint64_t load(const void *from, unsigned bytes)
{
	uint64_t value = 0;

	memcpy(&value, from, bytes);
	return value;
}

static void atomic(struct machine *m, const struct bpf_insn *insn, void *at, unsigned bytes)
{
	uint64_t old = load(at, bytes), source = m->r[insn->src_reg], new = source;
	uint64_t expected = bytes == 4 ? (uint32_t)m->r[0] : m->r[0];

	if (insn->imm == BPF_CMPXCHG)
		new = old == expected ? source : old;
	else if ((insn->imm & 0xf0) == BPF_ADD)
		new = old + source;
	else if ((insn->imm & 0xf0) == BPF_OR)
		new = old | source;
	else if ((insn->imm & 0xf0) == BPF_AND)
		new = old &source;
	else if ((insn->imm & 0xf0) == BPF_XOR)
		new = old ^ source;
	memcpy(at, &new, bytes);
	if (insn->imm == BPF_CMPXCHG)
		m->r[0] = old;
	else if (insn->imm & BPF_FETCH)
		m->r[insn->src_reg] = old;
}

static void memory(struct machine *m, const struct bpf_insn *insn)
{
	bool is_load = BPF_CLASS(insn->code) == BPF_LDX;
	uint64_t base = m->r[is_load ? insn->src_reg : insn->dst_reg];
	void *at = (void *)(uintptr_t)(base + (uint64_t)(int64_t)insn->off);
	uint64_t value = BPF_CLASS(insn->code) == BPF_ST ? (uint64_t)(int64_t)insn->imm : m->r[insn->src_reg];
	unsigned bytes = size_of(insn);

	if (is_load && BPF_MODE(insn->code) == BPF_MEM)
		m->r[insn->dst_reg] = load(at, bytes);
	else if (is_load)
		m->r[insn->dst_reg] = (uint64_t)extend(load(at, bytes), bytes * 8);
	else if (BPF_MODE(insn->code) == BPF_MEM)
		memcpy(at, &value, bytes);
	else
		atomic(m, insn, at, bytes);
}

static bool is_taken(const struct machine *m, const struct bpf_insn *insn)
{
	bool is_64 = BPF_CLASS(insn->code) == BPF_JMP;
	uint64_t a = m->r[insn->dst_reg];
	uint64_t b = BPF_SRC(insn->code) == BPF_X ? m->r[insn->src_reg] : (uint64_t)(int64_t)insn->imm;
	int64_t x = extend(a, is_64 ? 64 : 32), y = extend(b, is_64 ? 64 : 32);

	if (!is_64) {
		a = (uint32_t)a;
		b = (uint32_t)b;
	}
	switch (BPF_OP(insn->code)) {
	case BPF_JA:
		return true;
	case BPF_JEQ:
		return a == b;
	case BPF_JNE:
		return a != b;
	case BPF_JGT:
		return a > b;
	case BPF_JGE:
		return a >= b;
	case BPF_JLT:
		return a < b;
	case BPF_JLE:
		return a <= b;
	case BPF_JSET:
		return a & b;
	case BPF_JSGT:
		return x > y;
	case BPF_JSGE:
		return x >= y;
	case BPF_JSLT:
		return x < y;
	default:
		return x <= y;
	}
}

static void run(struct machine *m, size_t pc);

static void call_function(struct machine *m, size_t pc)
{
	uint64_t saved[5];

	memcpy(saved, m->r + 6, sizeof(saved));
	run(m, pc);
	memcpy(m->r + 6, saved, sizeof(saved));
}

static size_t step(struct machine *m, size_t pc)
{
	const struct bpf_insn *insn = &m->insns[pc];

	switch (BPF_CLASS(insn->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		alu(m, insn);
		return pc + 1;
	case BPF_LD:
		if (insn->src_reg)
			m->r[insn->dst_reg] = (uintptr_t)&m->maps[insn->imm];
		else
			m->r[insn->dst_reg] = (uint32_t)insn->imm | (uint64_t)(uint32_t)insn[1].imm << 32;
		return pc + 2;
	case BPF_LDX:
	case BPF_ST:
	case BPF_STX:
		memory(m, insn);
		return pc + 1;
	default:
		break;
	}
	if (insn->code == (BPF_JMP | BPF_CALL) && insn->src_reg)
		call_function(m, (size_t)((int64_t)pc + 1 + insn->imm));
	else if (insn->code == (BPF_JMP | BPF_CALL))
		call_helper(m, insn->imm);
	else if (insn->code == (BPF_JMP32 | BPF_JA))
		return (size_t)((int64_t)pc + 1 + insn->imm);
	else if (is_taken(m, insn))
		return (size_t)((int64_t)pc + 1 + insn->off);
	return pc + 1;
}

static void run(struct machine *m, size_t pc)
{
	uint64_t stack[64] = { 0 };

	m->r[10] = (uintptr_t)(stack + 64);
	while (m->insns[pc].code != (BPF_JMP | BPF_EXIT))
		pc = step(m, pc);
}

uint64_t interpret(const struct bpf_insn *insns, const struct belfry_probe_ctx *ctx,
		   struct interpreted_map *maps)
{
	struct machine machine = { .insns = insns, .maps = maps, .r = { [1] = (uintptr_t)ctx } };

	run(&machine, 0);
	return machine.r[0];
}

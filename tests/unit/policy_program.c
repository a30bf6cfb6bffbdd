#include "policy_program.h"

#include <stdbool.h>

#include "sched_sim.h"

/* Registers 7 to 9 hold numbers throughout, and 6 the context. */
enum { CTX = 6, FIRST = 7, LAST = 9 };

struct maker {
	struct bpf_insn *to;
	size_t count;
	uint64_t *seed;
};

static uint64_t any(struct maker *maker, uint64_t most)
{
	return sim_between(maker->seed, 0, most);
}

static uint8_t any_register(struct maker *maker)
{
	return (uint8_t)(FIRST + any(maker, LAST - FIRST));
}

/* Small ones, powers of two and their neighbours, and all the rest. */
static int32_t any_number(struct maker *maker)
{
	switch (any(maker, 3)) {
	case 0:
		return (int32_t)any(maker, 16);
	case 1:
		return (int32_t)((1u << any(maker, 31)) + (uint32_t)any(maker, 2) - 1);
	case 2:
		return (int32_t)any(maker, 100000000);
	default:
		return (int32_t)(uint32_t)sim_random(maker->seed);
	}
}

static void emit(struct maker *maker, uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
	maker->to[maker->count++] = (struct bpf_insn){
		.code = code, .dst_reg = dst & 15, .src_reg = src & 15, .off = off, .imm = imm
	};
}

static void set(struct maker *maker, uint8_t dst, int32_t imm)
{
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm);
}

static void calculate(struct maker *maker)
{
	static const uint8_t ops[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR,   BPF_AND,
				       BPF_LSH, BPF_RSH, BPF_MOD, BPF_XOR, BPF_ARSH, BPF_MOV };
	uint8_t op = ops[any(maker, sizeof(ops) - 1)];
	uint8_t class = any(maker, 2) ? BPF_ALU64 : BPF_ALU;
	bool is_shift = op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH;
	int32_t number = any_number(maker);

	if (!is_shift && any(maker, 1)) {
		emit(maker, class | op | BPF_X, any_register(maker), any_register(maker), 0, 0);
		return;
	}
	if (is_shift)
		number &= class == BPF_ALU64 ? 63 : 31;
	if ((op == BPF_DIV || op == BPF_MOD) && !number)
		number = 3;
	emit(maker, class | op | BPF_K, any_register(maker), 0, 0, number);
}

/* A number that the context has, at any place of it. */
static void look_at_context(struct maker *maker, size_t size)
{
	emit(maker, BPF_LDX | BPF_MEM | BPF_W, any_register(maker), CTX,
	     (int16_t)(4 * any(maker, size / 4 - 1)), 0);
}

/* Two numbers of an entry of the table, or, if there is none, those that were there. */
static void look_at_table(struct maker *maker, int table_fd)
{
	const int16_t words = sizeof(struct belfry_vgpu) / 8;
	uint8_t key = any_register(maker);

	if (any(maker, 1))
		emit(maker, BPF_LDX | BPF_MEM | BPF_W, key, CTX, offsetof(struct belfry_head, vgpu), 0);
	else if (any(maker, 1))
		set(maker, key, (int32_t)any(maker, 7));
	emit(maker, BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, key, -4, 0);
	emit(maker, BPF_LD | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, table_fd);
	emit(maker, 0, 0, 0, 0, 0);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0);
	emit(maker, BPF_ALU64 | BPF_ADD, BPF_REG_2, 0, 0, -4);
	emit(maker, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem);
	emit(maker, BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 2, 0);
	emit(maker, BPF_LDX | BPF_MEM | BPF_DW, any_register(maker), BPF_REG_0,
	     (int16_t)(8 * any(maker, (uint64_t)words - 1)), 0);
	emit(maker, BPF_LDX | BPF_MEM | BPF_W, any_register(maker), BPF_REG_0,
	     (int16_t)(4 * any(maker, 2 * (uint64_t)words - 1)), 0);
}

/* Over the next calculation. */
static void skip_one(struct maker *maker)
{
	static const uint8_t ops[] = { BPF_JEQ, BPF_JNE,  BPF_JGT,  BPF_JGE,
				       BPF_JLT, BPF_JSGT, BPF_JSLE, BPF_JSET };

	emit(maker, BPF_JMP | ops[any(maker, sizeof(ops) - 1)] | BPF_X, any_register(maker),
	     any_register(maker), 1, 0);
	calculate(maker);
}

/* Into what it may propose, and now and then over what it was told. */
static void propose(struct maker *maker, size_t size)
{
	size_t from = any(maker, 7) ? sizeof(struct belfry_head) : 0;

	for (size_t at = from; at < size; at += 4) {
		uint64_t how = any(maker, 5);

		if (how < 2) {
			if (any(maker, 1)) /* an entry that there may be */
				emit(maker, BPF_ALU64 | BPF_AND | BPF_K, any_register(maker), 0, 0, 7);
			emit(maker, BPF_STX | BPF_MEM | BPF_W, CTX, any_register(maker), (int16_t)at, 0);
		} else if (how == 2) {
			emit(maker, BPF_ST | BPF_MEM | BPF_W, CTX, 0, (int16_t)at, any_number(maker));
		} else if (how == 3) {
			emit(maker, BPF_ST | BPF_MEM | BPF_W, CTX, 0, (int16_t)at, (int32_t)any(maker, 7));
		}
	}
}

/* What it proposes, mostly; as the built-in would, at times; in a few, what is no answer, if something is rare enough. */
static void answer(struct maker *maker)
{
	set(maker, BPF_REG_0, any(maker, 3) ? BELFRY_PROPOSE : BELFRY_DEFAULT);
	if (!any(maker, 3)) {
		emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_0, any_register(maker), 0, 0);
		emit(maker, BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_0, 0, 0, 1);
	}
	if (!any(maker, 9)) {
		emit(maker, BPF_JMP | BPF_JNE | BPF_K, any_register(maker), 0, 1, any_number(maker));
		set(maker, BPF_REG_0, any_number(maker));
	}
	emit(maker, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static size_t context_size(enum belfry_hook hook)
{
	switch (hook) {
	case BELFRY_HOOK_PICK:
		return sizeof(struct belfry_pick);
	case BELFRY_HOOK_TICK:
		return sizeof(struct belfry_tick);
	case BELFRY_HOOK_PREEMPT:
		return sizeof(struct belfry_preempt);
	case BELFRY_HOOK_ENQUEUE:
		return sizeof(struct belfry_enqueue);
	default:
		return sizeof(struct belfry_head);
	}
}

size_t program_make(enum belfry_hook hook, int table_fd, uint64_t *seed, struct bpf_insn *to)
{
	struct maker maker = { to, 0, seed };
	size_t size = context_size(hook);

	emit(&maker, BPF_ALU64 | BPF_MOV | BPF_X, CTX, BPF_REG_1, 0, 0);
	for (int i = FIRST; i <= LAST; i++)
		set(&maker, (uint8_t)i, any_number(&maker));
	for (uint64_t steps = sim_between(seed, 4, 24); steps > 0; steps--)
		switch (any(&maker, 5)) {
		case 0:
			look_at_context(&maker, size);
			break;
		case 1:
			look_at_table(&maker, table_fd);
			break;
		case 2:
			skip_one(&maker);
			break;
		default:
			calculate(&maker);
		}
	propose(&maker, size);
	answer(&maker);
	return maker.count;
}

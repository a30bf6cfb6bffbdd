#include "probe_maker.h"

#include "ptx_run.h"

/* Registers 7 to 9 hold numbers throughout, and 6 the context. In functions, 6 to 9 are numbers. */
enum { CTX = 6, FIRST = 7, LAST = 9, STACK_WORDS = 6, SPILL = -64 };
enum { MEM_SIGNED = 0x80 };

const struct probe_map made_maps[MADE_MAPS] = {
	[MADE_ARRAY] = { .name = "array",
			 .kind = PROBE_MAP_ARRAY,
			 .key_bytes = 4,
			 .value_bytes = 32,
			 .max_entries = 4 },
	[MADE_HASH] = { .name = "hash",
			.kind = PROBE_MAP_HASH,
			.key_bytes = 12,
			.value_bytes = 20,
			.max_entries = 64 },
};

struct maker {
	const struct made_options *options;
	struct bpf_insn *to;
	size_t count;
	uint64_t *seed;
	unsigned loops;
	size_t calls[8]; /* instructions that call the function */
	unsigned call_count;
};

static uint32_t any(struct maker *maker, uint32_t below)
{
	return (uint32_t)(rig_random(maker->seed) >> 33) % below;
}

static uint8_t any_register(struct maker *maker)
{
	return (uint8_t)(FIRST + any(maker, LAST - FIRST + 1));
}

/* Small numbers, powers of two and their neighbours, and all others. */
static int32_t any_number(struct maker *maker)
{
	switch (any(maker, 3)) {
	case 0:
		return (int32_t)any(maker, 16) - 4;
	case 1:
		return (int32_t)((1u << any(maker, 32)) + any(maker, 3) - 1);
	default:
		return (int32_t)(uint32_t)rig_random(maker->seed);
	}
}

static void emit(struct maker *maker, int code, uint8_t dst, uint8_t src, int off, int32_t imm)
{
	maker->to[maker->count++] = (struct bpf_insn){ .code = (uint8_t)code,
						       .dst_reg = dst & 15,
						       .src_reg = src & 15,
						       .off = (int16_t)off,
						       .imm = imm };
}

static void draw_division(struct maker *maker, int class, int op, int is_x, int32_t number)
{
	int is_signed = maker->options->is_new && any(maker, 2);

	if (!number)
		number = 7;
	emit(maker, class | op | is_x, any_register(maker), is_x ? any_register(maker) : 0, is_signed,
	     is_x ? 0 : number);
}

static void draw_end(struct maker *maker)
{
	static const int32_t sizes[] = { 16, 32, 64 };
	int class = maker->options->is_new && any(maker, 2) ? BPF_ALU64 : BPF_ALU;
	int order = class == BPF_ALU && any(maker, 2) ? BPF_TO_BE : BPF_TO_LE;

	emit(maker, class | BPF_END | order, any_register(maker), 0, 0, sizes[any(maker, 3)]);
}

static void draw_extension(struct maker *maker)
{
	static const int sizes[] = { 8, 16, 32 };
	bool is_64 = any(maker, 2);

	emit(maker, (is_64 ? BPF_ALU64 : BPF_ALU) | BPF_MOV | BPF_X, any_register(maker), any_register(maker),
	     sizes[any(maker, is_64 ? 3 : 2)], 0);
}

static void draw_alu(struct maker *maker)
{
	static const uint8_t ops[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR,   BPF_AND, BPF_LSH,
				       BPF_RSH, BPF_NEG, BPF_MOD, BPF_XOR, BPF_ARSH, BPF_MOV };
	uint8_t op = ops[any(maker, sizeof(ops))];
	int class = any(maker, 2) ? BPF_ALU64 : BPF_ALU, is_x = any(maker, 2) ? BPF_X : BPF_K;
	int32_t number = any_number(maker);

	if (op == BPF_NEG)
		emit(maker, class | op, any_register(maker), 0, 0, 0);
	else if (op == BPF_DIV || op == BPF_MOD)
		draw_division(maker, class, op, is_x, number);
	else if (op == BPF_MOV && is_x == BPF_X && maker->options->is_new)
		draw_extension(maker);
	else if (is_x == BPF_X)
		emit(maker, class | op | BPF_X, any_register(maker), any_register(maker), 0, 0);
	else if (op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH)
		emit(maker, class | op | BPF_K, any_register(maker), 0, 0,
		     number & (class == BPF_ALU64 ? 63 : 31));
	else
		emit(maker, class | op | BPF_K, any_register(maker), 0, 0, number);
}

static void draw_wide(struct maker *maker)
{
	emit(maker, BPF_LD | BPF_IMM | BPF_DW, any_register(maker), 0, 0, any_number(maker));
	emit(maker, 0, 0, 0, 0, any_number(maker));
}

static int draw_size(struct maker *maker, int *bytes)
{
	static const int sizes[] = { BPF_B, BPF_H, BPF_W, BPF_DW };
	uint32_t drawn = any(maker, 4);

	*bytes = 1 << drawn;
	return sizes[drawn];
}

static int load_mode(struct maker *maker, int bytes)
{
	return bytes < 8 && maker->options->is_new && any(maker, 2) ? MEM_SIGNED : BPF_MEM;
}

static void draw_context(struct maker *maker)
{
	const struct probe_field *field = NULL;
	int bytes, size;

	while (!field)
		field = probe_field_at(any(maker, PROBE_FIELDS_MAX));
	do
		size = draw_size(maker, &bytes);
	while (bytes > (int)field->bytes);
	emit(maker, BPF_LDX | load_mode(maker, bytes) | size, any_register(maker), CTX,
	     (int)field->offset + bytes * (int)any(maker, field->bytes / (uint32_t)bytes), 0);
}

static int draw_slot(struct maker *maker, int bytes)
{
	return -8 * STACK_WORDS + bytes * (int)any(maker, 8 * STACK_WORDS / (uint32_t)bytes);
}

static void draw_stack(struct maker *maker)
{
	int bytes, size = draw_size(maker, &bytes), slot = draw_slot(maker, bytes);

	switch (any(maker, 3)) {
	case 0:
		emit(maker, BPF_STX | BPF_MEM | size, BPF_REG_10, any_register(maker), slot, 0);
		break;
	case 1:
		emit(maker, BPF_ST | BPF_MEM | size, BPF_REG_10, 0, slot, any_number(maker));
		break;
	default:
		emit(maker, BPF_LDX | load_mode(maker, bytes) | size, any_register(maker), BPF_REG_10, slot,
		     0);
	}
}

static void draw_atomic(struct maker *maker, uint8_t base, int offset, int bytes)
{
	static const int32_t ops[] = { BPF_ADD,
				       BPF_OR,
				       BPF_AND,
				       BPF_XOR,
				       BPF_ADD | BPF_FETCH,
				       BPF_OR | BPF_FETCH,
				       BPF_AND | BPF_FETCH,
				       BPF_XOR | BPF_FETCH,
				       BPF_XCHG,
				       BPF_CMPXCHG };
	int32_t op = ops[any(maker, sizeof(ops) / sizeof(ops[0]))];

	if (op == BPF_CMPXCHG && any(maker, 2)) /* what is there, so that it succeeds */
		emit(maker, BPF_LDX | BPF_MEM | (bytes == 8 ? BPF_DW : BPF_W), BPF_REG_0, base, offset, 0);
	else if (op == BPF_CMPXCHG)
		emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_0, any_register(maker), 0, 0);
	emit(maker, BPF_STX | BPF_ATOMIC | (bytes == 8 ? BPF_DW : BPF_W), base, any_register(maker), offset,
	     op);
	if (op == BPF_CMPXCHG)
		emit(maker, BPF_ALU64 | BPF_ADD | BPF_X, any_register(maker), BPF_REG_0, 0, 0);
}

static void draw_stack_atomic(struct maker *maker)
{
	int bytes = any(maker, 2) ? 8 : 4;

	draw_atomic(maker, BPF_REG_10, draw_slot(maker, bytes), bytes);
}

static void draw_simple(struct maker *maker)
{
	switch (any(maker, 8)) {
	case 0:
		draw_stack(maker);
		break;
	case 1:
		draw_end(maker);
		break;
	case 2:
		draw_wide(maker);
		break;
	case 3:
		draw_stack_atomic(maker);
		break;
	default:
		draw_alu(maker);
	}
}

/* A jump over a few instructions; in some cases with others for those that jump. */
static void draw_skip(struct maker *maker)
{
	static const uint8_t ops[] = { BPF_JEQ,	 BPF_JNE,  BPF_JGT,  BPF_JGE,  BPF_JLT, BPF_JLE,
				       BPF_JSET, BPF_JSGT, BPF_JSGE, BPF_JSLT, BPF_JSLE };
	int class = any(maker, 2) ? BPF_JMP : BPF_JMP32, is_x = any(maker, 2) ? BPF_X : BPF_K;
	size_t at = maker->count;

	emit(maker, class | ops[any(maker, sizeof(ops))] | is_x, any_register(maker),
	     is_x == BPF_X ? any_register(maker) : 0, 0, is_x == BPF_X ? 0 : any_number(maker));
	for (uint32_t i = any(maker, 3) + 1; i; i--)
		draw_simple(maker);
	if (!any(maker, 3)) {
		size_t over = maker->count;

		emit(maker, BPF_JMP | BPF_JA, 0, 0, 0, 0);
		maker->to[at].off = (int16_t)(over - at);
		draw_simple(maker);
		maker->to[over].off = (int16_t)(maker->count - over - 1);
		return;
	}
	maker->to[at].off = (int16_t)(maker->count - at - 1);
}

/* A loop of a known number of rounds. The counter is on the stack. */
static void draw_loop(struct maker *maker)
{
	int32_t rounds = (int32_t)any(maker, 5) + 1;
	size_t at;

	if (maker->loops++)
		return;
	emit(maker, BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, SPILL, 0);
	at = maker->count;
	for (uint32_t i = any(maker, 3) + 1; i; i--)
		draw_simple(maker);
	emit(maker, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_0, BPF_REG_10, SPILL, 0);
	emit(maker, BPF_ALU64 | BPF_ADD, BPF_REG_0, 0, 0, 1);
	emit(maker, BPF_STX | BPF_MEM | BPF_DW, BPF_REG_10, BPF_REG_0, SPILL, 0);
	emit(maker, BPF_JMP | BPF_JLT | BPF_K, BPF_REG_0, 0, 0, rounds);
	maker->to[maker->count - 1].off = (int16_t)((int64_t)at - (int64_t)maker->count);
}

static void draw_call(struct maker *maker)
{
	if (maker->call_count == sizeof(maker->calls) / sizeof(maker->calls[0]))
		return;
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, any_register(maker), 0, 0);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, any_register(maker), 0, 0);
	maker->calls[maker->call_count++] = maker->count;
	emit(maker, BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 0);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, any_register(maker), BPF_REG_0, 0, 0);
}

/* A key of the map at SPILL - 16, and its address in r2. */
static void draw_key(struct maker *maker, int map)
{
	uint8_t from = any_register(maker);

	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_0, from, 0, 0);
	emit(maker, BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_0, 0, 0, map == MADE_ARRAY ? 7 : 31);
	emit(maker, BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, SPILL - 12, 77);
	emit(maker, BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, SPILL - 8, -1);
	emit(maker, BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, BPF_REG_0, SPILL - 16, 0);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0);
	emit(maker, BPF_ALU64 | BPF_ADD, BPF_REG_2, 0, 0, SPILL - 16);
	emit(maker, BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_IDX, 0, map);
	emit(maker, 0, 0, 0, 0, 0);
}

static void draw_update(struct maker *maker, int map)
{
	draw_key(maker, map);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_3, BPF_REG_10, 0, 0);
	emit(maker, BPF_ALU64 | BPF_ADD, BPF_REG_3, 0, 0, -8 * STACK_WORDS + 4 * (int)any(maker, 4));
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_4, 0, 0, (int32_t)any(maker, 3));
	emit(maker, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_update_elem);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, any_register(maker), BPF_REG_0, 0, 0);
}

static void draw_delete(struct maker *maker, int map)
{
	draw_key(maker, map);
	emit(maker, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_delete_elem);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, any_register(maker), BPF_REG_0, 0, 0);
}

/* A lookup, and loads, stores and atomics of the value, if there is one. */
static void draw_lookup(struct maker *maker, int map)
{
	int bytes, size, room = (int)made_maps[map].value_bytes;
	size_t at;

	draw_key(maker, map);
	emit(maker, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem);
	at = maker->count;
	emit(maker, BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 0, 0);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, BPF_REG_0, 0, 0);
	for (uint32_t i = any(maker, 3) + 1; i; i--) {
		size = draw_size(maker, &bytes);
		emit(maker, BPF_LDX | load_mode(maker, bytes) | size, any_register(maker), BPF_REG_1,
		     bytes * (int)any(maker, (uint32_t)(room / bytes)), 0);
		size = draw_size(maker, &bytes);
		emit(maker, BPF_STX | BPF_MEM | size, BPF_REG_1, any_register(maker),
		     bytes * (int)any(maker, (uint32_t)(room / bytes)), 0);
		bytes = any(maker, 2) ? 8 : 4;
		draw_atomic(maker, BPF_REG_1, bytes * (int)any(maker, (uint32_t)(room / bytes)), bytes);
	}
	maker->to[at].off = (int16_t)(maker->count - at - 1);
}

static void draw_map(struct maker *maker)
{
	int map = any(maker, 3) ? MADE_HASH : MADE_ARRAY;

	switch (any(maker, 4)) {
	case 0:
		draw_delete(maker, map);
		break;
	case 1:
		draw_lookup(maker, map);
		break;
	default:
		draw_update(maker, map);
	}
}

static void draw_step(struct maker *maker)
{
	switch (any(maker, 10)) {
	case 0:
		draw_skip(maker);
		break;
	case 1:
		draw_loop(maker);
		break;
	case 2:
		draw_call(maker);
		break;
	case 3:
	case 4:
		if (maker->options->has_maps)
			draw_map(maker);
		else
			draw_context(maker);
		break;
	case 5:
		draw_context(maker);
		break;
	default:
		draw_simple(maker);
	}
}

static void clear_stack(struct maker *maker)
{
	for (int i = 1; i <= STACK_WORDS; i++)
		emit(maker, BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, -8 * i, any_number(maker));
}

/* BPF_PROG_RUN returns the low 32 bits only. */
static void fold(struct maker *maker)
{
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_0, FIRST, 0, 0);
	for (int i = FIRST + 1; i <= LAST; i++) {
		emit(maker, BPF_ALU64 | BPF_MUL | BPF_K, BPF_REG_0, 0, 0, 31);
		emit(maker, BPF_ALU64 | BPF_ADD | BPF_X, BPF_REG_0, (uint8_t)i, 0, 0);
	}
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, BPF_REG_0, 0, 0);
	emit(maker, BPF_ALU64 | BPF_RSH | BPF_K, BPF_REG_1, 0, 0, 32);
	emit(maker, BPF_ALU64 | BPF_XOR | BPF_X, BPF_REG_0, BPF_REG_1, 0, 0);
	emit(maker, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static void draw_function(struct maker *maker)
{
	size_t start = maker->count;

	if (!maker->call_count)
		return;
	for (unsigned i = 0; i < maker->call_count; i++)
		maker->to[maker->calls[i]].imm = (int32_t)(start - maker->calls[i] - 1);
	clear_stack(maker);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, FIRST, BPF_REG_1, 0, 0);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_X, FIRST + 1, BPF_REG_2, 0, 0);
	emit(maker, BPF_ALU64 | BPF_MOV | BPF_K, LAST, 0, 0, any_number(maker));
	for (uint32_t i = any(maker, 5) + 1; i; i--)
		draw_simple(maker);
	fold(maker);
}

size_t program_draw(const struct made_options *options, uint64_t *seed, struct bpf_insn *to)
{
	struct maker maker = { .options = options, .to = to, .seed = seed };

	emit(&maker, BPF_ALU64 | BPF_MOV | BPF_X, CTX, BPF_REG_1, 0, 0);
	clear_stack(&maker);
	for (int i = FIRST; i <= LAST; i++)
		emit(&maker, BPF_ALU64 | BPF_MOV | BPF_K, (uint8_t)i, 0, 0, any_number(&maker));
	for (uint32_t steps = any(&maker, 12) + 6; steps; steps--)
		draw_step(&maker);
	fold(&maker);
	draw_function(&maker);
	return maker.count;
}

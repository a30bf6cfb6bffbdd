/* Declarations private to this module. A program goes through it in this order: code (relocated
 * instructions of an object), ops (one sequence, functions inlined), states (what each register holds before
 * each op), text. */
#ifndef BELFRY_PROBE_INSIDE_H
#define BELFRY_PROBE_INSIDE_H

#include <elf.h>
#include <stdio.h>

#include "probe/probe.h"

enum {
	FRAMES_MAX = 64,
	SPILLS_MAX = 24,
	REGISTERS = 6 + 4 * PROBE_DEPTH_MAX, /* r0 to r5, and r6 to r9 of every depth */
	FRAME_POINTER = REGISTERS,	     /* its number in PTX */
	HASH_CHAIN_MAX = 128,		     /* slots that a search visits */
	CACHE_LINE_BYTES = 128,		     /* of the GPU's L2 cache */
	PRINTS_MAX = 32,
	ENDS_BLOCKS = 1 << 14,
	ENDS_GRIDS = 1 << 10,
	TRIES_MAX = 4096, /* of a thread, for a slot or a record that others want too */
};

struct code_line {
	uint32_t insn;
	uint32_t number;
	char *file; /* owned by the code */
};

/* All instructions of an object. Calls are relative to this array, and maps are referred to by index. */
struct code {
	struct bpf_insn *insns;
	size_t count;
	uint8_t *starts; /* for each instruction, whether a function begins there; NULL: not known */
	struct probe_map maps[PROBE_MAPS_MAX];
	size_t map_count;
	struct code_line *lines; /* in order of insn */
	size_t line_count;
	uint8_t *bytes; /* a copy of the object, with the initial data of maps; NULL: no object */
	size_t size;
};

enum op_kind {
	OP_INSN,
	OP_ENTER, /* the beginning of an inlined function */
	OP_LEAVE, /* its exit: a jump to the target */
};

struct op {
	enum op_kind kind;
	struct bpf_insn insn;
	uint64_t wide;	 /* the value of a 64-bit immediate */
	uint32_t origin; /* index in code::insns */
	uint32_t target; /* of a jump: index of an op */
	uint32_t frame;	 /* index in program::frames */
	bool is_target;
};

/* One call of a function, after inlining. */
struct frame {
	uint32_t parent;
	uint32_t depth;
	uint32_t used; /* bytes, a multiple of 8 */
	uint32_t base; /* bytes between the top of the stack and the top of the frame */
};

enum reg_kind {
	REG_UNSET,
	REG_NUMBER,
	REG_CTX,
	REG_STACK,
	REG_MAP,
	REG_VALUE, /* points into a value of a map */
	REG_MIXED, /* pointers of different kinds on different paths */
};

struct reg {
	enum reg_kind kind;
	uint8_t index; /* of the map, or of the frame */
	bool is_known; /* `number` is the number, or the offset from the start of what it points to */
	bool may_be_null;
	uint32_t id; /* equal for copies of one lookup's result; 0: none */
	int64_t number;
};

struct spill {
	uint32_t frame;
	int32_t offset; /* from the frame pointer, a multiple of 8 */
	struct reg reg;
};

struct state {
	bool is_reached;
	struct reg regs[REGISTERS];
	struct spill spills[SPILLS_MAX]; /* pointers on the stack; all other stack bytes are numbers */
	uint32_t spill_count;
};

struct program {
	struct probe_program info;
	char name[64];
	uint32_t start; /* index in code::insns */
	struct op *ops;
	size_t op_count;
	struct frame frames[FRAMES_MAX];
	size_t frame_count;
	struct state *states; /* before each op */
};

struct probe {
	struct code code;
	struct program programs[PROBE_PROGRAMS_MAX];
	size_t program_count;
	uint32_t fuel;
	uint32_t slots;	      /* of SM arrays */
	bool is_checked_only; /* see probe_options */
	uint64_t area_bytes;
	struct belfry_print prints[PRINTS_MAX];
	size_t print_count;
	/* Offsets in the area: tables of ENDS_BLOCKS and ENDS_GRIDS entries, struct end_slot, in which the woven code
	 * counts the threads of a block, and the blocks of a grid, that have ended. 0: no program needs them. */
	uint64_t block_ends, grid_ends;
	uint64_t
		times; /* offset in the area: PROBE_TIMES times of graphs; 0: no program reads submitted_ns */
};

/* The first thread that ends takes a slot for its block or grid, and the last one gives it back. */
struct end_slot {
	uint64_t owner; /* identifies the block or grid; 0: free */
	uint64_t count;
};

/* probe.c */
struct probe *probe_new(const struct probe_options *options, struct bf_error *err); /* NULL: failed */
/* Checks all programs, unless rc says that it failed already. Sets *probe, or frees what was made. */
int probe_finish(struct probe *made, int rc, struct probe **probe, struct bf_error *err);

/* Fails with the source line of the op. */
int code_refuse(const struct code *code, const struct op *op, struct bf_error *err, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* An object's file that passed elf_check and types_check. */
struct elf_view {
	const uint8_t *bytes;
	size_t size;
	Elf64_Ehdr head;
	uint32_t
		*bases; /* for each section with code: where it begins in code::insns; otherwise UINT32_MAX */
};
/* object.c, relocate.c, lines.c: fill the code from an object. */
int object_read(struct probe *probe, const void *bytes, size_t size, struct bf_error *err);
Elf64_Shdr elf_header(const struct elf_view *view, size_t section);
const char *elf_name(const struct elf_view *view, size_t section);
Elf64_Sym elf_symbol(const struct elf_view *view, const Elf64_Shdr *symbols, uint64_t index);
const char *elf_symbol_name(const struct elf_view *view, const Elf64_Shdr *symbols, const Elf64_Sym *symbol);
int relocate_all(struct probe *probe, const struct elf_view *view, struct bf_error *err);
int lines_read(struct probe *probe, const struct elf_view *view, struct bf_error *err);
int print_read(struct probe *probe, const struct elf_view *view, struct bf_error *err);
enum belfry_probe_event event_of(const char *section); /* BELFRY_PROBE_EVENTS: none */

/* maps.c */
int maps_place(struct probe *probe, struct bf_error *err);
uint64_t maps_hash(const void *key, uint32_t bytes);
#define HASH_FACTOR 0x9e3779b97f4a7c15ull

/* inline.c: code to ops. */
int inline_program(const struct code *code, struct program *program, struct bf_error *err);

/* state.c */
unsigned reg_slot(const struct program *program, const struct op *op, unsigned number);
struct reg state_get(const struct program *program, const struct op *op, const struct state *state,
		     unsigned number);
void state_set(const struct program *program, const struct op *op, struct state *state, unsigned number,
	       struct reg reg);
/* Merges `from` into `to`. Returns whether `to` has changed. */
bool state_join(struct program *program, struct state *to, const struct state *from);
/* Counts the bytes of a frame that a stack pointer with an unknown offset from `reg` can reach. */
void frame_use_from(struct program *program, const struct reg *reg);
void state_spill(struct state *state, uint32_t frame, int64_t offset, uint32_t bytes, const struct reg *reg);
struct reg state_unspill(const struct state *state, uint32_t frame, int64_t offset, uint32_t bytes);
void state_forget_frame(struct state *state, uint32_t frame);
/* The function has returned. Its memory is used by the next function that is called. */
void state_end_frame(struct state *state, uint32_t frame);
/* The register that was tested against 0, and all copies of it, is or is not 0. */
void state_learn_null(const struct program *program, const struct op *op, struct state *state,
		      unsigned number, bool is_null);
void state_forget_id(struct state *state, uint32_t id);

/* access.c: one access of memory through a pointer. */
struct access {
	enum reg_kind kind; /* REG_CTX, REG_STACK or REG_VALUE */
	uint32_t index;
	bool is_checked; /* must be checked at run time */
	int64_t offset;	 /* unless is_checked */
	uint32_t align;	 /* known alignment, at most 8 */
};
enum access_how { ACCESS_READ, ACCESS_WRITE };
/* Decides whether an access is proven, must be checked, or is refused. is_whole: it must be aligned to its
 * size. */
int access_decide(const struct code *code, struct program *program, const struct op *op,
		  const struct reg *reg, int32_t offset, uint32_t bytes, enum access_how how, bool is_whole,
		  struct access *access, struct bf_error *err);
uint32_t insn_bytes(const struct bpf_insn *insn); /* of a load or store */

/* rules.c: checks one op, and changes the state before it to the state after it. */
struct checker {
	const struct code *code;
	struct program *program;
	struct bf_error *err;
	uint8_t *is_due;  /* for each op, whether its state has changed since it was visited */
	uint32_t *visits; /* that are left to the object */
};
int rules_step(struct checker *c, const struct op *op, struct state *state);
/* check.c. *visits: the number of ops that may be visited, of PROBE_VISITS_MAX; becomes what is left. */
int check_program(const struct code *code, struct program *program, uint32_t *visits, struct bf_error *err);
/* helpers.c */
int helper_check(const struct code *code, struct program *program, const struct op *op, struct state *state,
		 struct bf_error *err);
/* The map argument of a helper call that passed helper_check. */
const struct probe_map *helper_map(const struct code *code, const struct program *program,
				   const struct op *op, const struct state *state);

/* text.c: PTX text. In a format, '$' stands for the start of a register name and '#' for that of a label. */
struct text {
	FILE *file;
	const struct probe *probe;
	struct program *program;
	const struct probe_site *site;
	unsigned labels;		  /* used so far */
	uint8_t cells[PROBE_STACK_BYTES]; /* for each byte of the stack: the smallest access to it; 0: none */
};
void text_put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

void text_alu(struct text *text, const struct op *op);
void text_jump(struct text *text, const struct op *op);
void text_memory(struct text *text, const struct op *op, const struct state *state);
void text_call(struct text *text, const struct op *op, const struct state *state);
/* Where a pointer's data is, for text_gather. */
struct source {
	const char *space; /* "local" or "relaxed.gpu.global" */
	unsigned slot;	   /* the register */
	int64_t offset;
	uint32_t align;
	uint8_t *cells; /* in text::cells; NULL: not the stack, or not known where */
};
/* Emits the check, where one is needed, of `bytes` bytes at a register plus offset. */
struct source text_source(struct text *text, const struct op *op, const struct state *state, unsigned number,
			  int32_t offset, uint32_t bytes, enum access_how how, bool is_whole);
/* Loads up to 8 bytes at source plus `at` into register `to`, at any alignment. Uses $t9. */
void text_gather(struct text *text, const struct source *source, uint32_t at, uint32_t bytes, const char *to);
void text_hash_lookup(struct text *text, const struct probe_map *map);
void text_hash_update(struct text *text, const struct probe_map *map, const struct source *value);
void text_hash_delete(struct text *text, const struct probe_map *map);
void text_ring_output(struct text *text, const struct probe_map *map, const struct source *data,
		      uint32_t bytes);
/* Copies a value into the map, at the address in $t7. */
void text_copy_value(struct text *text, const struct probe_map *map, const struct source *value);

#endif

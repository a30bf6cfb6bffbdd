/* The state of the loader: freed when ptx_module_load returns. */
#ifndef BELFRY_SOFT_PTX_LOAD_H
#define BELFRY_SOFT_PTX_LOAD_H

#include <errno.h>

#include "cuda/lex.h"
#include "soft/ptx/code.h"

#define PTX_SUFFIXES_MAX 12
#define PTX_ARGS_MAX 12
#define PTX_ELEMENTS_MAX 8
#define PTX_VARIABLE_MAX_BYTES (1ull << 40)
#define PTX_MASKED(length) ((int)((length) < 64 ? (length) : 64))
#define PTX_RANGE_PAGES 1024u
#define PTX_RANGE_MAX (1024ull * PTX_RANGE_PAGES)

enum ptx_symbol_kind {
	PTX_SYMBOL_REG,
	PTX_SYMBOL_RANGE,
	PTX_SYMBOL_MEMORY,
	PTX_SYMBOL_FUNCTION,
	PTX_SYMBOL_LABEL,
	PTX_SYMBOL_TARGETS,
	PTX_SYMBOL_PROTOTYPE
};

struct ptx_symbol {
	struct ptx_symbol *next;  /* with the same hash */
	struct ptx_symbol *older; /* declared before it, to leave a scope */
	const char *name;
	size_t length;
	uint32_t hash;
	uint32_t scope;
	enum ptx_symbol_kind kind;
	enum ptx_type type;
	uint32_t reg;	      /* REG: its number in the function */
	uint32_t count;	      /* RANGE: number of registers */
	uint32_t **pages;     /* RANGE: numbers + 1 of the used ones */
	enum ptx_space space; /* MEMORY */
	bool is_dynamic;      /* MEMORY: extern shared */
	bool is_formal;	      /* MEMORY: a parameter of the function */
	uint32_t offset; /* MEMORY: in its space, relative to the function (or to the module: is_module) */
	bool is_module;
	uint64_t bytes;
	uint32_t align;
	uint32_t variable;     /* MEMORY, global and const */
	struct ptx_body *body; /* FUNCTION; PROTOTYPE: only parameters and result */
	uint32_t at;	       /* LABEL: op index; TARGETS: first label reference */
};

struct ptx_reg {
	uint8_t width;	/* bytes of a lane; 0: predicate */
	uint32_t place; /* after allocation */
};

struct ptx_label_ref {
	const char *name;
	size_t length;
	uint32_t line;
	uint32_t scope;
	uint32_t op;	/* with this offset, or ~0: */
	uint32_t entry; /* of the brx tables */
	bool is_done;
};

struct ptx_call {
	struct ptx_body *callee; /* NULL: through a pointer; entries for all possible functions are added */
	uint32_t op;		 /* ~0: such an added entry */
	uint32_t line;
	uint32_t site; /* in the module's list */
};

/* A use of an address that is known only after the layout of frames: added to the offset of an op or to a
 * constant. */
struct ptx_frame_ref {
	uint32_t op;	   /* with this offset; of a constant: the mov that reads it, or ~0 */
	uint32_t constant; /* ~0: the offset of the op */
	enum ptx_space space;
	bool is_module;
	uint32_t bytes;
};

/* A copy between the frames of a caller and a callee. In the callee it is parameter `index`, ~0 for the
 * result. */
struct ptx_copy_ref {
	uint32_t copy;
	uint32_t index;
	struct ptx_body *caller;
	struct ptx_body *callee;
	uint32_t line;
};

/* A function during loading. */
struct ptx_body {
	struct ptx_function *function;
	struct ptx_op *ops;
	uint32_t op_count, op_room;
	struct ptx_reg *regs;
	uint32_t reg_count, reg_room;
	struct ptx_call *calls;
	uint32_t call_count, call_room;
	struct ptx_label_ref *labels;
	uint32_t label_count, label_room;
	struct ptx_frame_ref *refs;
	uint32_t ref_count, ref_room;
	struct ptx_param *params;
	uint32_t param_room;
	struct ptx_param result;
	bool has_result;
	bool is_defined;
	bool is_extern;
	uint32_t number;    /* in loader->bodies */
	uint32_t visit;	    /* order of the visit in the call graph; 0: not visited */
	uint32_t low;	    /* the lowest visit that it can reach */
	uint32_t component; /* the same for functions that can call each other recursively; 0: open */
	uint32_t return_reg;
	uint32_t frame_reg; /* if it is stacked */
	bool uses_module_shared;
	struct ptx_symbol *symbol;
};

enum ptx_operand_kind {
	PTX_OPERAND_NONE,
	PTX_OPERAND_REG,
	PTX_OPERAND_INT,
	PTX_OPERAND_F32,
	PTX_OPERAND_F64,
	PTX_OPERAND_SYMBOL, /* name, with an offset */
	PTX_OPERAND_NAME,   /* undeclared: a label, a function */
	PTX_OPERAND_MEMORY, /* [base + offset] */
	PTX_OPERAND_VECTOR,
	PTX_OPERAND_SREG,
	PTX_OPERAND_SINK, /* _ */
};

struct ptx_operand {
	enum ptx_operand_kind kind;
	bool is_inverted; /* !p */
	struct ptx_symbol *symbol;
	uint32_t reg;
	uint64_t bits;
	int64_t offset;
	enum ptx_sreg sreg;
	const char *name;
	size_t length;
	uint32_t element_count;
	struct ptx_operand *elements; /* of a vector; the base of [base] */
	struct ptx_operand *second;   /* a|b */
	struct ptx_operand *place;    /* the coordinates of [base, {x, y}] */
};

struct ptx_loader {
	struct ptx_lexer lex;
	struct ptx_module *module;
	struct ptx_arena scratch;
	struct bf_error *err;
	struct ptx_symbol **table;
	struct ptx_symbol *newest;
	uint32_t scope;
	uint32_t scope_count;
	struct ptx_body **bodies;
	uint32_t body_count, body_room;
	struct ptx_body *body; /* being loaded */
	uint32_t function_room;
	uint32_t variable_room;
	uint32_t patch_room;
	uint32_t copy_count, copy_room;
	uint32_t site_room;
	struct ptx_copy_ref *copy_refs;
	uint32_t copy_ref_count, copy_ref_room;
	uint32_t target_count, target_room;
	uint32_t constant_room;
	uint32_t *constant_index; /* hash of (value, width) to place + 1 */
	uint32_t constant_slots, constant_used;
	uint32_t shared_bytes; /* of the module's own scope */
};

/* The instruction being lowered. */
struct ptx_statement {
	uint32_t line;
	char name[24];
	char full[96]; /* with suffixes, for messages */
	char suffixes[PTX_SUFFIXES_MAX][32];
	uint32_t suffix_count;
	uint32_t guard;
	uint32_t guard_xor;
	struct ptx_operand args[PTX_ARGS_MAX];
	uint32_t arg_count;
	enum ptx_type types[3];
	uint32_t type_count;
	const struct ptx_row *row;
};

/* One form of an instruction. A statement uses the first row of its name that has all its suffixes. */
struct ptx_row {
	const char *name;
	const char *types;  /* of the last type suffix, except types2 */
	const char *types2; /* of a second type suffix, or "" */
	const char *modifiers;
	const char *shape; /* operands: see ptx_lower_operands */
	uint16_t family;
	int (*lower)(struct ptx_loader *loader, struct ptx_statement *st);
};

extern const struct ptx_row ptx_rows[];
extern const uint32_t ptx_row_count;

/* Set the error, with its line. */
void ptx_complain(struct ptx_loader *loader, uint32_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same, as a return value. Inline, so that compilers and analyzers know that it is never 0. */
#define ptx_refuse(loader, line, ...) (ptx_complain(loader, line, __VA_ARGS__), -EINVAL)

static inline int ptx_no_memory(struct ptx_loader *loader)
{
	bf_fail(loader->err, ENOMEM, "loading PTX: not enough memory");
	return -ENOMEM;
}

static inline int ptx_bad_operand(struct ptx_loader *loader, const struct ptx_statement *st, unsigned index)
{
	return ptx_refuse(loader, st->line, "%s: operand %u is not of a kind or size it takes", st->full,
			  index + 1);
}

/* symbol.c */
struct ptx_symbol *ptx_symbol_find(struct ptx_loader *loader, const char *name, size_t length);
struct ptx_symbol *ptx_symbol_find_here(struct ptx_loader *loader, const char *name, size_t length);
int ptx_symbol_add(struct ptx_loader *loader, const char *name, size_t length, enum ptx_symbol_kind kind,
		   struct ptx_symbol **symbol);
void ptx_scope_enter(struct ptx_loader *loader);
/* `first`: the number of label references when the scope was entered. */
int ptx_scope_leave(struct ptx_loader *loader, uint32_t outer, uint32_t first);
int ptx_reg_new(struct ptx_loader *loader, enum ptx_type type, uint32_t *reg);
/* Find a register by name, declared alone or in a range; -ENOENT without a message if there is none. */
int ptx_reg_find(struct ptx_loader *loader, const char *name, size_t length, uint32_t *reg);

/* constant.c: the operand of a constant, or PTX_NO_OPERAND without memory. */
uint32_t ptx_constant(struct ptx_loader *loader, uint64_t value, uint32_t width);
uint32_t ptx_constant_new(struct ptx_loader *loader, uint64_t value, uint32_t width);

/* parse helpers */
static inline struct ptx_token *ptx_tok(struct ptx_loader *loader)
{
	return &loader->lex.token;
}
bool ptx_accept(struct ptx_loader *loader, const char *text);
int ptx_expect(struct ptx_loader *loader, const char *text);
enum ptx_type ptx_type_parse(const char *name, size_t length);

/* declare.c, parse.c, body.c, operand.c */
int ptx_parse_module(struct ptx_loader *loader);
int ptx_parse_declaration(struct ptx_loader *loader, enum ptx_space space, bool is_extern, bool is_visible);
/* The prototype of a call through a pointer: (.param .b32 _) _ (.param .b64 _, ...); */
int ptx_parse_prototype(struct ptx_loader *loader, struct ptx_symbol *symbol);
/* The address of a function, which can then be called through a pointer; 0 if there are too many
 * functions. */
uint64_t ptx_function_address(struct ptx_loader *loader, struct ptx_body *body);
int ptx_parse_body(struct ptx_loader *loader);
int ptx_parse_operand(struct ptx_loader *loader, struct ptx_operand *operand);
int ptx_parse_call(struct ptx_loader *loader, struct ptx_statement *st);
struct ptx_variable_type {
	enum ptx_type type;
	uint32_t align;
	uint32_t vector;
	bool is_managed;
};
int ptx_parse_variable_type(struct ptx_loader *loader, struct ptx_variable_type *type);
int ptx_parse_array(struct ptx_loader *loader, uint64_t *count, bool *is_open);
int ptx_parse_initialiser(struct ptx_loader *loader, struct ptx_variable *variable, enum ptx_type type);

/* lower*.c */
struct ptx_op *ptx_emit(struct ptx_loader *loader, const struct ptx_statement *st, unsigned family,
			unsigned type);
bool ptx_has(const struct ptx_statement *st, const char *suffix);
int ptx_lower_statement(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_plain(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_operands(struct ptx_loader *loader, struct ptx_statement *st, const char *shape, uint32_t r[],
		       uint8_t *negated);
/* Lower an operand as a source of `bytes` per lane (0: predicate). With bytes ~0 it has the width of its
 * register, stored in *width. */
int ptx_source(struct ptx_loader *loader, const struct ptx_statement *st, const struct ptx_operand *operand,
	       uint32_t bytes, enum ptx_type type, uint32_t *place, uint32_t *width);
int ptx_target(struct ptx_loader *loader, const struct ptx_statement *st, const struct ptx_operand *operand,
	       uint32_t bytes, uint32_t *place, uint32_t *width);
int ptx_frame_ref_add(struct ptx_loader *loader, const struct ptx_frame_ref *ref);

/* flow.c: order the blocks such that a lower pc never waits for a higher one. allocate.c: allocate
 * registers. */
int ptx_flow_order(struct ptx_loader *loader, struct ptx_body *body);
int ptx_allocate(struct ptx_loader *loader, struct ptx_body *body);

/* graph.c: the defined functions, callees first, those of one component adjacent. Decides which are
 * stacked. */
int ptx_graph_order(struct ptx_loader *loader, struct ptx_body **order, uint32_t *count);
/* stack.c: make a stacked function use its frame register, and calls of stacked functions use the stack. */
int ptx_stack_prepare(struct ptx_loader *loader, struct ptx_body *body);

/* link.c */
int ptx_link(struct ptx_loader *loader);

#endif

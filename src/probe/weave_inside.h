/* Declarations private to weaving: a text is scanned for functions and points, and then copied with insertions. */
#ifndef BELFRY_PROBE_WEAVE_INSIDE_H
#define BELFRY_PROBE_WEAVE_INSIDE_H

#include <stdio.h>

#include "cuda/lex.h"
#include "probe/inside.h"
#include "probe/weave.h"

struct view {
	const char *text;
	size_t length;
};

enum point_kind { POINT_SECTION, POINT_ACCESS, POINT_LOOP, POINT_EXIT };

/* A place in a function where programs are inserted: before the statement at `at`. */
struct point {
	enum point_kind kind;
	size_t at;
	struct view guard; /* the predicate of the statement; empty: none */
	bool is_guard_negated;
	uint32_t index; /* among the points of this kind in the function */
	/* access: [base + offset] */
	struct view base;
	bool is_symbol;
	bool is_generic;
	int64_t offset;
	uint32_t bytes;
	struct view size; /* a 32-bit register with the bytes; empty: `bytes` */
	uint32_t how;	  /* belfry_probe_ctx::is_write */
	/* section */
	uint32_t instructions, flops, read_bytes, write_bytes;
	/* loop */
	struct view label;
	uint32_t scope;
};

struct function {
	struct view name;
	bool is_entry;
	size_t first;		  /* offset of the first label or instruction */
	size_t end;		  /* offset behind the body */
	size_t params_end;	  /* offset of the ")" of the parameters; 0: there is no list */
	uint32_t params;	  /* of an entry */
	uint64_t params_bytes;	  /* of an entry: an upper bound */
	size_t from, to;	  /* points */
	size_t calls_from, calls; /* in scan::calls */
	bool calls_pointers;
	uint32_t skipped; /* accesses without a point */
	bool is_reached;  /* from a kernel that the current probe matches */
};

struct scan {
	const char *text;
	size_t length;
	struct ptx_lexer lex;
	uint32_t version, target; /* 62: 6.2; 80: sm_80 */
	uint32_t address_size;
	struct function *functions;
	size_t function_count, function_room;
	struct point *points;
	size_t point_count, point_room;
	struct view *calls; /* names of called functions */
	size_t call_count, call_room;
	struct view exits_inside; /* a device function that ends its thread; empty: none */
	bool has_debug;		  /* sections for a debugger, which refer to labels of bodies */
	struct body *body;
	struct bf_error *err;
};
/* weave_scan.c. Fails with the line and the reason. The scan points into the text. */
int scan_module(struct scan *scan, const char *text, size_t length, struct bf_error *err);
void scan_free(struct scan *scan);
int scan_refuse(struct scan *scan, uint32_t line, const char *why);
/* Adds one zeroed element; NULL: no memory. */
void *scan_add(void **list, size_t *count, size_t *room, size_t bytes);
static inline const struct ptx_token *scan_token(const struct scan *scan)
{
	return &scan->lex.token;
}
static inline bool view_is(const struct view *view, const struct view *other)
{
	return view->length == other->length && !__builtin_memcmp(view->text, other->text, view->length);
}

/* weave_body.c: the statements of a body. The lexer is after its "{". */
int scan_body(struct scan *scan, struct function *function);

/* One instruction, while a body is scanned. */
enum { SUFFIXES_MAX = 24, OPERANDS_MAX = 8 };
struct operand {
	bool is_address; /* [base + offset] */
	struct view base;
	int64_t offset;
	bool is_number; /* offset is its value */
};
struct insn {
	size_t at;
	uint32_t line;
	struct view guard;
	bool is_guard_negated;
	struct view name;
	struct view suffixes[SUFFIXES_MAX]; /* without the dots */
	unsigned suffix_count;
	/* Operands that are a name, a number or an address; others are empty. */
	struct operand operands[OPERANDS_MAX];
	unsigned operand_count;
};
bool insn_has(const struct insn *insn, const char *suffix);
bool insn_is(const struct insn *insn, const char *name);

/* weave_access.c: what an instruction does with global memory. */
enum access_found { ACCESS_NONE, ACCESS_POINT, ACCESS_SKIPPED };
/* The width of a register in bits; 0: unknown. */
typedef uint32_t width_of(const struct scan *scan, const struct view *name);
enum access_found access_find(const struct scan *scan, const struct insn *insn, width_of *width,
			      struct point *point);
uint32_t insn_flops(const struct insn *insn); /* of one thread */

/* weave_site.c: the text of insertions. */
struct weaver {
	FILE *file;
	const struct scan *scan;
	const struct weave_probe *probes;
	size_t probe_count;
	char base[24]; /* all new names start with it; the text does not contain it */
	unsigned names;
	const struct function *function;
	uint64_t kernel;
	uint32_t active; /* bit i: probe i is woven into this function */
	bool is_timed;	 /* the timed form of the function is written */
	struct weave_kernel *report;
	struct bf_error *err;
};
int site_enter(struct weaver *weaver);
/* Whether a program that is woven into the function, of a probe with times, reads submitted_ns. */
bool site_needs_time(const struct weaver *weaver);
int site_point(struct weaver *weaver, const struct point *point);
/* Whether a probe that is woven into the function has a program for the event. */
bool weaver_wants(const struct weaver *weaver, enum belfry_probe_event event);
/* Writes the programs of one probe for an event. */
struct place {
	const struct point *point;  /* NULL: the entry */
	const char *address, *size; /* registers, or NULL */
	bool is_one;		    /* one thread runs it; otherwise once for each warp or thread */
};
int site_programs(struct weaver *weaver, size_t probe, enum belfry_probe_event event,
		  const struct place *place);
void site_put(struct weaver *weaver, unsigned name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* weave_ends.c: counts what has ended, and runs block_exit and kernel_exit. */
int site_ends(struct weaver *weaver, size_t probe, const struct point *point);

#endif

/* join: join several PTX texts into one, like a linker: declarations match definitions of other texts; local
 * names stay local. Text in, text out. */
#ifndef BELFRY_SOFT_CUDA_JOIN_H
#define BELFRY_SOFT_CUDA_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct join_input {
	const char *text;
	size_t length;
};
/* is_lazy: omit a text without visible kernels and variables, unless another text needs its definitions; so
 * an unused library does no harm. The caller frees the text; it ends with NUL, not counted in length. */
int join_texts(const struct join_input *inputs, unsigned count, bool is_lazy, char **text, size_t *length,
	       struct bf_error *err);

/* ---- join_scan.c: split a text into its top-level statements. */
enum join_kind { JOIN_OTHER, JOIN_HEAD, JOIN_VARIABLE, JOIN_FUNCTION };
enum join_linkage { JOIN_LOCAL, JOIN_VISIBLE, JOIN_WEAK, JOIN_EXTERN };
struct join_statement {
	const char *from, *end, *name;
	size_t name_length;
	const char *extern_at; /* the position of .extern */
	enum join_kind kind;
	enum join_linkage linkage;
	bool is_entry, is_definition;
	bool is_dropped, is_prototype; /* set by join.c: omitted, or reduced to a declaration */
	unsigned input;
};
struct join_statements {
	struct join_statement *list;
	size_t count, room;
};
int join_scan(const struct join_input *input, unsigned number, struct join_statements *to,
	      struct bf_error *err);

struct join_token {
	const char *from, *end;
	enum { JOIN_END, JOIN_WORD, JOIN_DOT, JOIN_SIGN } kind;
};
/* The next token at or after `at`; skips space and comments. */
struct join_token join_next(const char *at, const char *end);

#endif

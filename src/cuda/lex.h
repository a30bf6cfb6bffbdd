/* Tokens of PTX text. A token points into the text; nothing is copied. */
#ifndef BELFRY_CUDA_LEX_H
#define BELFRY_CUDA_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptx_token_kind {
	PTX_TOKEN_END,
	PTX_TOKEN_WORD,	  /* name, %name, $name */
	PTX_TOKEN_DOT,	  /* .name: a directive, a suffix or a component */
	PTX_TOKEN_INT,	  /* bits */
	PTX_TOKEN_F32,	  /* bits, from 0f... */
	PTX_TOKEN_F64,	  /* bits, from 0d... or a decimal fraction */
	PTX_TOKEN_STRING, /* without its quotes */
	PTX_TOKEN_PUNCT,  /* one character */
	PTX_TOKEN_BAD,
};

struct ptx_token {
	enum ptx_token_kind kind;
	const char *text;
	size_t length;
	uint64_t bits;
	uint32_t line;
};

struct ptx_lexer {
	const char *at;
	const char *end;
	uint32_t line;
	struct ptx_token token; /* the current one */
};

void ptx_lex_start(struct ptx_lexer *lexer, const char *text, size_t length);
/* Go to the next token. */
void ptx_lex_next(struct ptx_lexer *lexer);
bool ptx_token_is(const struct ptx_token *token, const char *text);

#endif

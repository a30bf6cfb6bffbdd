#include "cuda/lex.h"

#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '$' ||
	       c == '%';
}

static int digit_of(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 99;
}

static void skip_line(struct ptx_lexer *lexer)
{
	while (lexer->at < lexer->end && *lexer->at != '\n')
		lexer->at++;
}

static void skip_comment(struct ptx_lexer *lexer)
{
	lexer->at += 2;
	while (lexer->at < lexer->end) {
		if (*lexer->at == '\n')
			lexer->line++;
		if (lexer->end - lexer->at >= 2 && lexer->at[0] == '*' && lexer->at[1] == '/') {
			lexer->at += 2;
			return;
		}
		lexer->at++;
	}
}

static void skip_blank(struct ptx_lexer *lexer)
{
	while (lexer->at < lexer->end) {
		char c = *lexer->at;
		char next = lexer->end - lexer->at >= 2 ? lexer->at[1] : '\0';

		if (c == '\n')
			lexer->line++;
		if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v')
			lexer->at++;
		else if (c == '/' && next == '/')
			skip_line(lexer);
		else if (c == '/' && next == '*')
			skip_comment(lexer);
		else
			return;
	}
}

/* Read the digits of a base, at most as many as a 64-bit value has; false if there are none or too many. */
static bool lex_digits(struct ptx_lexer *lexer, int base, uint64_t *value)
{
	const char *from = lexer->at;
	uint64_t v = 0;

	while (lexer->at < lexer->end && digit_of(*lexer->at) < base) {
		if (v > (UINT64_MAX - (uint64_t)digit_of(*lexer->at)) / (uint64_t)base)
			return false;
		v = v * (uint64_t)base + (uint64_t)digit_of(*lexer->at++);
	}
	*value = v;
	return lexer->at > from;
}

static void lex_fraction(struct ptx_lexer *lexer, const char *from)
{
	char copy[64];
	char *stop;
	size_t length = 0;
	double value;

	while (from + length < lexer->end && length < sizeof(copy) - 1 &&
	       (is_digit(from[length]) || strchr(".eE+-", from[length]))) {
		copy[length] = from[length];
		length++;
	}
	copy[length] = '\0';
	value = strtod(copy, &stop);
	lexer->token.kind = stop == copy ? PTX_TOKEN_BAD : PTX_TOKEN_F64;
	memcpy(&lexer->token.bits, &value, sizeof(value));
	lexer->at = from + (stop == copy ? 1 : stop - copy);
}

static void lex_bits(struct ptx_lexer *lexer, int base, enum ptx_token_kind kind, ptrdiff_t digits)
{
	const char *from;

	lexer->at += 2;
	from = lexer->at;
	lexer->token.kind = kind;
	if (!lex_digits(lexer, base, &lexer->token.bits) || (digits && lexer->at - from != digits))
		lexer->token.kind = PTX_TOKEN_BAD;
}

static void lex_number(struct ptx_lexer *lexer)
{
	const char *from = lexer->at;
	char second = lexer->end - from >= 2 ? from[1] : '\0';
	bool is_zero = *from == '0';

	if (is_zero && (second == 'x' || second == 'X')) {
		lex_bits(lexer, 16, PTX_TOKEN_INT, 0);
	} else if (is_zero && (second == 'b' || second == 'B')) {
		lex_bits(lexer, 2, PTX_TOKEN_INT, 0);
	} else if (is_zero && (second == 'f' || second == 'F')) {
		lex_bits(lexer, 16, PTX_TOKEN_F32, 8);
	} else if (is_zero && (second == 'd' || second == 'D')) {
		lex_bits(lexer, 16, PTX_TOKEN_F64, 16);
	} else {
		lexer->token.kind = PTX_TOKEN_INT;
		if (!lex_digits(lexer, is_zero && is_digit(second) ? 8 : 10, &lexer->token.bits))
			lexer->token.kind = PTX_TOKEN_BAD;
		if (lexer->at < lexer->end && (*lexer->at == '.' || *lexer->at == 'e' || *lexer->at == 'E'))
			lex_fraction(lexer, from);
	}
	if (lexer->at < lexer->end && *lexer->at == 'U')
		lexer->at++;
}

static void lex_string(struct ptx_lexer *lexer)
{
	const char *from = ++lexer->at;

	while (lexer->at < lexer->end && *lexer->at != '"' && *lexer->at != '\n')
		lexer->at += *lexer->at == '\\' && lexer->end - lexer->at > 1 ? 2 : 1;
	lexer->token.text = from;
	lexer->token.length = (size_t)(lexer->at - from);
	lexer->token.kind = PTX_TOKEN_STRING;
	if (lexer->at >= lexer->end || *lexer->at != '"') {
		lexer->token.kind = PTX_TOKEN_BAD;
		return;
	}
	lexer->at++;
}

/* .name, including the "::" of qualifiers such as .shared::cta and .L2::128B. */
static void lex_dot(struct ptx_lexer *lexer)
{
	lexer->at++;
	lexer->token.kind = PTX_TOKEN_DOT;
	while (lexer->at < lexer->end) {
		if (is_word(*lexer->at) && *lexer->at != '%' && *lexer->at != '$')
			lexer->at++;
		else if (lexer->end - lexer->at > 2 && lexer->at[0] == ':' && lexer->at[1] == ':')
			lexer->at += 2;
		else
			break;
	}
}

void ptx_lex_next(struct ptx_lexer *lexer)
{
	const char *from;

	skip_blank(lexer);
	from = lexer->at;
	lexer->token = (struct ptx_token){ .line = lexer->line, .text = from };
	if (from >= lexer->end)
		return;
	if (is_digit(*from)) {
		lex_number(lexer);
	} else if (*from == '"') {
		lex_string(lexer);
		return;
	} else if (*from == '.') {
		lex_dot(lexer);
	} else if (is_word(*from)) {
		while (lexer->at < lexer->end && is_word(*lexer->at))
			lexer->at++;
		lexer->token.kind = PTX_TOKEN_WORD;
	} else {
		lexer->at++;
		lexer->token.kind = *from > ' ' && *from < 127 ? PTX_TOKEN_PUNCT : PTX_TOKEN_BAD;
	}
	lexer->token.length = (size_t)(lexer->at - from);
}

void ptx_lex_start(struct ptx_lexer *lexer, const char *text, size_t length)
{
	while (length && !text[length - 1]) /* callers pass C strings with their NUL */
		length--;
	*lexer = (struct ptx_lexer){ .at = text, .end = text + length, .line = 1 };
	ptx_lex_next(lexer);
}

bool ptx_token_is(const struct ptx_token *token, const char *text)
{
	size_t length = strlen(text);

	return token->kind != PTX_TOKEN_STRING && token->length == length &&
	       !memcmp(token->text, text, length);
}

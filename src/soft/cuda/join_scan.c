/* Split PTX text into statements: only as much grammar as needed for the end, the name and the linkage of
 * each. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/join.h"

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static const char *skip_space(const char *at, const char *end)
{
	while (at < end) {
		if (isspace((unsigned char)*at)) {
			at++;
		} else if (end - at > 1 && at[0] == '/' && at[1] == '/') {
			while (at < end && *at != '\n')
				at++;
		} else if (end - at > 1 && at[0] == '/' && at[1] == '*') {
			const char *close = memmem(at + 2, (size_t)(end - at - 2), "*/", 2);

			at = close ? close + 2 : end;
		} else {
			break;
		}
	}
	return at;
}

struct join_token join_next(const char *at, const char *end)
{
	struct join_token token;

	at = skip_space(at, end);
	token.from = at;
	token.kind = JOIN_SIGN;
	if (at == end) {
		token.kind = JOIN_END;
	} else if (*at == '"') {
		for (at++; at < end && *at != '"'; at++)
			at += *at == '\\' && at + 1 < end;
		at += at < end;
	} else if (*at == '.' || is_word(*at)) {
		token.kind = *at == '.' ? JOIN_DOT : isdigit((unsigned char)*at) ? JOIN_SIGN : JOIN_WORD;
		for (at++; at < end && is_word(*at); at++)
			;
	} else {
		at++;
	}
	token.end = at;
	return token;
}

static bool is_text(const struct join_token *token, const char *text)
{
	size_t length = (size_t)(token->end - token->from);

	return strlen(text) == length && !memcmp(token->from, text, length);
}

static bool is_any(const struct join_token *token, const char *const *texts)
{
	for (; *texts; texts++)
		if (is_text(token, *texts))
			return true;
	return false;
}

/* Apply a directive at the top level to the statement. */
static void take_dot(struct join_statement *s, const struct join_token *token)
{
	static const char *const spaces[] = { ".global", ".const", ".shared", ".tex", NULL };

	if (is_text(token, ".visible")) {
		s->linkage = JOIN_VISIBLE;
	} else if (is_text(token, ".weak") || is_text(token, ".common")) {
		s->linkage = JOIN_WEAK;
	} else if (is_text(token, ".extern")) {
		s->linkage = JOIN_EXTERN;
		s->extern_at = token->from;
	} else if (s->kind == JOIN_OTHER && (is_text(token, ".func") || is_text(token, ".entry"))) {
		s->kind = JOIN_FUNCTION;
		s->is_entry = is_text(token, ".entry");
	} else if (s->kind == JOIN_OTHER && is_any(token, spaces)) {
		s->kind = JOIN_VARIABLE;
	}
}

static const char *line_end(const char *at, const char *end)
{
	const char *stop = memchr(at, '\n', (size_t)(end - at));

	return stop ? stop : end;
}

static int depth_change(const struct join_token *token)
{
	char c = *token->from;

	if (token->kind != JOIN_SIGN || token->end - token->from != 1)
		return 0;
	return (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
}

/* A function ends with its body, other statements with a semicolon; .section has a body too. */
static bool is_last(const struct join_statement *s, const struct join_token *token, bool is_section)
{
	if (is_text(token, ";"))
		return true;
	return is_text(token, "}") && (s->kind == JOIN_FUNCTION || is_section);
}

static bool take_token(struct join_statement *s, const struct join_token *token)
{
	if (token->kind == JOIN_DOT)
		take_dot(s, token);
	if (token->kind == JOIN_WORD && s->kind != JOIN_OTHER && !s->name) {
		s->name = token->from;
		s->name_length = (size_t)(token->end - token->from);
	}
	/* Two variables in one statement are refused: compilers do not write that. */
	return !(s->kind == JOIN_VARIABLE && s->name && is_text(token, ","));
}

static int scan_statement(const char *at, const char *end, struct join_statement *s, struct bf_error *err)
{
	static const char *const heads[] = { ".version", ".target", ".address_size", NULL };
	struct join_token token = join_next(at, end);
	bool is_section = is_text(&token, ".section");
	int depth = 0;

	if (is_any(&token, heads) || is_text(&token, ".file")) {
		s->kind = is_text(&token, ".file") ? JOIN_OTHER : JOIN_HEAD;
		s->end = line_end(token.end, end);
		return 0;
	}
	for (; token.kind != JOIN_END; token = join_next(token.end, end)) {
		depth += depth_change(&token);
		if (depth < 0)
			break;
		if (!depth && !is_section && !take_token(s, &token))
			return bf_fail(err, ENOTSUP, "joining PTX: a statement with several variables");
		if (!depth && is_last(s, &token, is_section)) {
			s->is_definition = s->kind == JOIN_FUNCTION ? is_text(&token, "}")
								    : s->linkage != JOIN_EXTERN;
			s->end = token.end;
			if (s->is_definition && s->linkage == JOIN_EXTERN)
				return bf_fail(err, EINVAL, "joining PTX: an extern function has a body");
			return 0;
		}
	}
	return bf_fail(err, EINVAL, "joining PTX: a statement does not end");
}

static struct join_statement *add(struct join_statements *to)
{
	if (to->count == to->room) {
		size_t room = to->room ? to->room * 2 : 64;
		struct join_statement *list = realloc(to->list, room * sizeof(*list));

		if (!list)
			return NULL;
		to->list = list;
		to->room = room;
	}
	return &to->list[to->count++];
}

int join_scan(const struct join_input *input, unsigned number, struct join_statements *to,
	      struct bf_error *err)
{
	const char *end = input->text + input->length, *at = skip_space(input->text, end);

	while (at < end) {
		struct join_statement *s = add(to);
		int rc;

		if (!s)
			return bf_fail(err, ENOMEM, "joining PTX: out of memory");
		*s = (struct join_statement){ .from = at, .input = number };
		rc = scan_statement(at, end, s, err);
		if (rc)
			return rc;
		at = skip_space(s->end, end);
	}
	return 0;
}

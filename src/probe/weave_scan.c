/* Scans a module: its header, and its functions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "probe/weave_inside.h"

int scan_refuse(struct scan *scan, uint32_t line, const char *why)
{
	return bf_fail(scan->err, EINVAL, "line %u of the PTX: %s", line, why);
}

void *scan_add(void **list, size_t *count, size_t *room, size_t bytes)
{
	if (*count == *room) {
		size_t more = *room ? 2 * *room : 64;
		void *grown = reallocarray(*list, more, bytes);

		if (!grown)
			return NULL;
		*list = grown;
		*room = more;
	}
	return memset((char *)*list + (*count)++ * bytes, 0, bytes);
}

/* .version 8.4, .target sm_90a, .address_size 64 */
static int scan_version(struct scan *scan)
{
	const struct ptx_token *t = scan_token(scan);
	unsigned major = 0, minor = 0;
	char copy[16];

	ptx_lex_next(&scan->lex);
	snprintf(copy, sizeof(copy), "%.*s", (int)(t->length < 15 ? t->length : 15), t->text);
	if (scan->version || sscanf(copy, "%3u.%3u", &major, &minor) != 2 || minor > 9)
		return scan_refuse(scan, t->line, "its version is not understood");
	scan->version = 10 * major + minor;
	ptx_lex_next(&scan->lex);
	return 0;
}

static int scan_target(struct scan *scan)
{
	const struct ptx_token *t = scan_token(scan);
	char copy[32];

	ptx_lex_next(&scan->lex);
	snprintf(copy, sizeof(copy), "%.*s", (int)(t->length < 31 ? t->length : 31), t->text);
	if (scan->target || sscanf(copy, "sm_%3u", &scan->target) != 1)
		return scan_refuse(scan, t->line, "its target is not understood");
	ptx_lex_next(&scan->lex);
	return 0;
}

static int scan_address_size(struct scan *scan)
{
	const struct ptx_token *t = scan_token(scan);

	ptx_lex_next(&scan->lex);
	if (t->kind != PTX_TOKEN_INT)
		return scan_refuse(scan, t->line, "its address size is not understood");
	scan->address_size = (uint32_t)t->bits;
	ptx_lex_next(&scan->lex);
	return 0;
}

/* Skips from an opening bracket past the closing one, whose offset goes to *close. */
static int skip_to_close(struct scan *scan, size_t *close)
{
	const struct ptx_token *t = scan_token(scan);
	uint32_t line = t->line;
	size_t depth = 0;

	do {
		*close = (size_t)(t->text - scan->text);
		if (ptx_token_is(t, "(") || ptx_token_is(t, "{"))
			depth++;
		else if (ptx_token_is(t, ")") || ptx_token_is(t, "}"))
			depth--;
		else if (t->kind == PTX_TOKEN_END || t->kind == PTX_TOKEN_BAD)
			return scan_refuse(scan, line, "a bracket is not closed");
		ptx_lex_next(&scan->lex);
	} while (depth);
	return 0;
}

static int skip_brackets(struct scan *scan)
{
	size_t close;

	return skip_to_close(scan, &close);
}

/* The bytes of an element of a parameter; 0: not a type. */
static uint32_t type_bytes(const struct ptx_token *t)
{
	unsigned bits = 0;
	char copy[8];

	if (t->kind != PTX_TOKEN_DOT || t->length < 3 || t->length > 5 || !strchr("busf", t->text[1]))
		return 0;
	snprintf(copy, sizeof(copy), "%.*s", (int)t->length - 2, t->text + 2);
	return sscanf(copy, "%3u", &bits) == 1 ? bits / 8 : 0;
}

/* The parameters of an entry: their number, and a bound of their size that does not need their alignment. */
static int scan_params(struct scan *scan, struct function *function)
{
	struct ptx_lexer before = scan->lex;
	const struct ptx_token *t = scan_token(scan);
	int rc = skip_to_close(scan, &function->params_end);
	struct ptx_lexer after = scan->lex;
	uint64_t bytes = 0, most = 1ull << 20;

	if (rc)
		return rc;
	for (scan->lex = before; (size_t)(t->text - scan->text) < function->params_end;) {
		bool is_array = ptx_token_is(t, "[");

		if (ptx_token_is(t, ".param")) {
			function->params++;
			function->params_bytes += 16 + bytes;
			bytes = 0;
		}
		bytes = type_bytes(t) ? type_bytes(t) : bytes;
		ptx_lex_next(&scan->lex);
		if (is_array && t->kind == PTX_TOKEN_INT)
			bytes *= t->bits < most ? t->bits : most;
	}
	function->params_bytes += bytes;
	scan->lex = after;
	return 0;
}

/* From the name to the body: parameters and directives. *has_body: the lexer is after "{". */
static int scan_header(struct scan *scan, struct function *function, bool *has_body)
{
	const struct ptx_token *t = scan_token(scan);
	bool is_pragma = false;

	*has_body = false;
	while (t->kind != PTX_TOKEN_END && t->kind != PTX_TOKEN_BAD) {
		if (ptx_token_is(t, "(")) {
			bool is_list = function->is_entry && !function->params_end;

			if (is_list ? scan_params(scan, function) : skip_brackets(scan))
				return -EINVAL;
			continue;
		}
		if (ptx_token_is(t, "}") || ptx_token_is(t, ".entry") || ptx_token_is(t, ".func"))
			break;
		if (ptx_token_is(t, ";") && !is_pragma) {
			ptx_lex_next(&scan->lex);
			return 0;
		}
		if (ptx_token_is(t, "{")) {
			ptx_lex_next(&scan->lex);
			*has_body = true;
			return 0;
		}
		is_pragma = ptx_token_is(t, ".pragma") || (is_pragma && t->kind == PTX_TOKEN_STRING);
		ptx_lex_next(&scan->lex);
	}
	return scan_refuse(scan, t->line, "a function has neither a body nor an end");
}

/* .func {.attribute(...)} {(return)} name */
static int scan_function(struct scan *scan, bool is_entry)
{
	const struct ptx_token *t = scan_token(scan);
	struct function function = { .is_entry = is_entry };
	struct function *added;
	bool has_body;
	int rc;

	ptx_lex_next(&scan->lex);
	while (t->kind == PTX_TOKEN_DOT || ptx_token_is(t, "(")) {
		if (t->kind == PTX_TOKEN_DOT)
			ptx_lex_next(&scan->lex);
		else if (skip_brackets(scan))
			return -EINVAL;
	}
	if (t->kind != PTX_TOKEN_WORD)
		return scan_refuse(scan, t->line, "a function without a name");
	function.name = (struct view){ t->text, t->length };
	ptx_lex_next(&scan->lex);
	rc = scan_header(scan, &function, &has_body);
	if (rc || !has_body)
		return rc;
	function.from = scan->point_count;
	function.calls_from = scan->call_count;
	rc = scan_body(scan, &function);
	if (rc)
		return rc;
	function.to = scan->point_count;
	function.calls = scan->call_count - function.calls_from;
	added = scan_add((void **)&scan->functions, &scan->function_count, &scan->function_room,
			 sizeof(*added));
	if (!added)
		return bf_fail(scan->err, ENOMEM, "not enough memory");
	*added = function;
	return 0;
}

static int scan_part(struct scan *scan)
{
	const struct ptx_token *t = scan_token(scan);

	if (t->kind == PTX_TOKEN_BAD)
		return scan_refuse(scan, t->line, "a character that PTX does not have");
	if (ptx_token_is(t, ".entry") || ptx_token_is(t, ".func"))
		return scan_function(scan, ptx_token_is(t, ".entry"));
	if (ptx_token_is(t, ".version"))
		return scan_version(scan);
	if (ptx_token_is(t, ".target"))
		return scan_target(scan);
	if (ptx_token_is(t, ".address_size"))
		return scan_address_size(scan);
	if (ptx_token_is(t, "{"))
		return skip_brackets(scan);
	if (ptx_token_is(t, "}"))
		return scan_refuse(scan, t->line, "a bracket is not open");
	scan->has_debug |= ptx_token_is(t, ".debug_info");
	ptx_lex_next(&scan->lex);
	return 0;
}

static int check_header(const struct scan *scan, struct bf_error *err)
{
	if (!scan->version || !scan->target)
		return bf_fail(err, EINVAL, "the PTX has no version or no target");
	if (scan->address_size != 64)
		return bf_fail(err, ENOTSUP, "the PTX has 32-bit addresses; probes need .address_size 64");
	if (scan->target < WEAVE_TARGET_MIN || scan->version < WEAVE_VERSION_MIN)
		return bf_fail(err, ENOTSUP,
			       "the PTX is for sm_%u, version %u.%u; probes need sm_%d and %d.%d",
			       scan->target, scan->version / 10, scan->version % 10, WEAVE_TARGET_MIN,
			       WEAVE_VERSION_MIN / 10, WEAVE_VERSION_MIN % 10);
	return 0;
}

int scan_module(struct scan *scan, const char *text, size_t length, struct bf_error *err)
{
	int rc = 0;

	*scan = (struct scan){ .text = text, .length = length, .err = err };
	ptx_lex_start(&scan->lex, text, length);
	while (!rc && scan_token(scan)->kind != PTX_TOKEN_END)
		rc = scan_part(scan);
	return rc ? rc : check_header(scan, err);
}

void scan_free(struct scan *scan)
{
	free(scan->functions);
	free(scan->points);
	free(scan->calls);
	*scan = (struct scan){ 0 };
}

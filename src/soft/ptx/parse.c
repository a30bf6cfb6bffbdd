/* Parse the text outside of function bodies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/ptx/load.h"

struct linkage {
	bool is_extern;
	bool is_visible;
};

static int parse_version(struct ptx_loader *loader)
{
	const struct ptx_token *t = ptx_tok(loader);
	double version = 0;

	if (t->kind == PTX_TOKEN_F64)
		memcpy(&version, &t->bits, sizeof(version));
	if (!(version >= 5.95 && version < 9.95)) {
		ptx_complain(loader, t->line, ".version: 6.0 to 9.x is understood");
		if (loader->err)
			loader->err->code = ENOTSUP;
		return -ENOTSUP;
	}
	loader->module->version = (uint32_t)(version * 10 + 0.5);
	ptx_lex_next(&loader->lex);
	return 0;
}

static int parse_target(struct ptx_loader *loader)
{
	struct ptx_token *t = ptx_tok(loader);
	uint32_t number = 0;
	size_t i = 0;

	if (t->kind == PTX_TOKEN_WORD && t->length > 3 && !memcmp(t->text, "sm_", 3))
		i = 3;
	else if (t->kind == PTX_TOKEN_WORD && t->length > 8 && !memcmp(t->text, "compute_", 8))
		i = 8;
	for (; i && i < t->length && t->text[i] >= '0' && t->text[i] <= '9' && number < 1000; i++)
		number = number * 10 + (uint32_t)(t->text[i] - '0');
	if (number < 30 || number > 130)
		return ptx_refuse(loader, t->line, ".target %.*s is not known", PTX_MASKED(t->length),
				  t->text);
	loader->module->target = number;
	ptx_lex_next(&loader->lex);
	while (ptx_accept(loader, ",")) /* debug, texmode_...: no effect */
		ptx_lex_next(&loader->lex);
	return 0;
}

static int parse_address_size(struct ptx_loader *loader)
{
	const struct ptx_token *t = ptx_tok(loader);

	if (t->kind != PTX_TOKEN_INT || t->bits != 64)
		return ptx_refuse(loader, t->line, ".address_size: only 64");
	ptx_lex_next(&loader->lex);
	return 0;
}

static int skip_section(struct ptx_loader *loader)
{
	const struct ptx_token *t = ptx_tok(loader);
	uint32_t depth = 0;

	for (; t->kind != PTX_TOKEN_END; ptx_lex_next(&loader->lex)) {
		if (ptx_token_is(t, "{"))
			depth++;
		if (ptx_token_is(t, "}") && --depth == 0) {
			ptx_lex_next(&loader->lex);
			return 0;
		}
		if (ptx_token_is(t, "}") && depth == ~0u)
			break;
	}
	return ptx_refuse(loader, t->line, "a section without an end");
}

/* .file and .loc end at the end of the line. */
static void skip_text_line(struct ptx_loader *loader)
{
	uint32_t line = ptx_tok(loader)->line;

	while (ptx_tok(loader)->kind != PTX_TOKEN_END && ptx_tok(loader)->line == line)
		ptx_lex_next(&loader->lex);
}

static int parse_param(struct ptx_loader *loader, struct ptx_body *body, bool is_named, bool is_result)
{
	struct ptx_function *f = body->function;
	const struct ptx_token *t = ptx_tok(loader);
	struct ptx_variable_type type;
	struct ptx_param *p = &body->result;
	struct ptx_symbol *s = NULL;
	uint64_t count;
	bool is_open;
	uint32_t bytes;
	int rc = ptx_expect(loader, ".param");

	if (rc || (rc = ptx_parse_variable_type(loader, &type)))
		return rc;
	if (t->kind != PTX_TOKEN_WORD)
		return ptx_refuse(loader, t->line, "a parameter's name expected");
	if (!is_result) {
		p = ptx_list_add((void **)&body->params, &f->kernel.param_count, &body->param_room,
				 sizeof(*p));
		if (!p)
			return ptx_no_memory(loader);
	}
	body->has_result |= is_result;
	p->name = ptx_arena_text(&loader->module->arena, t->text, t->length);
	if (!p->name)
		return ptx_no_memory(loader);
	if (is_named && (rc = ptx_symbol_add(loader, t->text, t->length, PTX_SYMBOL_MEMORY, &s)))
		return rc;
	ptx_lex_next(&loader->lex);
	rc = ptx_parse_array(loader, &count, &is_open);
	if (rc)
		return rc;
	if (type.type == PTX_TYPE_PRED || is_open || count > PTX_PARAM_MAX_BYTES || !type.align)
		return ptx_refuse(loader, t->line, "a parameter of this type");
	bytes = (uint32_t)count * ptx_type_bytes(type.type) * type.vector;
	p->align = type.align;
	p->bytes = bytes;
	p->offset = is_result ? 0 : (f->kernel.param_bytes + type.align - 1) & ~(type.align - 1);
	if (bytes > PTX_PARAM_MAX_BYTES || p->offset + bytes > PTX_PARAM_MAX_BYTES)
		return ptx_refuse(loader, t->line, "more than %u bytes of parameters", PTX_PARAM_MAX_BYTES);
	if (!is_result)
		f->kernel.param_bytes = p->offset + bytes;
	if (!s)
		return 0;
	s->type = type.type;
	s->is_formal = true;
	s->bytes = bytes;
	s->align = type.align;
	s->space = f->kernel.is_entry ? PTX_SPACE_PARAM : PTX_SPACE_LOCAL;
	s->offset = p->offset;
	if (f->kernel.is_entry)
		return 0;
	/* parameters of a .func are in its local frame, and ptx_param::offset is the offset there */
	f->local_bytes = (f->local_bytes + type.align - 1) & ~(type.align - 1);
	p->offset = s->offset = f->local_bytes;
	f->local_bytes += bytes;
	return f->local_bytes > PTX_LOCAL_MAX_BYTES ? ptx_refuse(loader, t->line, "too many parameters") : 0;
}

static int parse_params(struct ptx_loader *loader, struct ptx_body *body, bool is_named, bool is_result)
{
	int rc;

	if (ptx_accept(loader, ")"))
		return 0;
	do {
		rc = parse_param(loader, body, is_named, is_result);
		if (rc)
			return rc;
	} while (!is_result && ptx_accept(loader, ","));
	return ptx_expect(loader, ")");
}

static int parse_numbers(struct ptx_loader *loader, uint32_t numbers[3])
{
	const struct ptx_token *t = ptx_tok(loader);

	numbers[0] = numbers[1] = numbers[2] = 1;
	for (unsigned i = 0; i < 3; i++) {
		if (t->kind != PTX_TOKEN_INT || t->bits > 1u << 20 || (t->bits == 0))
			return ptx_refuse(loader, t->line, "a number from 1 to 2^20 expected");
		numbers[i] = (uint32_t)t->bits;
		ptx_lex_next(&loader->lex);
		if (!ptx_accept(loader, ","))
			return 0;
	}
	return 0;
}

static int parse_tuning(struct ptx_loader *loader, struct ptx_kernel *k)
{
	uint32_t n[3];
	int rc = 0;

	while (!rc) {
		if (ptx_accept(loader, ".maxntid")) {
			rc = parse_numbers(loader, n);
			k->is_bounded = true;
			if (!rc && (uint64_t)n[0] * n[1] * n[2] < k->max_threads)
				k->max_threads = n[0] * n[1] * n[2];
		} else if (ptx_accept(loader, ".reqntid")) {
			rc = parse_numbers(loader, k->required);
			if (!rc &&
			    (uint64_t)k->required[0] * k->required[1] * k->required[2] > PTX_THREADS_MAX)
				return ptx_refuse(loader, ptx_tok(loader)->line,
						  ".reqntid: more than %u threads", PTX_THREADS_MAX);
			k->is_bounded = true;
			if (!rc)
				k->max_threads = k->required[0] * k->required[1] * k->required[2];
		} else if (ptx_accept(loader, ".minnctapersm")) {
			rc = parse_numbers(loader, n);
			k->min_blocks = n[0];
		} else if (ptx_accept(loader, ".maxnreg") || ptx_accept(loader, ".maxnctapersm")) {
			rc = parse_numbers(loader, n);
		} else if (ptx_accept(loader, ".pragma")) {
			ptx_lex_next(&loader->lex);
			rc = ptx_expect(loader, ";");
		} else if (!ptx_accept(loader, ".noreturn") && !ptx_accept(loader, ".unified")) {
			return 0;
		}
	}
	return rc;
}

int ptx_parse_prototype(struct ptx_loader *loader, struct ptx_symbol *symbol)
{
	struct ptx_body *body = ptx_arena_alloc(&loader->scratch, sizeof(*body));
	struct ptx_param *params = NULL;
	uint32_t count;
	int rc = 0;

	if (body)
		body->function = ptx_arena_alloc(&loader->scratch, sizeof(*body->function));
	if (!body || !body->function)
		return ptx_no_memory(loader);
	if (ptx_accept(loader, "("))
		rc = parse_params(loader, body, false, true);
	if (!rc)
		rc = ptx_expect(loader, "_");
	if (!rc && ptx_accept(loader, "("))
		rc = parse_params(loader, body, false, false);
	if (!rc) {
		ptx_accept(loader, ".noreturn");
		rc = ptx_expect(loader, ";");
	}
	count = body->function->kernel.param_count;
	if (!rc && count) {
		params = ptx_arena_alloc(&loader->scratch, count * sizeof(*params));
		rc = params ? 0 : ptx_no_memory(loader);
	}
	if (params)
		memcpy(params, body->params, count * sizeof(*params));
	free(body->params);
	body->params = params;
	symbol->kind = PTX_SYMBOL_PROTOTYPE;
	symbol->body = body;
	return rc;
}

/* The function of this name: declared before, or new. */
static int function_get(struct ptx_loader *loader, bool is_entry, struct ptx_body **body)
{
	const struct ptx_token *t = ptx_tok(loader);
	struct ptx_body **slot;
	struct ptx_symbol *s;
	int rc;

	if (t->kind != PTX_TOKEN_WORD)
		return ptx_refuse(loader, t->line, "a function's name expected");
	s = ptx_symbol_find(loader, t->text, t->length);
	if (s && (s->kind != PTX_SYMBOL_FUNCTION || s->body->is_defined ||
		  s->body->function->kernel.is_entry != is_entry))
		return ptx_refuse(loader, t->line, "%.*s is declared twice", PTX_MASKED(t->length), t->text);
	if (s) {
		*body = s->body;
		return 0;
	}
	rc = ptx_symbol_add(loader, t->text, t->length, PTX_SYMBOL_FUNCTION, &s);
	if (rc)
		return rc;
	if (loader->body_count == PTX_FUNCTIONS_MAX)
		return ptx_refuse(loader, t->line, "more than %u functions", PTX_FUNCTIONS_MAX);
	slot = ptx_list_add((void **)&loader->bodies, &loader->body_count, &loader->body_room,
			    sizeof(struct ptx_body *));
	s->body = ptx_arena_alloc(&loader->scratch, sizeof(*s->body));
	if (!slot || !s->body) {
		loader->body_count -= slot ? 1 : 0;
		return ptx_no_memory(loader);
	}
	*slot = *body = s->body;
	s->body->number = loader->body_count - 1;
	s->body->symbol = s;
	s->body->function = ptx_arena_alloc(&loader->module->arena, sizeof(*s->body->function));
	if (!s->body->function)
		return ptx_no_memory(loader);
	s->body->function->kernel.is_entry = is_entry;
	s->body->function->kernel.name = ptx_arena_text(&loader->module->arena, t->text, t->length);
	return s->body->function->kernel.name ? 0 : ptx_no_memory(loader);
}

static void signature_reset(struct ptx_body *body)
{
	body->function->kernel.param_count = 0;
	body->function->kernel.param_bytes = 0;
	body->function->kernel.max_threads = PTX_THREADS_MAX;
	body->function->local_bytes = 0;
	body->param_room = 0;
	body->has_result = false;
}

/* The result comes before the name of the function, so it is parsed twice. */
static int parse_signature(struct ptx_loader *loader, bool is_entry, struct ptx_body **body)
{
	struct ptx_body head = { 0 };
	struct ptx_function result = { 0 };
	const struct ptx_token *t = ptx_tok(loader);
	struct ptx_lexer before = loader->lex;
	bool has_result = ptx_accept(loader, "(");
	int rc = 0;

	head.function = &result;
	if (has_result)
		rc = parse_params(loader, &head, false, true);
	if (rc || (rc = function_get(loader, is_entry, body)))
		return rc;
	free((*body)->params);
	(*body)->params = NULL;
	signature_reset(*body);
	(*body)->function->kernel.line = t->line;
	ptx_lex_next(&loader->lex);
	ptx_scope_enter(loader);
	if (has_result) {
		struct ptx_lexer after = loader->lex;

		loader->lex = before;
		ptx_lex_next(&loader->lex);
		rc = parse_params(loader, *body, true, true);
		loader->lex = after;
	}
	if (!rc && ptx_accept(loader, "("))
		rc = parse_params(loader, *body, true, false);
	return rc ? rc : parse_tuning(loader, &(*body)->function->kernel);
}

static int parse_function(struct ptx_loader *loader, bool is_entry, const struct linkage *link)
{
	struct ptx_body *body = NULL;
	int rc = parse_signature(loader, is_entry, &body);

	if (rc)
		return rc;
	if (ptx_accept(loader, ";")) {
		body->is_extern |= link->is_extern;
		return ptx_scope_leave(loader, 0, 0);
	}
	body->is_defined = true;
	loader->body = body;
	rc = ptx_expect(loader, "{");
	if (!rc)
		rc = ptx_parse_body(loader);
	if (!rc)
		rc = ptx_scope_leave(loader, 0, 0);
	loader->body = NULL;
	return rc;
}

static int parse_item(struct ptx_loader *loader, const struct linkage *link)
{
	const struct ptx_token *t = ptx_tok(loader);

	if (ptx_accept(loader, ".entry"))
		return parse_function(loader, true, link);
	if (ptx_accept(loader, ".func"))
		return parse_function(loader, false, link);
	if (ptx_accept(loader, ".global"))
		return ptx_parse_declaration(loader, PTX_SPACE_GLOBAL, link->is_extern, link->is_visible);
	if (ptx_accept(loader, ".const"))
		return ptx_parse_declaration(loader, PTX_SPACE_CONST, link->is_extern, link->is_visible);
	if (ptx_accept(loader, ".shared"))
		return ptx_parse_declaration(loader, PTX_SPACE_SHARED, link->is_extern, link->is_visible);
	if (ptx_accept(loader, ".pragma")) {
		ptx_lex_next(&loader->lex);
		return ptx_expect(loader, ";");
	}
	return ptx_refuse(loader, t->line, "%.*s is not supported here", PTX_MASKED(t->length), t->text);
}

static int parse_line(struct ptx_loader *loader)
{
	struct linkage link = { 0 };

	if (ptx_accept(loader, ".version"))
		return parse_version(loader);
	if (ptx_accept(loader, ".target"))
		return parse_target(loader);
	if (ptx_accept(loader, ".address_size"))
		return parse_address_size(loader);
	if (ptx_accept(loader, ".section"))
		return skip_section(loader);
	if (ptx_token_is(ptx_tok(loader), ".file") || ptx_token_is(ptx_tok(loader), ".loc")) {
		skip_text_line(loader);
		return 0;
	}
	for (;;) {
		if (ptx_accept(loader, ".visible") || ptx_accept(loader, ".weak") ||
		    ptx_accept(loader, ".common"))
			link.is_visible = true;
		else if (ptx_accept(loader, ".extern"))
			link.is_extern = true;
		else
			return parse_item(loader, &link);
	}
}

int ptx_parse_module(struct ptx_loader *loader)
{
	int rc = 0;

	if (!ptx_token_is(ptx_tok(loader), ".version"))
		return ptx_refuse(loader, ptx_tok(loader)->line, "not PTX: it must start with .version");
	while (!rc && ptx_tok(loader)->kind != PTX_TOKEN_END)
		rc = parse_line(loader);
	if (!rc && !loader->module->target)
		rc = ptx_refuse(loader, ptx_tok(loader)->line, "no .target");
	return rc;
}

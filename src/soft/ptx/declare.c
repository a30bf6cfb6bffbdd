/* Declarations: variables of every space, registers, and initial data. */
#include <string.h>

#include "soft/ptx/load.h"

static int parse_size(struct ptx_loader *loader, uint64_t max, uint64_t *value)
{
	const struct ptx_token *t = ptx_tok(loader);

	if (t->kind != PTX_TOKEN_INT || t->bits > max)
		return ptx_refuse(loader, t->line, "a number up to %llu expected", (unsigned long long)max);
	*value = t->bits;
	ptx_lex_next(&loader->lex);
	return 0;
}

int ptx_parse_variable_type(struct ptx_loader *loader, struct ptx_variable_type *type)
{
	const struct ptx_token *t = ptx_tok(loader);
	uint64_t align = 0;
	int rc;

	*type = (struct ptx_variable_type){ .vector = 1 };
	if (ptx_accept(loader, ".attribute")) {
		for (; t->kind != PTX_TOKEN_END && !ptx_token_is(t, ")"); ptx_lex_next(&loader->lex))
			type->is_managed |= ptx_token_is(t, ".managed");
		rc = ptx_expect(loader, ")");
		if (rc)
			return rc;
	}
	for (;;) {
		if (ptx_accept(loader, ".align")) {
			rc = parse_size(loader, 4096, &align);
			if (rc)
				return rc;
			if (!align || (align & (align - 1)))
				return ptx_refuse(loader, t->line, "an alignment is a power of two");
		} else if (ptx_accept(loader, ".v2")) {
			type->vector = 2;
		} else if (ptx_accept(loader, ".v4")) {
			type->vector = 4;
		} else if (!ptx_accept(loader, ".ptr")) {
			break;
		}
	}
	if (t->kind == PTX_TOKEN_DOT)
		type->type = ptx_type_parse(t->text + 1, t->length - 1);
	if (!type->type)
		return ptx_refuse(loader, t->line, "a type expected, not '%.*s'", PTX_MASKED(t->length),
				  t->text);
	ptx_lex_next(&loader->lex);
	/* .param .u64 .ptr .global .align 4 name: the loader ignores what a pointer points to */
	if (ptx_accept(loader, ".ptr")) {
		while (t->kind == PTX_TOKEN_DOT) {
			bool is_align = ptx_token_is(t, ".align");

			ptx_lex_next(&loader->lex);
			if (is_align)
				ptx_lex_next(&loader->lex);
		}
	}
	type->align = align ? (uint32_t)align : ptx_type_bytes(type->type) * type->vector;
	return 0;
}

int ptx_parse_array(struct ptx_loader *loader, uint64_t *count, bool *is_open)
{
	uint64_t n = 0;
	int rc;

	*is_open = false;
	*count = 1;
	while (ptx_accept(loader, "[")) {
		if (ptx_accept(loader, "]")) {
			*is_open = true;
			continue;
		}
		rc = parse_size(loader, PTX_VARIABLE_MAX_BYTES, &n);
		if (!rc)
			rc = ptx_expect(loader, "]");
		if (rc)
			return rc;
		if (n && *count > PTX_VARIABLE_MAX_BYTES / n)
			return ptx_refuse(loader, ptx_tok(loader)->line,
					  "an array of more than 2^40 elements");
		*count *= n;
	}
	return 0;
}

/* The offset of `bytes` more in a frame with *used bytes; an error above max. */
static int place(struct ptx_loader *loader, uint32_t *used, uint64_t bytes, uint32_t align, uint32_t max,
		 const char *what, uint32_t *at)
{
	uint64_t from = (*used + (uint64_t)align - 1) & ~((uint64_t)align - 1);

	if (bytes > max || from + bytes > max)
		return ptx_refuse(loader, ptx_tok(loader)->line, "more than %u bytes of %s memory", max,
				  what);
	*at = (uint32_t)from;
	*used = (uint32_t)(from + bytes);
	return 0;
}

static int declare_variable(struct ptx_loader *loader, struct ptx_symbol *s, bool is_extern, bool is_visible,
			    enum ptx_type type, bool is_open)
{
	struct ptx_module *m = loader->module;
	struct ptx_variable *v;

	v = ptx_list_add((void **)&m->variables, &m->variable_count, &loader->variable_room, sizeof(*v));
	if (!v)
		return ptx_no_memory(loader);
	s->variable = m->variable_count - 1;
	v->name = ptx_arena_text(&m->arena, s->name, s->length);
	v->bytes = s->bytes;
	v->align = s->align;
	v->is_const = s->space == PTX_SPACE_CONST;
	v->is_extern = is_extern;
	v->is_visible = is_visible;
	if (!v->name)
		return ptx_no_memory(loader);
	if (!ptx_accept(loader, "="))
		return 0;
	if (is_open)
		v->bytes = 0;
	return ptx_parse_initialiser(loader, v, type);
}

static int declare_one(struct ptx_loader *loader, struct ptx_symbol *s, bool is_extern, bool is_visible,
		       bool is_open)
{
	struct ptx_function *f = loader->body ? loader->body->function : NULL;

	switch (s->space) {
	case PTX_SPACE_SHARED:
		s->is_module = !f;
		s->is_dynamic = is_extern || is_open;
		if (s->is_dynamic)
			return 0;
		return place(loader, f ? &f->shared_bytes : &loader->shared_bytes, s->bytes, s->align,
			     PTX_SHARED_MAX_BYTES, "shared", &s->offset);
	case PTX_SPACE_LOCAL:
	case PTX_SPACE_PARAM:
		if (!f)
			return ptx_refuse(loader, ptx_tok(loader)->line,
					  "local memory outside of a function");
		s->space = PTX_SPACE_LOCAL;
		return place(loader, &f->local_bytes, s->bytes, s->align, PTX_LOCAL_MAX_BYTES, "local",
			     &s->offset);
	default:
		return declare_variable(loader, s, is_extern, is_visible, s->type, is_open);
	}
}

static int declare_register(struct ptx_loader *loader, struct ptx_symbol *s)
{
	uint64_t count = 0;
	int rc;

	if (!ptx_accept(loader, "<"))
		return ptx_reg_new(loader, s->type, &s->reg);
	s->kind = PTX_SYMBOL_RANGE;
	rc = parse_size(loader, PTX_RANGE_MAX, &count);
	s->count = (uint32_t)count;
	return rc ? rc : ptx_expect(loader, ">");
}

/* Parse the name, the size and the initial data after the type. */
static int declare_name(struct ptx_loader *loader, enum ptx_space space, const struct ptx_variable_type *type,
			bool is_extern, bool is_visible)
{
	const struct ptx_token *t = ptx_tok(loader);
	struct ptx_symbol *s;
	uint64_t count;
	bool is_open;
	int rc;

	if (t->kind != PTX_TOKEN_WORD)
		return ptx_refuse(loader, t->line, "a name expected, not '%.*s'", PTX_MASKED(t->length),
				  t->text);
	s = ptx_symbol_find_here(loader, t->text, t->length);
	if (s && s->kind == PTX_SYMBOL_MEMORY && !loader->body && s->space == space &&
	    space != PTX_SPACE_SHARED && loader->module->variables[s->variable].is_extern)
		s->hash = ~s->hash; /* declared extern before: this one replaces it */
	rc = ptx_symbol_add(loader, t->text, t->length, PTX_SYMBOL_REG, &s);
	if (rc)
		return rc;
	s->type = type->type;
	ptx_lex_next(&loader->lex);
	if (space == PTX_SPACE_REG)
		return declare_register(loader, s);
	rc = ptx_parse_array(loader, &count, &is_open);
	if (rc)
		return rc;
	s->kind = PTX_SYMBOL_MEMORY;
	s->space = space;
	s->align = type->align ? type->align : 1;
	s->bytes = count * ptx_type_bytes(type->type) * type->vector;
	if (is_open)
		s->bytes = 0;
	if (s->bytes > PTX_VARIABLE_MAX_BYTES)
		return ptx_refuse(loader, t->line, "a variable of more than 2^40 bytes");
	rc = declare_one(loader, s, is_extern, is_visible, is_open);
	if (!rc && type->is_managed && space == PTX_SPACE_GLOBAL)
		loader->module->variables[loader->module->variable_count - 1].is_managed = true;
	return rc;
}

int ptx_parse_declaration(struct ptx_loader *loader, enum ptx_space space, bool is_extern, bool is_visible)
{
	struct ptx_variable_type type;
	int rc = ptx_parse_variable_type(loader, &type);

	if (rc)
		return rc;
	if (space == PTX_SPACE_REG && ptx_type_bytes(type.type) == 1)
		return ptx_refuse(loader, ptx_tok(loader)->line, "registers of 8 bits");
	if (space == PTX_SPACE_REG && type.vector > 1)
		return ptx_refuse(loader, ptx_tok(loader)->line, "registers of vectors");
	if (space != PTX_SPACE_REG && type.type == PTX_TYPE_PRED)
		return ptx_refuse(loader, ptx_tok(loader)->line, "a predicate in memory");
	do {
		rc = declare_name(loader, space, &type, is_extern, is_visible);
		if (rc)
			return rc;
	} while (ptx_accept(loader, ","));
	return ptx_expect(loader, ";");
}

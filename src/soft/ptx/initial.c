/* Initial data of variables: numbers, and addresses of other variables as relocations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "soft/ptx/load.h"

struct initial {
	uint8_t *data;
	uint32_t bytes;
	uint32_t room;
	struct ptx_reloc *relocs;
	uint32_t reloc_count;
	uint32_t reloc_room;
};

static uint64_t value_as(const struct ptx_token *t, enum ptx_type type, bool is_negative)
{
	uint64_t bits = t->bits;
	uint32_t narrow = (uint32_t)bits;
	double wide;
	float f;

	if (t->kind == PTX_TOKEN_INT)
		return is_negative ? 0 - bits : bits;
	if (t->kind == PTX_TOKEN_F32) {
		memcpy(&f, &narrow, sizeof(f));
		wide = f;
	} else {
		memcpy(&wide, &bits, sizeof(wide));
		f = (float)wide;
	}
	if (is_negative) {
		wide = -wide;
		f = -f;
	}
	if (ptx_type_bytes(type) == 8) {
		memcpy(&bits, &wide, sizeof(bits));
	} else {
		memcpy(&narrow, &f, sizeof(narrow));
		bits = narrow;
	}
	return bits;
}

static int add_bytes(struct ptx_loader *loader, struct initial *in, uint64_t value, uint32_t bytes)
{
	uint32_t room = in->room ? in->room * 2 : 64;
	uint8_t *grown;

	if (!in->data || in->bytes + bytes > in->room) {
		grown = room > in->room && room >= in->bytes + bytes ? realloc(in->data, room) : NULL;
		if (!grown)
			return ptx_no_memory(loader);
		in->data = grown;
		in->room = room;
	}
	memcpy(in->data + in->bytes, &value, bytes);
	in->bytes += bytes;
	return 0;
}

/* name, name+4, generic(name), generic(name)+4; the address of a function needs no relocation: *variable
 * stays ~0 */
static int parse_address(struct ptx_loader *loader, uint32_t *variable, int64_t *addend)
{
	const struct ptx_token *t = ptx_tok(loader);
	bool is_generic = ptx_accept(loader, "generic");
	struct ptx_symbol *s;
	bool is_minus;
	int rc = is_generic ? ptx_expect(loader, "(") : 0;

	if (rc)
		return rc;
	s = t->kind == PTX_TOKEN_WORD ? ptx_symbol_find(loader, t->text, t->length) : NULL;
	*variable = ~0u;
	if (s && s->kind == PTX_SYMBOL_FUNCTION && !s->body->function->kernel.is_entry) {
		*addend = (int64_t)ptx_function_address(loader, s->body);
		ptx_lex_next(&loader->lex);
		return is_generic ? ptx_expect(loader, ")") : 0;
	}
	if (!s || s->kind != PTX_SYMBOL_MEMORY ||
	    (s->space != PTX_SPACE_GLOBAL && s->space != PTX_SPACE_CONST))
		return ptx_refuse(loader, t->line, "initial data may not hold '%.*s'", PTX_MASKED(t->length),
				  t->text);
	*variable = s->variable;
	*addend = 0;
	ptx_lex_next(&loader->lex);
	if (is_generic && (rc = ptx_expect(loader, ")")))
		return rc;
	is_minus = ptx_token_is(t, "-");
	if (!is_minus && !ptx_token_is(t, "+"))
		return 0;
	ptx_lex_next(&loader->lex);
	if (t->kind != PTX_TOKEN_INT || t->bits > PTX_VARIABLE_MAX_BYTES)
		return ptx_refuse(loader, t->line, "an offset expected");
	*addend = is_minus ? -(int64_t)t->bits : (int64_t)t->bits;
	ptx_lex_next(&loader->lex);
	return 0;
}

static int add_address(struct ptx_loader *loader, struct initial *in, uint32_t bytes, uint32_t shift)
{
	struct ptx_reloc *r;
	uint32_t variable = 0;
	int64_t addend = 0;
	int rc = parse_address(loader, &variable, &addend);

	if (rc)
		return rc;
	if (variable == ~0u)
		return add_bytes(loader, in, (uint64_t)addend >> shift, bytes);
	r = ptx_list_add((void **)&in->relocs, &in->reloc_count, &in->reloc_room, sizeof(*r));
	if (!r)
		return ptx_no_memory(loader);
	*r = (struct ptx_reloc){ .offset = in->bytes,
				 .variable = variable,
				 .bytes = (uint16_t)bytes,
				 .shift = (uint16_t)shift,
				 .addend = addend };
	return add_bytes(loader, in, 0, bytes);
}

/* 0xFF00(name): one byte of an address. */
static int add_masked(struct ptx_loader *loader, struct initial *in, uint64_t mask, uint32_t bytes)
{
	uint32_t shift = 0;
	int rc;

	while (shift < 56 && mask && !(mask & 0xff)) {
		mask >>= 8;
		shift += 8;
	}
	if (mask != 0xff || bytes != 1)
		return ptx_refuse(loader, ptx_tok(loader)->line, "initial data with this mask");
	rc = ptx_expect(loader, "(");
	if (!rc)
		rc = add_address(loader, in, bytes, shift);
	return rc ? rc : ptx_expect(loader, ")");
}

static int parse_value(struct ptx_loader *loader, struct initial *in, enum ptx_type type)
{
	const struct ptx_token *t = ptx_tok(loader);
	bool is_negative = ptx_accept(loader, "-");
	uint32_t bytes = ptx_type_bytes(type);
	uint64_t value;

	if (t->kind == PTX_TOKEN_WORD && !is_negative)
		return add_address(loader, in, bytes, 0);
	if (t->kind != PTX_TOKEN_INT && t->kind != PTX_TOKEN_F32 && t->kind != PTX_TOKEN_F64)
		return ptx_refuse(loader, t->line, "initial data may not hold '%.*s'", PTX_MASKED(t->length),
				  t->text);
	value = value_as(t, type, is_negative);
	ptx_lex_next(&loader->lex);
	if (ptx_token_is(t, "("))
		return add_masked(loader, in, value, bytes);
	return add_bytes(loader, in, value, bytes);
}

static int parse_values(struct ptx_loader *loader, struct initial *in, enum ptx_type type)
{
	int rc;

	if (!ptx_accept(loader, "{"))
		return parse_value(loader, in, type);
	if (ptx_accept(loader, "}"))
		return 0;
	do {
		if (ptx_token_is(ptx_tok(loader), "{"))
			return ptx_refuse(loader, ptx_tok(loader)->line, "nested initial data");
		rc = parse_value(loader, in, type);
		if (rc)
			return rc;
	} while (ptx_accept(loader, ","));
	return ptx_expect(loader, "}");
}

/* Copy the data to the module. */
static int keep(struct ptx_loader *loader, struct ptx_variable *variable, const struct initial *in)
{
	struct ptx_arena *arena = &loader->module->arena;
	uint8_t *data = ptx_arena_alloc(arena, in->bytes);
	struct ptx_reloc *relocs = ptx_arena_alloc(arena, in->reloc_count * sizeof(*relocs));

	if (!data || !relocs)
		return ptx_no_memory(loader);
	if (in->bytes)
		memcpy(data, in->data, in->bytes);
	if (in->reloc_count)
		memcpy(relocs, in->relocs, in->reloc_count * sizeof(*relocs));
	variable->data = data;
	variable->data_bytes = in->bytes;
	variable->relocs = relocs;
	variable->reloc_count = in->reloc_count;
	return 0;
}

int ptx_parse_initialiser(struct ptx_loader *loader, struct ptx_variable *variable, enum ptx_type type)
{
	struct initial in = { 0 };
	int rc = parse_values(loader, &in, type);

	if (!rc && !variable->bytes)
		variable->bytes = in.bytes;
	if (!rc && in.bytes > variable->bytes)
		rc = ptx_refuse(loader, ptx_tok(loader)->line, "more initial data than %s has room for",
				variable->name);
	if (!rc)
		rc = keep(loader, variable, &in);
	free(in.data);
	free(in.relocs);
	return rc;
}

/* Names and scopes of the text being loaded. */
#include "soft/ptx/load.h"

#include <errno.h>
#include <string.h>

#define TABLE_SLOTS 16384u
#define REGISTERS_MAX (1u << 20)

static uint32_t hash_of(const char *name, size_t length)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < length; i++)
		h = (h ^ (uint8_t)name[i]) * 16777619u;
	return h;
}

struct ptx_symbol *ptx_symbol_find(struct ptx_loader *loader, const char *name, size_t length)
{
	uint32_t hash = hash_of(name, length);
	struct ptx_symbol *s = loader->table ? loader->table[hash % TABLE_SLOTS] : NULL;

	while (s && (s->hash != hash || s->length != length || memcmp(s->name, name, length)))
		s = s->next;
	return s;
}

struct ptx_symbol *ptx_symbol_find_here(struct ptx_loader *loader, const char *name, size_t length)
{
	struct ptx_symbol *s = ptx_symbol_find(loader, name, length);

	return s && s->scope == loader->scope ? s : NULL;
}

int ptx_symbol_add(struct ptx_loader *loader, const char *name, size_t length, enum ptx_symbol_kind kind,
		   struct ptx_symbol **symbol)
{
	struct ptx_symbol *s;

	if (!loader->table)
		loader->table = ptx_arena_alloc(&loader->scratch, TABLE_SLOTS * sizeof(struct ptx_symbol *));
	s = ptx_arena_alloc(&loader->scratch, sizeof(*s));
	if (!loader->table || !s)
		return ptx_no_memory(loader);
	if (ptx_symbol_find_here(loader, name, length))
		return ptx_refuse(loader, ptx_tok(loader)->line, "%.*s is declared twice", (int)length, name);
	s->name = name;
	s->length = length;
	s->hash = hash_of(name, length);
	s->scope = loader->scope;
	s->kind = kind;
	s->next = loader->table[s->hash % TABLE_SLOTS];
	loader->table[s->hash % TABLE_SLOTS] = s;
	s->older = loader->newest;
	loader->newest = s;
	*symbol = s;
	return 0;
}

void ptx_scope_enter(struct ptx_loader *loader)
{
	loader->scope = ++loader->scope_count;
}

/* Resolve references to labels of this scope; pass the others to the enclosing scope. */
static int resolve_labels(struct ptx_loader *loader, uint32_t outer, uint32_t first)
{
	struct ptx_body *body = loader->body;

	for (uint32_t i = first; i < body->label_count; i++) {
		struct ptx_label_ref *ref = &body->labels[i];
		struct ptx_symbol *s;

		if (ref->is_done || ref->scope != loader->scope)
			continue;
		s = ptx_symbol_find_here(loader, ref->name, ref->length);
		if (!s && outer) {
			ref->scope = outer;
			continue;
		}
		if (!s || s->kind != PTX_SYMBOL_LABEL)
			return ptx_refuse(loader, ref->line, "no label %.*s", (int)ref->length, ref->name);
		ref->is_done = true;
		if (ref->op != ~0u)
			body->ops[ref->op].offset = s->at;
		else
			loader->module->targets[ref->entry] = s->at;
	}
	return 0;
}

int ptx_scope_leave(struct ptx_loader *loader, uint32_t outer, uint32_t first)
{
	int rc = loader->body ? resolve_labels(loader, outer, first) : 0;

	while (loader->newest && loader->newest->scope == loader->scope) {
		struct ptx_symbol *s = loader->newest;

		/* newest first: it is the head of its chain */
		loader->table[s->hash % TABLE_SLOTS] = s->next;
		loader->newest = s->older;
	}
	loader->scope = outer;
	return rc;
}

int ptx_reg_new(struct ptx_loader *loader, enum ptx_type type, uint32_t *reg)
{
	struct ptx_body *body = loader->body;
	struct ptx_reg *r;

	if (body->reg_count >= REGISTERS_MAX)
		return ptx_refuse(loader, ptx_tok(loader)->line, "more than %u registers", REGISTERS_MAX);
	r = ptx_list_add((void **)&body->regs, &body->reg_count, &body->reg_room, sizeof(*r));
	if (!r)
		return ptx_no_memory(loader);
	r->width = type == PTX_TYPE_PRED ? 0 : (uint8_t)ptx_type_bytes(type);
	*reg = body->reg_count - 1;
	return 0;
}

/* A register of a range gets its number at its first use, so that gaps in a compiler's numbering cost
 * nothing. */
static int range_member(struct ptx_loader *loader, struct ptx_symbol *range, uint32_t number, uint32_t *reg)
{
	uint32_t **page;
	int rc;

	if (!range->pages)
		range->pages = ptx_arena_alloc(&loader->scratch, PTX_RANGE_PAGES * sizeof(*range->pages));
	if (!range->pages)
		return ptx_no_memory(loader);
	page = &range->pages[number / PTX_RANGE_PAGES];
	if (!*page)
		*page = ptx_arena_alloc(&loader->scratch, PTX_RANGE_PAGES * sizeof(**page));
	if (!*page)
		return ptx_no_memory(loader);
	*reg = (*page)[number % PTX_RANGE_PAGES] - 1;
	if (*reg != ~0u)
		return 0;
	rc = ptx_reg_new(loader, range->type, reg);
	if (!rc)
		(*page)[number % PTX_RANGE_PAGES] = *reg + 1;
	return rc;
}

int ptx_reg_find(struct ptx_loader *loader, const char *name, size_t length, uint32_t *reg)
{
	struct ptx_symbol *s = ptx_symbol_find(loader, name, length);
	uint64_t number = 0, scale = 1;
	size_t stem = length;

	if (s && s->kind == PTX_SYMBOL_REG) {
		*reg = s->reg;
		return 0;
	}
	while (!s && stem > 1 && length - stem < 9 && name[stem - 1] >= '0' && name[stem - 1] <= '9') {
		number += scale * (uint64_t)(name[stem - 1] - '0');
		scale *= 10;
		stem--;
	}
	s = stem < length ? ptx_symbol_find(loader, name, stem) : NULL;
	if (!s || s->kind != PTX_SYMBOL_RANGE || number >= s->count)
		return -ENOENT;
	return range_member(loader, s, (uint32_t)number, reg);
}

/* Function bodies: scopes, labels, declarations, statements. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "soft/ptx/load.h"

#define DEPTH_MAX 64

static int add_label_ref(struct ptx_loader *loader, uint32_t op, uint32_t entry)
{
	const struct ptx_token *t = ptx_tok(loader);
	struct ptx_body *body = loader->body;
	struct ptx_label_ref *ref;

	if (t->kind != PTX_TOKEN_WORD)
		return ptx_refuse(loader, t->line, "a label expected");
	ref = ptx_list_add((void **)&body->labels, &body->label_count, &body->label_room, sizeof(*ref));
	if (!ref)
		return ptx_no_memory(loader);
	*ref = (struct ptx_label_ref){ .name = t->text,
				       .length = t->length,
				       .line = t->line,
				       .scope = loader->scope,
				       .op = op,
				       .entry = entry };
	ptx_lex_next(&loader->lex);
	return 0;
}

/* name: .branchtargets a, b, c; */
static int parse_targets(struct ptx_loader *loader, struct ptx_symbol *s)
{
	struct ptx_module *m = loader->module;
	uint32_t *entry;
	int rc;

	s->kind = PTX_SYMBOL_TARGETS;
	s->at = loader->target_count;
	do {
		entry = ptx_list_add((void **)&m->targets, &loader->target_count, &loader->target_room,
				     sizeof(*entry));
		if (!entry)
			return ptx_no_memory(loader);
		s->count++;
		rc = add_label_ref(loader, ~0u, loader->target_count - 1);
		if (rc)
			return rc;
	} while (ptx_accept(loader, ","));
	return ptx_expect(loader, ";");
}

static int parse_label(struct ptx_loader *loader, const struct ptx_token *name)
{
	struct ptx_symbol *s;
	int rc = ptx_symbol_add(loader, name->text, name->length, PTX_SYMBOL_LABEL, &s);

	if (rc)
		return rc;
	s->at = loader->body->op_count;
	if (ptx_accept(loader, ".branchtargets"))
		return parse_targets(loader, s);
	if (ptx_accept(loader, ".callprototype"))
		return ptx_parse_prototype(loader, s);
	if (ptx_token_is(ptx_tok(loader), ".calltargets"))
		return ptx_refuse(loader, name->line, "call through a pointer by %.*s is not supported",
				  PTX_MASKED(ptx_tok(loader)->length), ptx_tok(loader)->text);
	return 0;
}

static int parse_guard(struct ptx_loader *loader, struct ptx_statement *st)
{
	const struct ptx_token *t = ptx_tok(loader);
	uint32_t reg;

	st->guard = PTX_NO_OPERAND;
	if (!ptx_accept(loader, "@"))
		return 0;
	st->guard_xor = ptx_accept(loader, "!") ? ~0u : 0;
	if (t->kind != PTX_TOKEN_WORD || ptx_reg_find(loader, t->text, t->length, &reg) ||
	    loader->body->regs[reg].width)
		return ptx_refuse(loader, t->line, "a predicate expected after @");
	st->guard = reg;
	ptx_lex_next(&loader->lex);
	return 0;
}

static int parse_opcode(struct ptx_loader *loader, struct ptx_statement *st)
{
	const struct ptx_token *t = ptx_tok(loader);
	size_t length;

	if (t->kind != PTX_TOKEN_WORD)
		return ptx_refuse(loader, t->line, "an instruction expected, not '%.*s'",
				  PTX_MASKED(t->length), t->text);
	st->line = t->line;
	snprintf(st->name, sizeof(st->name), "%.*s", (int)(t->length < 23 ? t->length : 23), t->text);
	length = (size_t)snprintf(st->full, sizeof(st->full), "%s", st->name);
	ptx_lex_next(&loader->lex);
	while (t->kind == PTX_TOKEN_DOT) {
		if (length < sizeof(st->full))
			length += (size_t)snprintf(st->full + length, sizeof(st->full) - length, "%.*s",
						   PTX_MASKED(t->length), t->text);
		if (st->suffix_count == PTX_SUFFIXES_MAX || t->length < 2 ||
		    t->length - 1 >= sizeof(st->suffixes[0]))
			return ptx_refuse(loader, t->line, "instruction %s is not supported", st->full);
		memcpy(st->suffixes[st->suffix_count], t->text + 1, t->length - 1);
		st->suffixes[st->suffix_count++][t->length - 1] = '\0';
		ptx_lex_next(&loader->lex);
	}
	return 0;
}

static int parse_branch(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_op *op;
	int rc;

	if (st->suffix_count > 1 || (st->suffix_count && strcmp(st->suffixes[0], "uni")))
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	op = ptx_emit(loader, st, PTX_BRA, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	rc = add_label_ref(loader, loader->body->op_count - 1, 0);
	return rc ? rc : ptx_expect(loader, ";");
}

static int parse_statement(struct ptx_loader *loader)
{
	struct ptx_statement st = { 0 };
	int rc = parse_guard(loader, &st);

	if (rc || (rc = parse_opcode(loader, &st)))
		return rc;
	if (!strcmp(st.name, "bra"))
		return parse_branch(loader, &st);
	if (!strcmp(st.name, "call"))
		return ptx_parse_call(loader, &st);
	if (!ptx_token_is(ptx_tok(loader), ";")) {
		do {
			if (st.arg_count == PTX_ARGS_MAX)
				return ptx_refuse(loader, st.line, "%s: too many operands", st.full);
			rc = ptx_parse_operand(loader, &st.args[st.arg_count++]);
			if (rc)
				return rc;
		} while (ptx_accept(loader, ","));
	}
	rc = ptx_expect(loader, ";");
	return rc ? rc : ptx_lower_statement(loader, &st);
}

static int parse_directive(struct ptx_loader *loader)
{
	const struct ptx_token *t = ptx_tok(loader);
	uint32_t line = t->line;

	if (ptx_accept(loader, ".reg"))
		return ptx_parse_declaration(loader, PTX_SPACE_REG, false, false);
	if (ptx_accept(loader, ".local"))
		return ptx_parse_declaration(loader, PTX_SPACE_LOCAL, false, false);
	if (ptx_accept(loader, ".param"))
		return ptx_parse_declaration(loader, PTX_SPACE_PARAM, false, false);
	if (ptx_accept(loader, ".shared"))
		return ptx_parse_declaration(loader, PTX_SPACE_SHARED, false, false);
	if (ptx_accept(loader, ".global"))
		return ptx_parse_declaration(loader, PTX_SPACE_GLOBAL, false, false);
	if (ptx_accept(loader, ".const"))
		return ptx_parse_declaration(loader, PTX_SPACE_CONST, false, false);
	if (ptx_accept(loader, ".pragma")) {
		ptx_lex_next(&loader->lex);
		return ptx_expect(loader, ";");
	}
	if (!ptx_token_is(t, ".loc") && !ptx_token_is(t, ".file"))
		return ptx_refuse(loader, t->line, "%.*s is not supported here", PTX_MASKED(t->length),
				  t->text);
	while (t->kind != PTX_TOKEN_END && t->line == line)
		ptx_lex_next(&loader->lex);
	return 0;
}

static int parse_part(struct ptx_loader *loader)
{
	struct ptx_lexer before = loader->lex;

	if (ptx_tok(loader)->kind == PTX_TOKEN_DOT)
		return parse_directive(loader);
	if (ptx_tok(loader)->kind == PTX_TOKEN_WORD) {
		struct ptx_token name = before.token;

		ptx_lex_next(&loader->lex);
		if (ptx_accept(loader, ":"))
			return parse_label(loader, &name);
		loader->lex = before;
	}
	return parse_statement(loader);
}

static int parse_scope(struct ptx_loader *loader, unsigned depth)
{
	uint32_t outer = loader->scope, first;
	int rc = 0;

	if (depth > DEPTH_MAX)
		return ptx_refuse(loader, ptx_tok(loader)->line, "blocks nested deeper than %d", DEPTH_MAX);
	while (!rc && !ptx_accept(loader, "}")) {
		if (ptx_tok(loader)->kind == PTX_TOKEN_END)
			return ptx_expect(loader, "}");
		if (ptx_accept(loader, ";"))
			continue;
		if (!ptx_accept(loader, "{")) {
			rc = parse_part(loader);
			continue;
		}
		first = loader->body->label_count;
		ptx_scope_enter(loader);
		rc = parse_scope(loader, depth + 1);
		if (!rc)
			rc = ptx_scope_leave(loader, outer, first);
	}
	return rc;
}

/* A body that runs past its last instruction returns. */
int ptx_parse_body(struct ptx_loader *loader)
{
	struct ptx_statement end = { .guard = PTX_NO_OPERAND };
	bool is_entry = loader->body->function->kernel.is_entry;
	struct ptx_op *op;
	int rc;

	rc = ptx_reg_new(loader, PTX_TYPE_B32, &loader->body->return_reg);
	if (!rc)
		rc = parse_scope(loader, 0);
	if (rc)
		return rc;
	end.line = ptx_tok(loader)->line;
	op = ptx_emit(loader, &end, is_entry ? PTX_EXIT : PTX_RET, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->is_free = 1;
	return 0;
}

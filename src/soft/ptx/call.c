/* Calls: arguments are copied from the caller's frame into the callee's, the result back when it returns. */
#include <errno.h>
#include <string.h>

#include "soft/ptx/load.h"

struct call {
	struct ptx_body *callee;
	const struct ptx_symbol *args[64];
	uint32_t arg_count;
	const struct ptx_symbol *result;
};

static int parse_passed(struct ptx_loader *loader, struct ptx_statement *st, const struct ptx_symbol **symbol)
{
	const struct ptx_token *t = ptx_tok(loader);
	const struct ptx_symbol *s = t->kind == PTX_TOKEN_WORD ? ptx_symbol_find(loader, t->text, t->length)
							       : NULL;

	if (!s || s->kind != PTX_SYMBOL_MEMORY || s->space != PTX_SPACE_LOCAL)
		return ptx_refuse(loader, st->line, "call: '%.*s' is not a .param variable",
				  PTX_MASKED(t->length), t->text);
	*symbol = s;
	ptx_lex_next(&loader->lex);
	return 0;
}

static int parse_callee(struct ptx_loader *loader, struct ptx_statement *st, struct call *call)
{
	const struct ptx_token *t = ptx_tok(loader);
	const struct ptx_symbol *s = t->kind == PTX_TOKEN_WORD ? ptx_symbol_find(loader, t->text, t->length)
							       : NULL;

	if (s && s->kind != PTX_SYMBOL_FUNCTION)
		return ptx_refuse(loader, st->line, "call through a pointer (%.*s) is not supported",
				  PTX_MASKED(t->length), t->text);
	if (!s || s->body->function->kernel.is_entry)
		return ptx_refuse(loader, st->line, "call: no function %.*s", PTX_MASKED(t->length), t->text);
	call->callee = s->body;
	ptx_lex_next(&loader->lex);
	return 0;
}

static int parse_call_text(struct ptx_loader *loader, struct ptx_statement *st, struct call *call)
{
	int rc = 0;

	if (ptx_accept(loader, "(")) {
		rc = parse_passed(loader, st, &call->result);
		if (!rc)
			rc = ptx_expect(loader, ")");
		if (!rc)
			rc = ptx_expect(loader, ",");
	}
	if (!rc)
		rc = parse_callee(loader, st, call);
	if (rc || !ptx_accept(loader, ","))
		return rc ? rc : ptx_expect(loader, ";");
	rc = ptx_expect(loader, "(");
	if (rc || ptx_accept(loader, ")"))
		return rc ? rc : ptx_expect(loader, ";");
	do {
		if (call->arg_count == sizeof(call->args) / sizeof(call->args[0]))
			return ptx_refuse(loader, st->line, "call: more than 64 arguments");
		rc = parse_passed(loader, st, &call->args[call->arg_count++]);
		if (rc)
			return rc;
	} while (ptx_accept(loader, ","));
	rc = ptx_expect(loader, ")");
	return rc ? rc : ptx_expect(loader, ";");
}

static int check_call(struct ptx_loader *loader, const struct ptx_statement *st, const struct call *call)
{
	const struct ptx_body *callee = call->callee;
	const struct ptx_kernel *k = &callee->function->kernel;

	if (call->arg_count != k->param_count || (call->result && !callee->has_result))
		return ptx_refuse(loader, st->line, "call: %s takes %u arguments", k->name, k->param_count);
	for (uint32_t i = 0; i < call->arg_count; i++)
		if (call->args[i]->bytes != callee->params[i].bytes)
			return ptx_refuse(loader, st->line, "call: argument %u of %s has another size", i + 1,
					  k->name);
	if (call->result && call->result->bytes != callee->result.bytes)
		return ptx_refuse(loader, st->line, "call: the result of %s has another size", k->name);
	return 0;
}

static int add_copy(struct ptx_loader *loader, const struct ptx_statement *st, struct ptx_body *callee,
		    uint32_t index, uint32_t offset, uint32_t bytes)
{
	struct ptx_module *m = loader->module;
	struct ptx_copy *copy;
	struct ptx_copy_ref *ref;

	copy = ptx_list_add((void **)&m->copies, &loader->copy_count, &loader->copy_room, sizeof(*copy));
	ref = ptx_list_add((void **)&loader->copy_refs, &loader->copy_ref_count, &loader->copy_ref_room,
			   sizeof(*ref));
	if (!copy || !ref)
		return ptx_no_memory(loader);
	*copy = (struct ptx_copy){ .to = index == ~0u ? offset : 0,
				   .from = index == ~0u ? 0 : offset,
				   .bytes = bytes };
	*ref = (struct ptx_copy_ref){ .copy = loader->copy_count - 1,
				      .index = index,
				      .caller = loader->body,
				      .callee = callee,
				      .line = st->line };
	return 0;
}

static int end_copies(struct ptx_loader *loader)
{
	return ptx_list_add((void **)&loader->module->copies, &loader->copy_count, &loader->copy_room,
			    sizeof(struct ptx_copy))
		       ? 0
		       : ptx_no_memory(loader);
}

/* A function of the device runtime: the op itself reads the arguments where the caller put them. */
static int emit_extern(struct ptx_loader *loader, struct ptx_statement *st, const struct call *call)
{
	const char *name = call->callee->function->kernel.name;
	bool is_print = !strcmp(name, "vprintf"), is_assert = !strcmp(name, "__assertfail");
	uint32_t first = loader->copy_count;
	struct ptx_op *op;
	int rc = 0;

	if (!(is_print && call->arg_count == 2) && !(is_assert && call->arg_count == 5))
		return ptx_refuse(loader, st->line, "call of %s, an external function, is not supported",
				  name);
	for (uint32_t i = 0; i < call->arg_count && !rc; i++) {
		if (call->args[i]->bytes != (is_assert && i == 2 ? 4 : 8))
			return ptx_refuse(loader, st->line, "call: argument %u of %s has another size", i + 1,
					  name);
		rc = add_copy(loader, st, NULL, i, call->args[i]->offset, (uint32_t)call->args[i]->bytes);
	}
	if (!rc && call->result) {
		if (call->result->bytes != 4)
			return ptx_refuse(loader, st->line, "call: the result of %s has another size", name);
		rc = add_copy(loader, st, NULL, ~0u, call->result->offset, 4);
	}
	if (!rc)
		rc = end_copies(loader);
	if (rc)
		return rc;
	op = ptx_emit(loader, st, is_print ? PTX_VPRINTF : PTX_ASSERTFAIL, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->offset = first;
	return 0;
}

static int emit_copy(struct ptx_loader *loader, struct ptx_statement *st, uint32_t first)
{
	struct ptx_op *op = ptx_emit(loader, st, PTX_COPY, PTX_TYPE_NONE);
	int rc = end_copies(loader);

	if (!op)
		return ptx_no_memory(loader);
	op->offset = first;
	op->is_free = 1;
	return rc;
}

/* Arguments over, the call, the result back. A guard holds for all three: predicates are the caller's. */
static int emit_call(struct ptx_loader *loader, struct ptx_statement *st, const struct call *call)
{
	uint32_t first = loader->copy_count;
	struct ptx_call *noted;
	struct ptx_op *op;
	int rc = 0;

	for (uint32_t i = 0; i < call->arg_count && !rc; i++)
		rc = add_copy(loader, st, call->callee, i, call->args[i]->offset,
			      (uint32_t)call->args[i]->bytes);
	if (!rc && call->arg_count)
		rc = emit_copy(loader, st, first);
	if (rc)
		return rc;
	op = ptx_emit(loader, st, PTX_CALL, PTX_TYPE_NONE);
	noted = ptx_list_add((void **)&loader->body->calls, &loader->body->call_count,
			     &loader->body->call_room, sizeof(*noted));
	if (!op || !noted)
		return ptx_no_memory(loader);
	*noted = (struct ptx_call){ .callee = call->callee,
				    .op = loader->body->op_count - 1,
				    .line = st->line };
	if (!call->result)
		return 0;
	first = loader->copy_count;
	rc = add_copy(loader, st, call->callee, ~0u, call->result->offset, (uint32_t)call->result->bytes);
	return rc ? rc : emit_copy(loader, st, first);
}

int ptx_parse_call(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct call call = { 0 };
	int rc;

	if (st->suffix_count > 1 || (st->suffix_count && strcmp(st->suffixes[0], "uni")))
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	rc = parse_call_text(loader, st, &call);
	if (!rc)
		rc = check_call(loader, st, &call);
	if (rc)
		return rc;
	return call.callee->is_extern ? emit_extern(loader, st, &call) : emit_call(loader, st, &call);
}

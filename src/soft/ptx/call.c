/* Calls: arguments are copied from the caller's frame to the callee's, and the result back on return. stack.c
 * adapts the calls of functions with frames on the stack, once all functions are known. */
#include <errno.h>
#include <string.h>

#include "soft/ptx/load.h"

struct call {
	struct ptx_body *callee; /* of a call through a pointer: its prototype */
	uint32_t pointer;	 /* the register, or PTX_NO_OPERAND */
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

	call->pointer = PTX_NO_OPERAND;
	if (t->kind == PTX_TOKEN_WORD && !ptx_reg_find(loader, t->text, t->length, &call->pointer)) {
		if (loader->body->regs[call->pointer].width != 8)
			return ptx_refuse(loader, st->line, "call: %.*s is not of 64 bits",
					  PTX_MASKED(t->length), t->text);
		ptx_lex_next(&loader->lex);
		return 0;
	}
	if (!s || s->kind != PTX_SYMBOL_FUNCTION || s->body->function->kernel.is_entry)
		return ptx_refuse(loader, st->line, "call: no function %.*s", PTX_MASKED(t->length), t->text);
	call->callee = s->body;
	ptx_lex_next(&loader->lex);
	return 0;
}

/* Parse ", prototype" of a call through a pointer, and the end. */
static int parse_end(struct ptx_loader *loader, struct ptx_statement *st, struct call *call)
{
	const struct ptx_token *t = ptx_tok(loader);
	const struct ptx_symbol *s;

	if (call->pointer != PTX_NO_OPERAND && ptx_accept(loader, ",")) {
		s = t->kind == PTX_TOKEN_WORD ? ptx_symbol_find(loader, t->text, t->length) : NULL;
		if (!s || s->kind != PTX_SYMBOL_PROTOTYPE)
			return ptx_refuse(loader, st->line, "call: '%.*s' is not a .callprototype",
					  PTX_MASKED(t->length), t->text);
		call->callee = s->body;
		ptx_lex_next(&loader->lex);
	}
	if (!call->callee)
		return ptx_refuse(loader, st->line, "call through a pointer without a .callprototype");
	return ptx_expect(loader, ";");
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
		return rc ? rc : parse_end(loader, st, call);
	if (call->pointer != PTX_NO_OPERAND && ptx_tok(loader)->kind == PTX_TOKEN_WORD) {
		const struct ptx_symbol *s =
			ptx_symbol_find(loader, ptx_tok(loader)->text, ptx_tok(loader)->length);

		if (s && s->kind == PTX_SYMBOL_PROTOTYPE) { /* no arguments: call %rd, prototype; */
			call->callee = s->body;
			ptx_lex_next(&loader->lex);
			return ptx_expect(loader, ";");
		}
	}
	rc = ptx_expect(loader, "(");
	if (rc || ptx_accept(loader, ")"))
		return rc ? rc : parse_end(loader, st, call);
	do {
		if (call->arg_count == sizeof(call->args) / sizeof(call->args[0]))
			return ptx_refuse(loader, st->line, "call: more than 64 arguments");
		rc = parse_passed(loader, st, &call->args[call->arg_count++]);
		if (rc)
			return rc;
	} while (ptx_accept(loader, ","));
	rc = ptx_expect(loader, ")");
	return rc ? rc : parse_end(loader, st, call);
}

static int check_call(struct ptx_loader *loader, const struct ptx_statement *st, const struct call *call)
{
	const struct ptx_body *callee = call->callee;
	const struct ptx_kernel *k = &callee->function->kernel;
	const char *name = k->name ? k->name : "the prototype";

	if (call->arg_count != k->param_count || (call->result && !callee->has_result))
		return ptx_refuse(loader, st->line, "call: %s takes %u arguments", name, k->param_count);
	for (uint32_t i = 0; i < call->arg_count; i++)
		if (call->args[i]->bytes != callee->params[i].bytes)
			return ptx_refuse(loader, st->line, "call: argument %u of %s has another size", i + 1,
					  name);
	if (call->result && call->result->bytes != callee->result.bytes)
		return ptx_refuse(loader, st->line, "call: the result of %s has another size", name);
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

/* The functions of the device runtime, with the sizes of their arguments. */
static const struct extern_function {
	const char *name;
	unsigned family;
	uint32_t arg_count;
	uint32_t bytes[5];
} extern_functions[] = {
	{ "vprintf", PTX_VPRINTF, 2, { 8, 8 } },
	{ "__assertfail", PTX_ASSERTFAIL, 5, { 8, 8, 4, 8, 8 } },
	{ "free", PTX_FREE, 1, { 8 } },
	{ "cudaGraphSetConditional", PTX_SET_CONDITION, 2, { 8, 4 } },
};

static const struct extern_function *find_extern(const char *name, uint32_t arg_count)
{
	for (size_t i = 0; i < sizeof(extern_functions) / sizeof(extern_functions[0]); i++)
		if (!strcmp(name, extern_functions[i].name) && arg_count == extern_functions[i].arg_count)
			return &extern_functions[i];
	return NULL;
}

/* The op reads the arguments from the caller's frame. */
static int emit_extern(struct ptx_loader *loader, struct ptx_statement *st, const struct call *call)
{
	const char *name = call->callee->function->kernel.name;
	const struct extern_function *function = find_extern(name, call->arg_count);
	uint32_t first = loader->copy_count;
	struct ptx_op *op;
	int rc = 0;

	if (!function)
		return ptx_refuse(loader, st->line, "call of %s, an external function, is not supported",
				  name);
	for (uint32_t i = 0; i < call->arg_count && !rc; i++) {
		if (call->args[i]->bytes != function->bytes[i])
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
	op = ptx_emit(loader, st, function->family, PTX_TYPE_NONE);
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

static int add_site(struct ptx_loader *loader, const struct call *call, uint32_t first,
		    struct ptx_site **site)
{
	struct ptx_module *m = loader->module;
	bool is_direct = call->pointer == PTX_NO_OPERAND;

	*site = ptx_list_add((void **)&m->sites, &m->site_count, &loader->site_room, sizeof(**site));
	if (!*site)
		return ptx_no_memory(loader);
	**site = (struct ptx_site){ .caller = loader->body->function,
				    .callee = is_direct ? call->callee->function : NULL,
				    .args = first,
				    .arg_count = call->arg_count };
	if (call->result) {
		(*site)->result_to = call->result->offset;
		(*site)->result_bytes = (uint32_t)call->result->bytes;
	}
	return 0;
}

static int note_call(struct ptx_loader *loader, const struct ptx_statement *st, struct ptx_body *callee)
{
	struct ptx_body *body = loader->body;
	struct ptx_call *noted =
		ptx_list_add((void **)&body->calls, &body->call_count, &body->call_room, sizeof(*noted));

	if (!noted)
		return ptx_no_memory(loader);
	*noted = (struct ptx_call){ .callee = callee,
				    .op = body->op_count - 1,
				    .line = st->line,
				    .site = loader->module->site_count - 1 };
	return 0;
}

/* A single op, because each lane finds the function at run time. */
static int emit_pointer_call(struct ptx_loader *loader, struct ptx_statement *st, const struct call *call)
{
	uint32_t first = loader->copy_count;
	struct ptx_site *site;
	struct ptx_op *op;
	int rc = 0;

	for (uint32_t i = 0; i < call->arg_count && !rc; i++)
		rc = add_copy(loader, st, NULL, i, call->args[i]->offset, (uint32_t)call->args[i]->bytes);
	if (!rc)
		rc = add_site(loader, call, first, &site);
	if (rc)
		return rc;
	op = ptx_emit(loader, st, PTX_CALLX, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->r[0] = call->pointer;
	op->count = 1;
	op->offset = loader->module->site_count - 1;
	return note_call(loader, st, NULL);
}

/* Copy the arguments, call, copy the result. A guard applies to all three: predicates belong to the
 * caller. */
static int emit_call(struct ptx_loader *loader, struct ptx_statement *st, const struct call *call)
{
	uint32_t first = loader->copy_count;
	struct ptx_site *site;
	struct ptx_op *op;
	int rc = 0;

	for (uint32_t i = 0; i < call->arg_count && !rc; i++)
		rc = add_copy(loader, st, call->callee, i, call->args[i]->offset,
			      (uint32_t)call->args[i]->bytes);
	if (!rc && call->arg_count)
		rc = emit_copy(loader, st, first);
	if (!rc)
		rc = add_site(loader, call, first, &site);
	if (rc)
		return rc;
	op = ptx_emit(loader, st, PTX_CALL, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	rc = note_call(loader, st, call->callee);
	if (rc || !call->result)
		return rc;
	first = loader->copy_count;
	rc = add_copy(loader, st, call->callee, ~0u, call->result->offset, (uint32_t)call->result->bytes);
	if (!rc)
		rc = emit_copy(loader, st, first);
	if (!rc)
		loader->body->ops[loader->body->op_count - 1].mode = 1; /* to the caller's frame */
	return rc;
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
	if (call.pointer != PTX_NO_OPERAND)
		return emit_pointer_call(loader, st, &call);
	return call.callee->is_extern ? emit_extern(loader, st, &call) : emit_call(loader, st, &call);
}

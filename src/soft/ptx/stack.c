/* Functions with local frames on the stack: adapt their accesses to local memory, and calls of them. This
 * precedes register allocation, because each needs one more register: the address of its frame. */
#include <string.h>

#include "soft/ptx/load.h"

/* Make an address in the frame relative to the frame register. */
static int rebase(struct ptx_loader *loader, struct ptx_body *body, const struct ptx_frame_ref *ref)
{
	struct ptx_op *op = ref->op == ~0u ? NULL : &body->ops[ref->op];

	if (ref->space != PTX_SPACE_LOCAL || !op)
		return 0;
	if (ref->constant == ~0u) {
		op->r[op->family == PTX_ATOM ? 1 : op->vector] = body->frame_reg;
		op->address_width = 8;
		return 0;
	}
	if (ref->bytes != 8)
		return ptx_refuse(loader, op->line,
				  "a 32-bit address of local memory in a function that recurses or is called "
				  "through a pointer");
	op->family = PTX_ADD;
	op->r[2] = body->frame_reg;
	op->count = 3;
	return 0;
}

static void make_free(struct ptx_op *op)
{
	op->family = PTX_NOP;
	op->offset = 0;
}

/* The op before a call copies its arguments, the op after it the result: the stacked call does all three. */
static void stack_call(struct ptx_loader *loader, struct ptx_body *body, const struct ptx_call *call)
{
	const struct ptx_site *site = &loader->module->sites[call->site];
	struct ptx_op *op = &body->ops[call->op];

	if (site->arg_count)
		make_free(op - 1);
	if (site->result_bytes)
		make_free(op + 1);
	op->family = PTX_CALLX;
	op->offset = call->site;
}

int ptx_stack_prepare(struct ptx_loader *loader, struct ptx_body *body)
{
	bool is_stacked = body->function->is_stacked;
	int rc = 0;

	loader->body = body;
	if (is_stacked)
		rc = ptx_reg_new(loader, PTX_TYPE_U64, &body->frame_reg);
	loader->body = NULL;
	for (uint32_t i = 0; i < body->ref_count && is_stacked && !rc; i++)
		rc = rebase(loader, body, &body->refs[i]);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < body->call_count; i++) {
		const struct ptx_call *call = &body->calls[i];

		if (call->callee && call->op != ~0u && call->callee->function->is_stacked)
			stack_call(loader, body, call);
	}
	for (uint32_t i = 0; i < body->op_count && is_stacked; i++) {
		struct ptx_op *op = &body->ops[i];

		if (op->family == PTX_COPY || op->family == PTX_VPRINTF || op->family == PTX_ASSERTFAIL ||
		    op->family == PTX_FREE || op->family == PTX_SET_CONDITION)
			op->r[0] = body->frame_reg;
		if (op->family == PTX_RET) {
			op->family = PTX_RETX;
			op->aux = body->number;
		}
	}
	return 0;
}

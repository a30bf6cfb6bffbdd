/* Functions into one module: frames, code, addresses, handlers. */
#include <stdlib.h>
#include <string.h>

#include "soft/ptx/load.h"

#define CALL_DEPTH_MAX 128u
#define FILE_MAX_BYTES (8u << 20) /* a warp's registers */

enum { UNSEEN, OPEN, DONE };

/* Callees first: the lanes that are deepest in calls then have the lowest pc, and run first. */
static int visit(struct ptx_loader *loader, struct ptx_body *body, struct ptx_body **order, uint32_t *count,
		 uint32_t depth)
{
	if (depth > CALL_DEPTH_MAX)
		return ptx_refuse(loader, body->function->kernel.line, "calls nested deeper than %u",
				  CALL_DEPTH_MAX);
	body->visit = OPEN;
	for (uint32_t i = 0; i < body->call_count; i++) {
		struct ptx_body *callee = body->calls[i].callee;
		int rc;

		if (!callee->is_defined)
			return ptx_refuse(loader, body->calls[i].line, "call of %s, which is not defined",
					  callee->function->kernel.name);
		if (callee->visit == OPEN)
			return ptx_refuse(loader, body->calls[i].line,
					  "recursion (call of %s) is not supported",
					  callee->function->kernel.name);
		if (callee->visit == UNSEEN && (rc = visit(loader, callee, order, count, depth + 1)))
			return rc;
	}
	body->visit = DONE;
	order[(*count)++] = body;
	return 0;
}

static uint32_t max32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t round_up(uint32_t value, uint32_t to)
{
	return (value + to - 1) & ~(to - 1);
}

static void note_module_shared(struct ptx_body *body)
{
	for (uint32_t i = 0; i < body->ref_count; i++)
		if (body->refs[i].space == PTX_SPACE_SHARED && body->refs[i].is_module)
			body->uses_module_shared = true;
}

/* order is callees first, so backwards every caller's frame is known before its callees'. */
static int lay_frames(struct ptx_loader *loader, struct ptx_body **order, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		order[i]->function->shared_base = round_up(loader->shared_bytes, 256);
	for (uint32_t i = count; i-- > 0;) {
		struct ptx_function *f = order[i]->function;
		uint32_t regs = f->regs_base + f->regs_bytes;
		uint32_t local = round_up(f->local_base + f->local_bytes, 16);
		uint32_t shared = round_up(f->shared_base + f->shared_bytes, 256);

		if (regs > FILE_MAX_BYTES || local > PTX_LOCAL_MAX_BYTES || shared > PTX_SHARED_MAX_BYTES)
			return ptx_refuse(loader, f->kernel.line, "%s: too many registers or too much memory",
					  f->kernel.name);
		for (uint32_t k = 0; k < order[i]->call_count; k++) {
			struct ptx_function *callee = order[i]->calls[k].callee->function;

			callee->regs_base = max32(callee->regs_base, regs);
			callee->local_base = max32(callee->local_base, local);
			if (f->shared_bytes)
				callee->shared_base = max32(callee->shared_base, shared);
			else
				callee->shared_base = max32(callee->shared_base, f->shared_base);
		}
	}
	return 0;
}

static void sum_frames(struct ptx_loader *loader, struct ptx_body **order, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct ptx_body *body = order[i];
		struct ptx_function *f = body->function;

		note_module_shared(body);
		f->regs_total = f->regs_base + f->regs_bytes;
		f->local_total = round_up(f->local_base + f->local_bytes, 16);
		f->shared_total = f->shared_bytes ? f->shared_base + f->shared_bytes : 0;
		for (uint32_t k = 0; k < body->call_count; k++) {
			struct ptx_body *callee = body->calls[k].callee;

			f->regs_total = max32(f->regs_total, callee->function->regs_total);
			f->local_total = max32(f->local_total, callee->function->local_total);
			f->shared_total = max32(f->shared_total, callee->function->shared_total);
			f->kernel.register_count =
				max32(f->kernel.register_count, callee->function->kernel.register_count);
			body->uses_module_shared |= callee->uses_module_shared;
		}
		if (body->uses_module_shared)
			f->shared_total = max32(f->shared_total, loader->shared_bytes);
		f->kernel.shared_bytes = f->shared_total;
		f->kernel.local_bytes = f->local_total;
		f->kernel.register_bytes = f->regs_total;
	}
}

static void place_operand(const struct ptx_body *body, uint32_t *r)
{
	if (*r != PTX_NO_OPERAND && !(*r & PTX_CONST_BIT))
		*r = body->regs[*r].place + body->function->regs_base;
}

static void place_ops(struct ptx_loader *loader, struct ptx_body *body)
{
	const struct ptx_function *f = body->function;

	for (uint32_t i = 0; i < body->op_count; i++) {
		struct ptx_op *op = &body->ops[i];

		place_operand(body, &op->guard);
		for (unsigned k = 0; k < PTX_OPERANDS; k++)
			place_operand(body, &op->r[k]);
		if (op->family == PTX_BRA)
			op->offset += f->entry;
		if (op->family == PTX_RET)
			op->r[0] = f->return_at;
		op->run = ptx_handler_find(op->family, op->type);
	}
	for (uint32_t i = 0; i < body->label_count; i++)
		if (body->labels[i].op == ~0u)
			loader->module->targets[body->labels[i].entry] += f->entry;
	for (uint32_t i = 0; i < body->call_count; i++) {
		struct ptx_op *op = &body->ops[body->calls[i].op];

		op->offset = body->calls[i].callee->function->entry;
		op->r[0] = body->calls[i].callee->function->return_at;
	}
}

static void place_addresses(struct ptx_loader *loader, struct ptx_body *body)
{
	for (uint32_t i = 0; i < body->ref_count; i++) {
		const struct ptx_frame_ref *ref = &body->refs[i];
		uint64_t base = ref->space == PTX_SPACE_LOCAL ? body->function->local_base
				: ref->is_module	      ? 0
							      : body->function->shared_base;
		uint8_t *at;
		uint64_t value = 0;

		if (ref->constant == ~0u) {
			body->ops[ref->op].offset += (int64_t)base;
			continue;
		}
		at = loader->module->constants + ref->constant;
		memcpy(&value, at, ref->bytes);
		value += base;
		for (uint32_t lane = 0; lane < PTX_LANES; lane++)
			memcpy(at + (size_t)lane * ref->bytes, &value, ref->bytes);
	}
}

static int place_copies(struct ptx_loader *loader)
{
	for (uint32_t i = 0; i < loader->copy_ref_count; i++) {
		const struct ptx_copy_ref *ref = &loader->copy_refs[i];
		struct ptx_copy *copy = &loader->module->copies[ref->copy];
		const struct ptx_param *p = NULL;
		bool is_result = ref->index == ~0u;

		if (ref->callee && !ref->callee->is_defined)
			continue; /* in code that cannot be reached */
		if (ref->callee && !is_result && ref->index < ref->callee->function->kernel.param_count)
			p = &ref->callee->params[ref->index];
		if (ref->callee && is_result && ref->callee->has_result)
			p = &ref->callee->result;
		if (ref->callee && (!p || p->bytes != copy->bytes))
			return ptx_refuse(loader, ref->line, "call: %s was declared otherwise",
					  ref->callee->function->kernel.name);
		*(is_result ? &copy->to : &copy->from) += ref->caller->function->local_base;
		if (p)
			*(is_result ? &copy->from : &copy->to) = p->offset +
								 ref->callee->function->local_base;
	}
	return 0;
}

static int join_code(struct ptx_loader *loader, struct ptx_body **order, uint32_t count)
{
	struct ptx_module *m = loader->module;
	size_t bytes = (m->constant_bytes + 127) & ~(size_t)63;
	uint8_t *aligned = aligned_alloc(64, bytes);

	m->code = calloc(m->code_count ? m->code_count : 1, sizeof(*m->code));
	m->functions = calloc(loader->body_count ? loader->body_count : 1, sizeof(struct ptx_function *));
	if (!m->code || !m->functions || !aligned) {
		free(aligned);
		return ptx_no_memory(loader);
	}
	for (uint32_t i = 0; i < count; i++)
		memcpy(m->code + order[i]->function->entry, order[i]->ops,
		       order[i]->op_count * sizeof(*m->code));
	memset(aligned, 0, bytes);
	if (m->constant_bytes)
		memcpy(aligned, m->constants, m->constant_bytes);
	free(m->constants);
	m->constants = aligned;
	return 0;
}

static int finish_kernels(struct ptx_loader *loader)
{
	struct ptx_module *m = loader->module;

	for (uint32_t i = 0; i < loader->body_count; i++) {
		struct ptx_body *body = loader->bodies[i];
		struct ptx_kernel *k = &body->function->kernel;
		struct ptx_param *params;

		if (!body->is_defined)
			continue;
		params = ptx_arena_alloc(&m->arena, k->param_count * sizeof(*params));
		if (!params)
			return ptx_no_memory(loader);
		if (k->param_count)
			memcpy(params, body->params, k->param_count * sizeof(*params));
		k->params = params;
		m->functions[m->function_count++] = body->function;
	}
	return 0;
}

static int link_ordered(struct ptx_loader *loader, struct ptx_body **order, uint32_t count)
{
	struct ptx_module *m = loader->module;
	int rc = lay_frames(loader, order, count);

	if (rc)
		return rc;
	sum_frames(loader, order, count);
	for (uint32_t i = 0; i < count; i++) {
		struct ptx_function *f = order[i]->function;

		f->entry = m->code_count;
		m->code_count += order[i]->op_count;
		f->return_at = f->regs_base + order[i]->regs[order[i]->return_reg].place;
	}
	for (uint32_t i = 0; i < count; i++) {
		place_ops(loader, order[i]);
		place_addresses(loader, order[i]);
	}
	rc = place_copies(loader);
	if (!rc)
		rc = join_code(loader, order, count);
	return rc ? rc : finish_kernels(loader);
}

int ptx_link(struct ptx_loader *loader)
{
	struct ptx_body **order =
		calloc(loader->body_count ? loader->body_count : 1, sizeof(struct ptx_body *));
	uint32_t count = 0;
	int rc = order ? 0 : ptx_no_memory(loader);

	for (uint32_t i = 0; i < loader->body_count && !rc; i++) {
		if (!loader->bodies[i]->is_defined)
			continue;
		rc = ptx_flow_order(loader, loader->bodies[i]);
		if (!rc)
			rc = ptx_allocate(loader, loader->bodies[i]);
	}
	for (uint32_t i = 0; i < loader->body_count && !rc; i++)
		if (loader->bodies[i]->is_defined && loader->bodies[i]->visit == UNSEEN)
			rc = visit(loader, loader->bodies[i], order, &count, 0);
	if (!rc)
		rc = link_ordered(loader, order, count);
	free(order);
	return rc;
}

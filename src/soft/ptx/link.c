/* Link the functions into one module: frames, code, addresses, handlers. */
#include <stdlib.h>
#include <string.h>

#include "soft/ptx/load.h"

#define FILE_MAX_BYTES (8u << 20) /* the registers of a warp */

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

/* Frames on the stack have no fixed place. */
static uint32_t fixed_local(const struct ptx_function *f)
{
	return f->is_stacked ? 0 : f->local_bytes;
}

static uint32_t fixed_base(const struct ptx_function *f)
{
	return f->is_stacked ? 0 : f->local_base;
}

/* The start of the component that ends at order[end - 1]. */
static uint32_t component_start(struct ptx_body **order, uint32_t end)
{
	uint32_t start = end - 1;

	while (start && order[start - 1]->component == order[end - 1]->component)
		start--;
	return start;
}

/* Lay out the functions of a component one after the other; callees outside the component come after all of
 * them. */
static int lay_component(struct ptx_loader *loader, struct ptx_body **members, uint32_t count)
{
	struct ptx_function end = { 0 };

	for (uint32_t i = 0; i < count; i++) {
		end.regs_base = max32(end.regs_base, members[i]->function->regs_base);
		end.local_base = max32(end.local_base, members[i]->function->local_base);
		end.shared_base = max32(end.shared_base, members[i]->function->shared_base);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct ptx_function *f = members[i]->function;

		f->regs_base = end.regs_base;
		f->local_base = end.local_base;
		f->shared_base = end.shared_base;
		end.regs_base += f->regs_bytes;
		end.local_base = round_up(end.local_base + fixed_local(f), 16);
		if (f->shared_bytes)
			end.shared_base = round_up(end.shared_base + f->shared_bytes, 256);
		if (end.regs_base > FILE_MAX_BYTES || end.local_base > PTX_LOCAL_MAX_BYTES ||
		    end.shared_base > PTX_SHARED_MAX_BYTES)
			return ptx_refuse(loader, f->kernel.line, "%s: too many registers or too much memory",
					  f->kernel.name);
	}
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < members[i]->call_count; k++) {
			struct ptx_body *callee = members[i]->calls[k].callee;

			if (!callee || callee->component == members[i]->component)
				continue;
			callee->function->regs_base = max32(callee->function->regs_base, end.regs_base);
			callee->function->local_base = max32(callee->function->local_base, end.local_base);
			callee->function->shared_base = max32(callee->function->shared_base, end.shared_base);
		}
	return 0;
}

/* `order` has callees first: backwards, the frame of every caller is known before those of its callees. */
static int lay_frames(struct ptx_loader *loader, struct ptx_body **order, uint32_t count)
{
	int rc = 0;

	for (uint32_t i = 0; i < count; i++)
		order[i]->function->shared_base = round_up(loader->shared_bytes, 256);
	for (uint32_t end = count; end && !rc;) {
		uint32_t start = component_start(order, end);

		rc = lay_component(loader, order + start, end - start);
		end = start;
	}
	return rc;
}

/* The needs of a function, including its callees outside the component. */
static void sum_function(struct ptx_body *body)
{
	struct ptx_function *f = body->function;

	note_module_shared(body);
	f->regs_total = f->regs_base + f->regs_bytes;
	f->local_total = round_up(f->local_base + fixed_local(f), 16);
	f->shared_total = f->shared_bytes ? f->shared_base + f->shared_bytes : 0;
	f->uses_stack = f->is_stacked;
	for (uint32_t k = 0; k < body->call_count; k++) {
		const struct ptx_body *callee = body->calls[k].callee;
		const struct ptx_function *c = callee ? callee->function : NULL;

		if (!c || callee->component == body->component)
			continue;
		f->regs_total = max32(f->regs_total, c->regs_total);
		f->local_total = max32(f->local_total, c->local_total);
		f->shared_total = max32(f->shared_total, c->shared_total);
		f->kernel.register_count = max32(f->kernel.register_count, c->kernel.register_count);
		f->uses_stack |= c->uses_stack;
		body->uses_module_shared |= callee->uses_module_shared;
	}
}

#define REGISTERS_LEAST 16u /* bounds that leave a thread fewer registers are ignored */

/* The register count that a compiler would report; it spills the others to local memory. A thread has at most
 * 255, and few enough that as many blocks as .maxntid and .minnctapersm require fit on an SM. */
static uint32_t registers_told(const struct ptx_kernel *k, uint32_t count)
{
	uint32_t most = PTX_REGISTERS_MAX;

	if (k->is_bounded) {
		uint32_t blocks = k->min_blocks ? k->min_blocks : 1;
		uint64_t warps = (uint64_t)((k->max_threads + PTX_LANES - 1) / PTX_LANES) * blocks;
		uint64_t fit = warps ? PTX_SM_REGISTERS / warps / 256 * 256 / PTX_LANES : most;

		if (fit >= REGISTERS_LEAST && fit < most)
			most = (uint32_t)fit;
	}
	return count < most ? count : most;
}

/* Each function of a component needs the maximum of all of them. */
static void sum_component(struct ptx_loader *loader, struct ptx_body **members, uint32_t count)
{
	struct ptx_function all = { 0 };
	bool uses_module_shared = false;

	for (uint32_t i = 0; i < count; i++) {
		const struct ptx_function *f = members[i]->function;

		sum_function(members[i]);
		all.regs_total = max32(all.regs_total, f->regs_total);
		all.local_total = max32(all.local_total, f->local_total);
		all.shared_total = max32(all.shared_total, f->shared_total);
		all.kernel.register_count = max32(all.kernel.register_count, f->kernel.register_count);
		all.uses_stack |= f->uses_stack;
		uses_module_shared |= members[i]->uses_module_shared;
	}
	if (uses_module_shared)
		all.shared_total = max32(all.shared_total, loader->shared_bytes);
	for (uint32_t i = 0; i < count; i++) {
		struct ptx_function *f = members[i]->function;

		members[i]->uses_module_shared = uses_module_shared;
		f->regs_total = all.regs_total;
		f->local_total = all.local_total;
		f->shared_total = all.shared_total;
		f->uses_stack = f->kernel.uses_stack = all.uses_stack;
		f->kernel.register_count = registers_told(&f->kernel, all.kernel.register_count);
		f->kernel.shared_bytes = f->shared_total;
		f->kernel.local_bytes = f->local_total;
		f->kernel.register_bytes = f->regs_total;
	}
}

static void sum_frames(struct ptx_loader *loader, struct ptx_body **order, uint32_t count)
{
	for (uint32_t start = 0, end; start < count; start = end) {
		for (end = start + 1; end < count && order[end]->component == order[start]->component;)
			end++;
		sum_component(loader, order + start, end - start);
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
		const struct ptx_call *call = &body->calls[i];
		struct ptx_op *op;

		if (call->op == ~0u || !call->callee || call->callee->function->is_stacked)
			continue;
		op = &body->ops[call->op];
		op->offset = call->callee->function->entry;
		op->r[0] = call->callee->function->return_at;
	}
}

static void place_addresses(struct ptx_loader *loader, struct ptx_body *body)
{
	for (uint32_t i = 0; i < body->ref_count; i++) {
		const struct ptx_frame_ref *ref = &body->refs[i];
		uint64_t base = ref->space == PTX_SPACE_LOCAL ? fixed_base(body->function)
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
			continue; /* in unreachable code */
		if (ref->callee && !is_result && ref->index < ref->callee->function->kernel.param_count)
			p = &ref->callee->params[ref->index];
		if (ref->callee && is_result && ref->callee->has_result)
			p = &ref->callee->result;
		if (ref->callee && (!p || p->bytes != copy->bytes))
			return ptx_refuse(loader, ref->line, "call: %s was declared otherwise",
					  ref->callee->function->kernel.name);
		*(is_result ? &copy->to : &copy->from) += fixed_base(ref->caller->function);
		if (p)
			*(is_result ? &copy->from : &copy->to) = p->offset +
								 fixed_base(ref->callee->function);
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
	m->numbered = calloc(loader->body_count ? loader->body_count : 1, sizeof(struct ptx_function *));
	m->numbered_count = loader->body_count;
	if (!m->code || !m->functions || !m->numbered || !aligned) {
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
		if (body->has_result) {
			body->function->result_at = body->result.offset;
			body->function->result_bytes = body->result.bytes;
		}
		m->numbered[body->number] = body->function;
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
		if (f->is_stacked)
			f->frame_at = f->regs_base + order[i]->regs[order[i]->frame_reg].place;
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

	for (uint32_t i = 0; i < loader->body_count && !rc; i++)
		if (loader->bodies[i]->is_defined)
			rc = ptx_flow_order(loader, loader->bodies[i]);
	if (!rc)
		rc = ptx_graph_order(loader, order, &count);
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = ptx_stack_prepare(loader, order[i]);
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = ptx_allocate(loader, order[i]);
	if (!rc)
		rc = link_ordered(loader, order, count);
	free(order);
	return rc;
}

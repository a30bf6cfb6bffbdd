/* Control flow: find the basic blocks, and order them for reconvergence. The interpreter always runs the
 * lanes with the lowest pc. With every loop contiguous and every join after its predecessors, diverged lanes
 * meet again as early as possible. */
#include "soft/ptx/flow.h"

#include <stdlib.h>
#include <string.h>

static bool ends_block(const struct ptx_op *op)
{
	return op->family == PTX_BRA || op->family == PTX_BRX || op->family == PTX_RET ||
	       op->family == PTX_EXIT;
}

static void mark_leaders(const struct ptx_loader *loader, const struct ptx_body *body, uint8_t *leads)
{
	leads[0] = 1;
	for (uint32_t i = 0; i < body->op_count; i++) {
		const struct ptx_op *op = &body->ops[i];

		if (op->family == PTX_BRA)
			leads[op->offset] = 1;
		if (ends_block(op) && i + 1 < body->op_count)
			leads[i + 1] = 1;
	}
	for (uint32_t i = 0; i < body->label_count; i++)
		if (body->labels[i].op == ~0u)
			leads[loader->module->targets[body->labels[i].entry]] = 1;
}

static void link_blocks(const struct ptx_body *body, struct ptx_flow *flow)
{
	for (uint32_t b = 0; b < flow->count; b++) {
		struct ptx_flow_block *block = &flow->blocks[b];
		const struct ptx_op *last = &body->ops[block->end - 1];
		bool is_sure = last->guard == PTX_NO_OPERAND && ends_block(last);

		block->fall = is_sure || b + 1 == flow->count ? ~0u : b + 1;
		block->jump = last->family == PTX_BRA ? flow->block_of[last->offset] : ~0u;
		block->table = last->family == PTX_BRX ? block->end - 1 : ~0u;
	}
}

int ptx_flow_find(struct ptx_loader *loader, const struct ptx_body *body, struct ptx_flow *flow)
{
	uint8_t *leads = calloc(body->op_count, 1);

	*flow = (struct ptx_flow){ .block_of = calloc(body->op_count, sizeof(*flow->block_of)) };
	if (leads && flow->block_of) {
		mark_leaders(loader, body, leads);
		for (uint32_t i = 0; i < body->op_count; i++)
			flow->count += leads[i];
		flow->blocks = calloc(flow->count, sizeof(*flow->blocks));
	}
	if (!flow->blocks) {
		free(leads);
		ptx_flow_free(flow);
		return ptx_no_memory(loader);
	}
	for (uint32_t i = 0, b = 0; i < body->op_count; i++) {
		if (leads[i])
			flow->blocks[b++].first = i;
		flow->blocks[b - 1].end = i + 1;
		flow->block_of[i] = b - 1;
	}
	free(leads);
	link_blocks(body, flow);
	return 0;
}

void ptx_flow_free(struct ptx_flow *flow)
{
	free(flow->blocks);
	free(flow->block_of);
}

uint32_t ptx_flow_next(const struct ptx_loader *loader, const struct ptx_body *body,
		       const struct ptx_flow *flow, uint32_t block, uint32_t index)
{
	const struct ptx_flow_block *b = &flow->blocks[block];

	/* the jump before the fall-through: a reversed depth-first order then keeps the order of the text */
	if (b->jump != ~0u && index-- == 0)
		return b->jump;
	if (b->table != ~0u) {
		const struct ptx_op *op = &body->ops[b->table];

		if (index < op->aux)
			return flow->block_of[loader->module->targets[op->offset + op->aux - 1 - index]];
		index -= op->aux;
	}
	return b->fall != ~0u && index == 0 ? b->fall : ~0u;
}

struct rewrite {
	struct ptx_op *ops;
	uint32_t count;
	uint32_t *op_at;    /* old op -> new, ~0 if dropped */
	uint32_t *block_at; /* old block -> first new op, ~0 if dropped */
};

static void rewrite_blocks(const struct ptx_body *body, const struct ptx_flow *flow, const uint32_t *order,
			   uint32_t count, struct rewrite *out)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct ptx_flow_block *b = &flow->blocks[order[i]];
		uint32_t next = i + 1 < count ? order[i + 1] : ~0u;

		out->block_at[order[i]] = out->count;
		for (uint32_t op = b->first; op < b->end; op++) {
			out->op_at[op] = out->count;
			out->ops[out->count++] = body->ops[op];
		}
		if (b->fall == ~0u || b->fall == next)
			continue;
		out->ops[out->count] = (struct ptx_op){ .family = PTX_BRA,
							.guard = PTX_NO_OPERAND,
							.offset = flow->blocks[b->fall].first,
							.line = body->ops[b->end - 1].line,
							.is_free = 1 };
		for (unsigned k = 0; k < PTX_OPERANDS; k++)
			out->ops[out->count].r[k] = PTX_NO_OPERAND;
		out->count++;
	}
}

static void rewrite_references(struct ptx_loader *loader, struct ptx_body *body, const struct ptx_flow *flow,
			       const struct rewrite *out)
{
	uint32_t *targets = loader->module->targets;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < out->count; i++)
		if (out->ops[i].family == PTX_BRA)
			out->ops[i].offset = out->block_at[flow->block_of[out->ops[i].offset]];
	for (uint32_t i = 0; i < body->label_count; i++) {
		uint32_t entry = body->labels[i].entry;

		if (body->labels[i].op != ~0u)
			continue;
		targets[entry] = out->block_at[flow->block_of[targets[entry]]];
		if (targets[entry] == ~0u) /* of an unused table */
			targets[entry] = 0;
	}
	for (uint32_t i = 0; i < body->ref_count; i++) {
		struct ptx_frame_ref ref = body->refs[i];

		if (ref.op != ~0u)
			ref.op = out->op_at[ref.op];
		if (ref.constant != ~0u || ref.op != ~0u)
			body->refs[kept++] = ref;
	}
	body->ref_count = kept;
	kept = 0;
	for (uint32_t i = 0; i < body->call_count; i++) {
		struct ptx_call call = body->calls[i];

		call.op = out->op_at[call.op];
		if (call.op != ~0u)
			body->calls[kept++] = call;
	}
	body->call_count = kept;
}

int ptx_flow_order(struct ptx_loader *loader, struct ptx_body *body)
{
	struct ptx_flow flow;
	struct rewrite out = { 0 };
	uint32_t *order = NULL, count = 0;
	int rc = ptx_flow_find(loader, body, &flow);

	if (rc)
		return rc;
	order = calloc(flow.count, sizeof(*order));
	out.ops = calloc((size_t)body->op_count + flow.count, sizeof(*out.ops));
	out.op_at = malloc(body->op_count * sizeof(*out.op_at));
	out.block_at = malloc(flow.count * sizeof(*out.block_at));
	if (!order || !out.ops || !out.op_at || !out.block_at)
		rc = ptx_no_memory(loader);
	if (!rc)
		rc = ptx_flow_sort(loader, body, &flow, order, &count);
	if (!rc) {
		memset(out.op_at, 0xff, body->op_count * sizeof(*out.op_at));
		memset(out.block_at, 0xff, flow.count * sizeof(*out.block_at));
		rewrite_blocks(body, &flow, order, count, &out);
		rewrite_references(loader, body, &flow, &out);
		free(body->ops);
		body->ops = out.ops;
		body->op_count = out.count;
		out.ops = NULL;
	}
	free(order);
	free(out.ops);
	free(out.op_at);
	free(out.block_at);
	ptx_flow_free(&flow);
	return rc;
}

/* Lower warp operations and control instructions. */
#include <errno.h>
#include <string.h>

#include "soft/ptx/lowerings.h"

static int mode_of(const struct ptx_statement *st, const char *const words[], int count)
{
	for (int i = 0; i < count; i++)
		if (ptx_has(st, words[i]))
			return i;
	return -1;
}

/* The last operand of a .sync form is the mask of the participating lanes: always op->r[5]. */
static int member_mask(struct ptx_loader *loader, struct ptx_statement *st, uint32_t *mask)
{
	if (!ptx_has(st, "sync")) {
		*mask = PTX_NO_OPERAND;
		return 0;
	}
	if (!st->arg_count ||
	    ptx_source(loader, st, &st->args[st->arg_count - 1], 4, PTX_TYPE_U32, mask, NULL))
		return ptx_bad_operand(loader, st, st->arg_count ? st->arg_count - 1 : 0);
	st->arg_count--;
	return 0;
}

static int emit_together(struct ptx_loader *loader, struct ptx_statement *st, unsigned family,
			 uint32_t writes, const uint32_t r[5], uint32_t mask, int mode)
{
	struct ptx_op *op = ptx_emit(loader, st, family, PTX_TYPE_NONE);

	if (!op)
		return ptx_no_memory(loader);
	op->type2 = (uint8_t)st->types[0];
	op->writes = (uint8_t)writes;
	op->count = 6;
	op->mode = (uint8_t)mode;
	memcpy(op->r, r, 5 * sizeof(*r));
	op->r[5] = mask;
	return 0;
}

/* d|p, a, b, c */
int ptx_lower_shfl(struct ptx_loader *loader, struct ptx_statement *st)
{
	static const char *const modes[] = { "up", "down", "bfly", "idx" };
	uint32_t r[5] = { PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND };
	uint32_t places[PTX_ARGS_MAX], mask;
	uint8_t negated;
	int rc = member_mask(loader, st, &mask), mode = mode_of(st, modes, 4);

	if (rc)
		return rc;
	if (mode < 0)
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	if (st->args[0].second && ptx_target(loader, st, st->args[0].second, 0, &r[1], NULL))
		return ptx_bad_operand(loader, st, 0);
	st->args[0].second = NULL;
	rc = ptx_lower_operands(loader, st, "dsuu", places, &negated);
	if (rc)
		return rc;
	r[0] = places[0];
	r[2] = places[1];
	r[3] = places[2];
	r[4] = places[3];
	return emit_together(loader, st, PTX_SHFL, 2, r, mask, mode);
}

int ptx_lower_vote(struct ptx_loader *loader, struct ptx_statement *st)
{
	static const char *const modes[] = { "all", "any", "uni", "ballot" };
	uint32_t r[5] = { PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND };
	uint32_t places[PTX_ARGS_MAX], mask;
	uint8_t negated;
	int rc = member_mask(loader, st, &mask), mode = mode_of(st, modes, 4);

	if (rc)
		return rc;
	if (mode < 0 || (mode == PTX_VOTE_BALLOT) != (st->types[0] == PTX_TYPE_B32))
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	rc = ptx_lower_operands(loader, st, mode == PTX_VOTE_BALLOT ? "Up" : "Pp", places, &negated);
	if (rc)
		return rc;
	r[0] = places[0];
	r[1] = places[1];
	rc = emit_together(loader, st, PTX_VOTE, 1, r, mask, mode);
	if (!rc)
		loader->body->ops[loader->body->op_count - 1].negated = negated;
	return rc;
}

/* d, a or d|p, a */
int ptx_lower_match(struct ptx_loader *loader, struct ptx_statement *st)
{
	uint32_t r[5] = { PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND };
	uint32_t places[PTX_ARGS_MAX], mask;
	uint8_t negated;
	int rc = member_mask(loader, st, &mask);

	if (rc)
		return rc;
	if (ptx_has(st, "all") == ptx_has(st, "any"))
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	if (st->args[0].second && ptx_target(loader, st, st->args[0].second, 0, &r[1], NULL))
		return ptx_bad_operand(loader, st, 0);
	st->args[0].second = NULL;
	rc = ptx_lower_operands(loader, st, "Us", places, &negated);
	if (rc)
		return rc;
	r[0] = places[0];
	r[2] = places[1];
	return emit_together(loader, st, PTX_MATCH, 2, r, mask, ptx_has(st, "all"));
}

int ptx_lower_redux(struct ptx_loader *loader, struct ptx_statement *st)
{
	static const char *const modes[] = { "add", "min", "max", "and", "or", "xor" };
	uint32_t r[5] = { PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND };
	uint32_t places[PTX_ARGS_MAX], mask;
	uint8_t negated;
	int rc = member_mask(loader, st, &mask), mode = mode_of(st, modes, 6);

	if (rc)
		return rc;
	if (mode < 0)
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	rc = ptx_lower_operands(loader, st, "ds", places, &negated);
	if (rc)
		return rc;
	r[0] = places[0];
	r[1] = places[1];
	return emit_together(loader, st, PTX_REDUX, 1, r, mask, mode);
}

/* elect.sync d|p, mask */
int ptx_lower_elect(struct ptx_loader *loader, struct ptx_statement *st)
{
	uint32_t r[5] = { PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND, PTX_NO_OPERAND };
	uint32_t mask;
	int rc = member_mask(loader, st, &mask);

	if (rc)
		return rc;
	if (st->arg_count != 1 || !st->args[0].second ||
	    ptx_target(loader, st, &st->args[0], 4, &r[0], NULL) ||
	    ptx_target(loader, st, st->args[0].second, 0, &r[1], NULL))
		return ptx_bad_operand(loader, st, 0);
	return emit_together(loader, st, PTX_ELECT, 2, r, mask, 0);
}

/* bar.sync a{, b}; bar.red.op d, a{, b}, [!]c; bar.warp.sync mask */
int ptx_lower_bar(struct ptx_loader *loader, struct ptx_statement *st)
{
	static const char *const modes[] = { "sync", "arrive", "popc", "and", "or" };
	uint32_t places[PTX_ARGS_MAX];
	bool is_red = ptx_has(st, "red");
	int mode = mode_of(st, modes, 5), rc;
	uint8_t negated;
	struct ptx_op *op;
	unsigned at = 0;

	if (mode < 0 || is_red != (mode >= PTX_BAR_POPC))
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	if (mode == PTX_BAR_POPC)
		rc = ptx_lower_operands(loader, st, st->arg_count == 3 ? "Uup" : "Uuup", places, &negated);
	else if (is_red)
		rc = ptx_lower_operands(loader, st, st->arg_count == 3 ? "Pup" : "Puup", places, &negated);
	else
		rc = ptx_lower_operands(loader, st, mode == PTX_BAR_ARRIVE ? "uu" : "u?u", places, &negated);
	if (rc)
		return rc;
	op = ptx_emit(loader, st, PTX_BAR, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->mode = (uint8_t)mode;
	op->aux = !strcmp(st->name, "bar") || ptx_has(st, "aligned");
	op->count = 4;
	op->writes = 1;
	if (is_red)
		op->r[0] = places[at++];
	op->r[1] = places[at++];
	if (at < st->arg_count - (is_red ? 1u : 0u))
		op->r[2] = places[at++];
	if (is_red) {
		op->r[3] = places[at];
		op->negated = negated & (1u << at) ? 8 : 0;
	}
	return 0;
}

/* brx.idx index, table */
int ptx_lower_brx(struct ptx_loader *loader, struct ptx_statement *st)
{
	const struct ptx_symbol *s = NULL;
	struct ptx_op *op;
	uint32_t index;

	if (st->arg_count == 2 && st->args[1].kind == PTX_OPERAND_NAME)
		s = st->args[1].symbol;
	if (!s || s->kind != PTX_SYMBOL_TARGETS ||
	    ptx_source(loader, st, &st->args[0], 4, PTX_TYPE_U32, &index, NULL))
		return ptx_bad_operand(loader, st, 1);
	op = ptx_emit(loader, st, PTX_BRX, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->count = 1;
	op->r[0] = index;
	op->offset = s->at;
	op->aux = s->count;
	return 0;
}

int ptx_lower_ret(struct ptx_loader *loader, struct ptx_statement *st)
{
	bool is_entry = loader->body->function->kernel.is_entry;
	bool is_exit = is_entry || st->row->family == PTX_EXIT;

	if (st->arg_count)
		return ptx_refuse(loader, st->line, "%s takes no operands", st->full);
	return ptx_emit(loader, st, is_exit ? PTX_EXIT : PTX_RET, PTX_TYPE_NONE) ? 0 : ptx_no_memory(loader);
}

/* Parse operands. */
#include <errno.h>
#include <string.h>

#include "soft/ptx/load.h"

static const struct {
	const char *name;
	const char *part;
	enum ptx_sreg sreg;
} sregs[] = {
	{ "%tid", ".x", PTX_SREG_TID_X },
	{ "%tid", ".y", PTX_SREG_TID_Y },
	{ "%tid", ".z", PTX_SREG_TID_Z },
	{ "%tid", ".w", PTX_SREG_ZERO },
	{ "%ntid", ".x", PTX_SREG_NTID_X },
	{ "%ntid", ".y", PTX_SREG_NTID_Y },
	{ "%ntid", ".z", PTX_SREG_NTID_Z },
	{ "%ntid", ".w", PTX_SREG_ONE },
	{ "%ctaid", ".x", PTX_SREG_CTAID_X },
	{ "%ctaid", ".y", PTX_SREG_CTAID_Y },
	{ "%ctaid", ".z", PTX_SREG_CTAID_Z },
	{ "%ctaid", ".w", PTX_SREG_ZERO },
	{ "%nctaid", ".x", PTX_SREG_NCTAID_X },
	{ "%nctaid", ".y", PTX_SREG_NCTAID_Y },
	{ "%nctaid", ".z", PTX_SREG_NCTAID_Z },
	{ "%nctaid", ".w", PTX_SREG_ONE },
	{ "%laneid", NULL, PTX_SREG_LANEID },
	{ "%warpid", NULL, PTX_SREG_WARPID },
	{ "%nwarpid", NULL, PTX_SREG_NWARPID },
	{ "%smid", NULL, PTX_SREG_SMID },
	{ "%nsmid", NULL, PTX_SREG_NSMID },
	{ "%gridid", NULL, PTX_SREG_GRIDID },
	{ "%clock", NULL, PTX_SREG_CLOCK },
	{ "%clock_hi", NULL, PTX_SREG_CLOCK_HI },
	{ "%clock64", NULL, PTX_SREG_CLOCK64 },
	{ "%globaltimer", NULL, PTX_SREG_TIMER },
	{ "%globaltimer_lo", NULL, PTX_SREG_TIMER_LO },
	{ "%globaltimer_hi", NULL, PTX_SREG_TIMER_HI },
	{ "%lanemask_eq", NULL, PTX_SREG_MASK_EQ },
	{ "%lanemask_lt", NULL, PTX_SREG_MASK_LT },
	{ "%lanemask_le", NULL, PTX_SREG_MASK_LE },
	{ "%lanemask_gt", NULL, PTX_SREG_MASK_GT },
	{ "%lanemask_ge", NULL, PTX_SREG_MASK_GE },
	{ "%dynamic_smem_size", NULL, PTX_SREG_DYNAMIC_BYTES },
	{ "%total_smem_size", NULL, PTX_SREG_TOTAL_BYTES },
	{ "%reserved_smem_offset_begin", NULL, PTX_SREG_RESERVED },
	{ "%reserved_smem_offset_end", NULL, PTX_SREG_RESERVED_END },
	{ "%reserved_smem_offset_cap", NULL, PTX_SREG_RESERVED_CAP },
	{ "%reserved_smem_offset_0", NULL, PTX_SREG_RESERVED },
	{ "%reserved_smem_offset_1", NULL, PTX_SREG_RESERVED },
	{ "%envreg0", NULL, PTX_SREG_ZERO },
	{ "%envreg1", NULL, PTX_SREG_WORKSPACE_HI },
	{ "%envreg2", NULL, PTX_SREG_WORKSPACE_LO },
};

static int parse_sreg(struct ptx_loader *loader, const struct ptx_token *name, struct ptx_operand *operand)
{
	const struct ptx_token *t = ptx_tok(loader);
	bool has_part = t->kind == PTX_TOKEN_DOT;

	for (size_t i = 0; i < sizeof(sregs) / sizeof(sregs[0]); i++) {
		if (!ptx_token_is(name, sregs[i].name))
			continue;
		if (sregs[i].part ? !ptx_token_is(t, sregs[i].part) : has_part)
			continue;
		operand->kind = PTX_OPERAND_SREG;
		operand->sreg = sregs[i].sreg;
		loader->module->uses_reserved |= operand->sreg >= PTX_SREG_RESERVED &&
						 operand->sreg <= PTX_SREG_RESERVED_CAP;
		if (sregs[i].part)
			ptx_lex_next(&loader->lex);
		return 0;
	}
	return ptx_refuse(loader, name->line, "register %.*s%.*s is not declared or not supported",
			  PTX_MASKED(name->length), name->text, has_part ? PTX_MASKED(t->length) : 0,
			  t->text);
}

/* + 4, - 4, +-4, or nothing. */
static int parse_offset(struct ptx_loader *loader, int64_t *offset)
{
	const struct ptx_token *t = ptx_tok(loader);
	bool is_minus = false;

	*offset = 0;
	if (!ptx_token_is(t, "+") && !ptx_token_is(t, "-"))
		return 0;
	while (ptx_token_is(t, "+") || ptx_token_is(t, "-")) {
		is_minus ^= ptx_token_is(t, "-");
		ptx_lex_next(&loader->lex);
	}
	if (t->kind != PTX_TOKEN_INT)
		return ptx_refuse(loader, t->line, "an offset expected");
	*offset = (int64_t)(is_minus ? 0 - t->bits : t->bits);
	ptx_lex_next(&loader->lex);
	return 0;
}

static int parse_word(struct ptx_loader *loader, struct ptx_operand *operand)
{
	struct ptx_token name = *ptx_tok(loader);
	int rc;

	ptx_lex_next(&loader->lex);
	operand->name = name.text;
	operand->length = name.length;
	if (ptx_token_is(&name, "_")) {
		operand->kind = PTX_OPERAND_SINK;
		return 0;
	}
	if (ptx_token_is(&name, "WARP_SZ")) {
		operand->kind = PTX_OPERAND_INT;
		operand->bits = PTX_LANES;
		return 0;
	}
	rc = ptx_reg_find(loader, name.text, name.length, &operand->reg);
	if (!rc) {
		operand->kind = PTX_OPERAND_REG;
		return 0;
	}
	if (rc != -ENOENT)
		return rc;
	operand->symbol = ptx_symbol_find(loader, name.text, name.length);
	if (operand->symbol && operand->symbol->kind == PTX_SYMBOL_MEMORY) {
		operand->kind = PTX_OPERAND_SYMBOL;
		return parse_offset(loader, &operand->offset);
	}
	if (name.text[0] == '%')
		return parse_sreg(loader, &name, operand);
	operand->kind = PTX_OPERAND_NAME;
	return 0;
}

static int parse_number(struct ptx_loader *loader, struct ptx_operand *operand, bool is_negative)
{
	const struct ptx_token *t = ptx_tok(loader);

	operand->bits = t->bits;
	if (t->kind == PTX_TOKEN_INT) {
		operand->kind = PTX_OPERAND_INT;
		operand->bits = is_negative ? 0 - t->bits : t->bits;
	} else if (t->kind == PTX_TOKEN_F32) {
		operand->kind = PTX_OPERAND_F32;
		operand->bits ^= is_negative ? 1ull << 31 : 0;
	} else if (t->kind == PTX_TOKEN_F64) {
		operand->kind = PTX_OPERAND_F64;
		operand->bits ^= is_negative ? 1ull << 63 : 0;
	} else {
		return ptx_refuse(loader, t->line, "an operand expected, not '%.*s'", PTX_MASKED(t->length),
				  t->text);
	}
	ptx_lex_next(&loader->lex);
	return 0;
}

static int parse_vector(struct ptx_loader *loader, struct ptx_operand *operand)
{
	int rc;

	operand->kind = PTX_OPERAND_VECTOR;
	operand->elements = ptx_arena_alloc(&loader->scratch, PTX_ELEMENTS_MAX * sizeof(*operand));
	if (!operand->elements)
		return ptx_no_memory(loader);
	do {
		if (operand->element_count == PTX_ELEMENTS_MAX)
			return ptx_refuse(loader, ptx_tok(loader)->line, "a vector of more than %d elements",
					  PTX_ELEMENTS_MAX);
		if (ptx_token_is(ptx_tok(loader), "{") || ptx_token_is(ptx_tok(loader), "["))
			return ptx_refuse(loader, ptx_tok(loader)->line, "a vector in a vector");
		rc = ptx_parse_operand(loader, &operand->elements[operand->element_count++]);
		if (rc)
			return rc;
	} while (ptx_accept(loader, ","));
	return ptx_expect(loader, "}");
}

/* {x, y} or x in [texture, {x, y}] */
static int parse_coordinates(struct ptx_loader *loader, struct ptx_operand *operand)
{
	operand->place = ptx_arena_alloc(&loader->scratch, sizeof(*operand->place));
	if (!operand->place)
		return ptx_no_memory(loader);
	if (ptx_token_is(ptx_tok(loader), "["))
		return ptx_refuse(loader, ptx_tok(loader)->line, "an address of this form");
	return ptx_parse_operand(loader, operand->place);
}

static int parse_memory(struct ptx_loader *loader, struct ptx_operand *operand)
{
	struct ptx_operand *base = ptx_arena_alloc(&loader->scratch, sizeof(*base));
	int rc;

	if (!base)
		return ptx_no_memory(loader);
	operand->kind = PTX_OPERAND_MEMORY;
	operand->elements = base;
	if (ptx_token_is(ptx_tok(loader), "{") || ptx_token_is(ptx_tok(loader), "["))
		return ptx_refuse(loader, ptx_tok(loader)->line, "an address of this form");
	rc = ptx_parse_operand(loader, base);
	if (rc)
		return rc;
	if (base->kind == PTX_OPERAND_REG)
		rc = parse_offset(loader, &operand->offset);
	else if (base->kind == PTX_OPERAND_INT)
		operand->offset = (int64_t)base->bits;
	else if (base->kind == PTX_OPERAND_SYMBOL)
		operand->offset = base->offset;
	else
		rc = ptx_refuse(loader, ptx_tok(loader)->line, "an address of this form");
	if (!rc && ptx_accept(loader, ","))
		rc = parse_coordinates(loader, operand);
	return rc ? rc : ptx_expect(loader, "]");
}

int ptx_parse_operand(struct ptx_loader *loader, struct ptx_operand *operand)
{
	bool is_negative;
	int rc;

	memset(operand, 0, sizeof(*operand));
	if (ptx_accept(loader, "{"))
		return parse_vector(loader, operand);
	if (ptx_accept(loader, "["))
		return parse_memory(loader, operand);
	operand->is_inverted = ptx_accept(loader, "!");
	is_negative = ptx_accept(loader, "-");
	if (ptx_tok(loader)->kind != PTX_TOKEN_WORD)
		return parse_number(loader, operand, is_negative);
	if (is_negative)
		return ptx_refuse(loader, ptx_tok(loader)->line, "a minus before a name");
	rc = parse_word(loader, operand);
	if (rc || !ptx_accept(loader, "|"))
		return rc;
	operand->second = ptx_arena_alloc(&loader->scratch, sizeof(*operand));
	if (!operand->second)
		return ptx_no_memory(loader);
	if (ptx_tok(loader)->kind != PTX_TOKEN_WORD)
		return ptx_refuse(loader, ptx_tok(loader)->line, "a second result expected");
	return parse_word(loader, operand->second);
}

/* Lower arithmetic, comparisons, moves and conversions. */
#include <errno.h>
#include <string.h>

#include "soft/ptx/lowerings.h"

static struct ptx_op *last_op(struct ptx_loader *loader)
{
	return &loader->body->ops[loader->body->op_count - 1];
}

/* The index of the word that is among the suffixes; -1: none. */
static int suffix_of(const struct ptx_statement *st, const char *const words[], int count)
{
	for (int i = 0; i < count; i++)
		if (ptx_has(st, words[i]))
			return i;
	return -1;
}

static unsigned rounding_of(const struct ptx_statement *st)
{
	static const char *const words[] = { "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi" };
	int i = suffix_of(st, words, 8);

	return i < 0 ? PTX_RN : (unsigned)i & 3;
}

static uint8_t flags_of(const struct ptx_statement *st)
{
	return (uint8_t)((ptx_has(st, "ftz") ? PTX_FLAG_FTZ : 0) | (ptx_has(st, "sat") ? PTX_FLAG_SAT : 0) |
			 (ptx_has(st, "relu") ? PTX_FLAG_RELU : 0) | (ptx_has(st, "NaN") ? PTX_FLAG_NAN : 0) |
			 (ptx_has(st, "xorsign") ? PTX_FLAG_XORSIGN : 0) |
			 (ptx_has(st, "abs") ? PTX_FLAG_ABS : 0) |
			 (ptx_has(st, "satfinite") ? PTX_FLAG_SATFINITE : 0));
}

int ptx_lower_carry(struct ptx_loader *loader, struct ptx_statement *st)
{
	bool takes_carry = st->name[strlen(st->name) - 1] == 'c';
	int rc = ptx_lower_plain(loader, st);

	if (!rc)
		last_op(loader)->flags = (uint8_t)((takes_carry ? PTX_CC_IN : 0) |
						   (ptx_has(st, "cc") ? PTX_CC_OUT : 0) |
						   (ptx_has(st, "hi") ? PTX_CC_HIGH : 0));
	return rc;
}

/* Instructions with one of several words: op->mode is its index. */
int ptx_lower_moded(struct ptx_loader *loader, struct ptx_statement *st)
{
	static const char *const words[] = { "clamp",	 "wrap",     "f4e",	 "b4e",	   "rc8",
					     "ecl",	 "ecr",	     "rc16",	 "lo",	   "hi",
					     "shiftamt", "finite",   "infinite", "number", "notanumber",
					     "normal",	 "subnormal" };
	int mode = suffix_of(st, words, sizeof(words) / sizeof(words[0]));
	int rc = ptx_lower_plain(loader, st);

	if (rc)
		return rc;
	last_op(loader)->mode = (uint8_t)(mode + 1);
	last_op(loader)->aux = ptx_has(st, "r"); /* shf */
	return 0;
}

int ptx_lower_lop3(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_operand table = st->args[4];
	int rc;

	if (st->arg_count != 5 || table.kind != PTX_OPERAND_INT || table.bits > 255)
		return ptx_refuse(loader, st->line, "%s: its fifth operand is a table of 8 bits", st->full);
	st->arg_count = 4;
	rc = ptx_lower_plain(loader, st);
	if (!rc)
		last_op(loader)->aux = (uint32_t)table.bits;
	return rc;
}

/* Round-to-nearest without flags has its own handlers; everything else uses flags. */
int ptx_lower_float(struct ptx_loader *loader, struct ptx_statement *st)
{
	int rc = ptx_lower_plain(loader, st);
	struct ptx_op *op = last_op(loader);
	bool is_single;

	if (rc)
		return rc;
	is_single = st->types[0] == PTX_TYPE_F32;
	op->mode = (uint8_t)rounding_of(st);
	op->flags = flags_of(st);
	if (!is_single && st->types[0] != PTX_TYPE_F64)
		return 0;
	if (op->mode == PTX_RN && !(op->flags & PTX_FLAG_SAT)) {
		if (is_single && (op->flags & PTX_FLAG_FTZ))
			op->type = PTX_TYPE_F32Z;
	} else if (op->family >= PTX_FADD && op->family <= PTX_FSQRT) {
		op->family = (uint16_t)(op->family + (PTX_FADDR - PTX_FADD));
	}
	if (st->row->family == PTX_FRCPR) /* rcp.approx.ftz.f64: low precision by definition */
		op->type = PTX_TYPE_NONE;
	return 0;
}

static int compare_of(const struct ptx_statement *st, bool *is_unsigned_word)
{
	static const char *const words[] = { "eq",  "ne",  "lt",  "le",	 "gt",	"ge", "equ", "neu", "ltu",
					     "leu", "gtu", "geu", "num", "nan", "lo", "ls",  "hi",  "hs" };
	int i = suffix_of(st, words, 18);

	*is_unsigned_word = i >= 14;
	return i >= 14 ? PTX_CMP_LT + (i - 14) : i;
}

static uint8_t combine_of(const struct ptx_statement *st)
{
	static const char *const words[] = { "and", "or", "xor" };

	return (uint8_t)(suffix_of(st, words, 3) + 1);
}

static int check_compare(struct ptx_loader *loader, const struct ptx_statement *st, enum ptx_type type,
			 int *cmp)
{
	bool is_word, is_bits = type == PTX_TYPE_B16 || type == PTX_TYPE_B32 || type == PTX_TYPE_B64;

	*cmp = compare_of(st, &is_word);
	if (*cmp < 0 || (is_bits && *cmp > PTX_CMP_NE))
		return ptx_refuse(loader, st->line, "%s: no such comparison", st->full);
	return 0;
}

/* p|q, a, b, [!]c */
int ptx_lower_setp(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_operand first = st->args[0];
	uint32_t r[PTX_ARGS_MAX], second = PTX_NO_OPERAND;
	uint8_t negated, combine = combine_of(st);
	struct ptx_op *op;
	int cmp, rc = check_compare(loader, st, st->types[0], &cmp);

	if (rc)
		return rc;
	if (first.second && ptx_target(loader, st, first.second, 0, &second, NULL))
		return ptx_bad_operand(loader, st, 0);
	st->args[0].second = NULL;
	rc = ptx_lower_operands(loader, st, combine ? "Pssp" : "Pss", r, &negated);
	if (rc)
		return rc;
	op = ptx_emit(loader, st, PTX_SETP, st->types[0]);
	if (!op)
		return ptx_no_memory(loader);
	op->writes = 2;
	op->count = 5;
	op->r[0] = r[0];
	op->r[1] = second;
	op->r[2] = r[1];
	op->r[3] = r[2];
	op->r[4] = combine ? r[3] : PTX_NO_OPERAND;
	op->negated = combine && (negated & 8) ? 0x10 : 0;
	op->mode = (uint8_t)cmp;
	op->combine = combine;
	op->flags = flags_of(st);
	return 0;
}

int ptx_lower_set(struct ptx_loader *loader, struct ptx_statement *st)
{
	uint8_t negated, combine = combine_of(st);
	uint32_t r[PTX_ARGS_MAX];
	struct ptx_op *op;
	int cmp, rc = check_compare(loader, st, st->types[1], &cmp);

	if (!rc)
		rc = ptx_lower_operands(loader, st, combine ? "dxxp" : "dxx", r, &negated);
	if (rc)
		return rc;
	op = ptx_emit(loader, st, PTX_SET, st->types[1]);
	if (!op)
		return ptx_no_memory(loader);
	op->type2 = (uint8_t)st->types[0];
	op->writes = 1;
	op->count = 5;
	op->r[0] = r[0];
	op->r[2] = r[1];
	op->r[3] = r[2];
	op->r[4] = combine ? r[3] : PTX_NO_OPERAND;
	op->negated = combine && (negated & 8) ? 0x10 : 0;
	op->mode = (uint8_t)cmp;
	op->combine = combine;
	op->flags = flags_of(st);
	return 0;
}

/* {a, b} = c or c = {a, b}: elements of equal width that fill the whole. */
static int lower_pack(struct ptx_loader *loader, struct ptx_statement *st, unsigned which)
{
	const struct ptx_operand *vector = &st->args[which], *whole = &st->args[1 - which];
	uint32_t n = vector->element_count, bytes = ptx_type_bytes(st->types[0]), width;
	uint32_t places[PTX_ELEMENTS_MAX], at;
	struct ptx_op *op;
	int rc = 0;

	if (n < 2 || n > 4 || (n & 1) || bytes / n < 2 || whole->kind == PTX_OPERAND_VECTOR || whole->second)
		return ptx_refuse(loader, st->line, "%s: a vector of this form", st->full);
	width = bytes / n;
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = which ? ptx_source(loader, st, &vector->elements[i], width, PTX_TYPE_NONE, &places[i],
					NULL)
			   : ptx_target(loader, st, &vector->elements[i], width, &places[i], NULL);
	if (!rc)
		rc = which ? ptx_target(loader, st, whole, bytes, &at, NULL)
			   : ptx_source(loader, st, whole, bytes, st->types[0], &at, NULL);
	if (rc)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, which);
	op = ptx_emit(loader, st, which ? PTX_PACK : PTX_UNPACK, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->vector = (uint8_t)n;
	op->width = (uint8_t)width;
	op->count = (uint8_t)(n + 1);
	op->writes = (uint8_t)(which ? 1 : n);
	for (uint32_t i = 0; i < n; i++)
		op->r[i + which] = places[i];
	op->r[which ? 0 : n] = at;
	return 0;
}

int ptx_lower_mov(struct ptx_loader *loader, struct ptx_statement *st)
{
	if (st->arg_count != 2)
		return ptx_refuse(loader, st->line, "%s: two operands expected", st->full);
	if (st->args[0].kind == PTX_OPERAND_VECTOR)
		return lower_pack(loader, st, 0);
	if (st->args[1].kind == PTX_OPERAND_VECTOR)
		return lower_pack(loader, st, 1);
	if (st->args[1].kind == PTX_OPERAND_NAME &&
	    (!st->args[1].symbol || st->args[1].symbol->kind != PTX_SYMBOL_FUNCTION ||
	     st->args[1].symbol->body->function->kernel.is_entry))
		return ptx_refuse(loader, st->line,
				  "%s: the address of %.*s, a kernel or a label, is not supported", st->full,
				  PTX_MASKED(st->args[1].length), st->args[1].name);
	return ptx_lower_plain(loader, st);
}

static bool is_float(enum ptx_type t)
{
	return t == PTX_TYPE_F16 || t == PTX_TYPE_BF16 || t == PTX_TYPE_F32 || t == PTX_TYPE_F64;
}

static int pair_of(enum ptx_type to, enum ptx_type from, unsigned mode, unsigned flags)
{
	static const struct {
		enum ptx_type to, from;
		unsigned mode;
		enum ptx_cvt_pair pair;
	} pairs[] = {
		{ PTX_TYPE_U64, PTX_TYPE_U32, PTX_RN, PTX_CVT_U32_U64 },
		{ PTX_TYPE_S64, PTX_TYPE_U32, PTX_RN, PTX_CVT_U32_U64 },
		{ PTX_TYPE_S64, PTX_TYPE_S32, PTX_RN, PTX_CVT_S32_S64 },
		{ PTX_TYPE_U32, PTX_TYPE_U64, PTX_RN, PTX_CVT_64_32 },
		{ PTX_TYPE_U32, PTX_TYPE_S64, PTX_RN, PTX_CVT_64_32 },
		{ PTX_TYPE_S32, PTX_TYPE_U64, PTX_RN, PTX_CVT_64_32 },
		{ PTX_TYPE_S32, PTX_TYPE_S64, PTX_RN, PTX_CVT_64_32 },
		{ PTX_TYPE_F32, PTX_TYPE_S32, PTX_RN, PTX_CVT_S32_F32 },
		{ PTX_TYPE_F32, PTX_TYPE_U32, PTX_RN, PTX_CVT_U32_F32 },
		{ PTX_TYPE_S32, PTX_TYPE_F32, PTX_RZ, PTX_CVT_F32_S32_RZ },
		{ PTX_TYPE_F64, PTX_TYPE_F32, PTX_RN, PTX_CVT_F32_F64 },
		{ PTX_TYPE_F32, PTX_TYPE_F64, PTX_RN, PTX_CVT_F64_F32 },
		{ PTX_TYPE_F64, PTX_TYPE_S32, PTX_RN, PTX_CVT_S32_F64 },
		{ PTX_TYPE_F32, PTX_TYPE_F16, PTX_RN, PTX_CVT_F16_F32 },
		{ PTX_TYPE_F16, PTX_TYPE_F32, PTX_RN, PTX_CVT_F32_F16 },
	};

	for (size_t i = 0; !flags && i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (pairs[i].to == to && pairs[i].from == from && pairs[i].mode == mode)
			return (int)pairs[i].pair;
	return -1;
}

/* The registers can be wider than the types: the low part of the source is read, the result is extended. */
int ptx_lower_cvt(struct ptx_loader *loader, struct ptx_statement *st)
{
	enum ptx_type to = st->types[0], from = st->types[1];
	bool is_integral = ptx_has(st, "rni") || ptx_has(st, "rzi") || ptx_has(st, "rmi") ||
			   ptx_has(st, "rpi");
	uint32_t to_width, from_width, a, d;
	struct ptx_op *op;
	int pair;

	if (st->arg_count != 2)
		return ptx_refuse(loader, st->line, "%s: two operands expected", st->full);
	if (is_integral && !is_float(from))
		return ptx_refuse(loader, st->line, "%s: rounding a whole number", st->full);
	if (ptx_target(loader, st, &st->args[0], ~0u, &d, &to_width) || to_width < ptx_type_bytes(to) ||
	    (is_float(to) && to_width != ptx_type_bytes(to) && to != PTX_TYPE_F16 && to != PTX_TYPE_BF16))
		return ptx_bad_operand(loader, st, 0);
	if (ptx_source(loader, st, &st->args[1], ~0u, from, &a, &from_width) ||
	    from_width < ptx_type_bytes(from))
		return ptx_bad_operand(loader, st, 1);
	op = ptx_emit(loader, st, PTX_CVT, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->type = 0;
	op->type2 = (uint8_t)from;
	op->combine = (uint8_t)to;
	op->mode = (uint8_t)rounding_of(st);
	op->flags = flags_of(st) | (is_integral && is_float(to) ? PTX_FLAG_INTEGRAL : 0);
	op->width = (uint8_t)to_width;
	op->vector = (uint8_t)from_width;
	op->writes = 1;
	op->count = 2;
	op->r[0] = d;
	op->r[1] = a;
	pair = to_width == ptx_type_bytes(to) && from_width == ptx_type_bytes(from)
		       ? pair_of(to, from, op->mode, op->flags)
		       : -1;
	if (pair >= 0) {
		op->family = PTX_CVTFAST;
		op->type = (uint8_t)pair;
	}
	return 0;
}

int ptx_lower_cvt2(struct ptx_loader *loader, struct ptx_statement *st)
{
	int rc = ptx_lower_plain(loader, st);

	if (rc)
		return rc;
	last_op(loader)->mode = (uint8_t)rounding_of(st);
	last_op(loader)->flags = flags_of(st);
	return 0;
}

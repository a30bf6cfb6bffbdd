/* Lower a statement to ops: find its row, and convert its operands. */
#include <errno.h>
#include <string.h>

#include "soft/ptx/load.h"

bool ptx_has(const struct ptx_statement *st, const char *suffix)
{
	for (uint32_t i = 0; i < st->suffix_count; i++)
		if (!strcmp(st->suffixes[i], suffix))
			return true;
	return false;
}

/* Whether `word` is in `list`; a '+' before a word in the list means that it must be present. */
static bool list_has(const char *list, const char *word)
{
	size_t length = strlen(word);

	while (*list) {
		const char *end = strchr(list, ' ');
		size_t n = end ? (size_t)(end - list) : strlen(list);
		const char *from = *list == '+' ? list + 1 : list;

		if (n - (size_t)(from - list) == length && !memcmp(from, word, length))
			return true;
		list += n + (end ? 1 : 0);
	}
	return false;
}

static bool has_required(const struct ptx_row *row, const struct ptx_statement *st)
{
	char word[32];

	for (const char *at = strchr(row->modifiers, '+'); at; at = strchr(at, '+')) {
		size_t n = strcspn(++at, " ");

		if (n >= sizeof(word))
			return false;
		memcpy(word, at, n);
		word[n] = '\0';
		if (!ptx_has(st, word))
			return false;
	}
	return true;
}

static bool row_takes(const struct ptx_row *row, struct ptx_statement *st)
{
	uint32_t wanted = (*row->types ? 1 : 0) + (*row->types2 ? 1 : 0);

	st->type_count = 0;
	for (uint32_t i = 0; i < st->suffix_count; i++) {
		const char *word = st->suffixes[i];
		const char *list = st->type_count ? row->types2 : row->types;

		if (st->type_count < wanted && list_has(list, word))
			st->types[st->type_count++] = ptx_type_parse(word, strlen(word));
		else if (!list_has(row->modifiers, word))
			return false;
	}
	return st->type_count == wanted && has_required(row, st);
}

struct ptx_op *ptx_emit(struct ptx_loader *loader, const struct ptx_statement *st, unsigned family,
			unsigned type)
{
	struct ptx_body *body = loader->body;
	struct ptx_op *op;

	op = ptx_list_add((void **)&body->ops, &body->op_count, &body->op_room, sizeof(*op));
	if (!op)
		return NULL;
	op->family = (uint16_t)family;
	op->type = (uint8_t)type;
	op->guard = st->guard;
	op->guard_xor = st->guard_xor;
	op->line = st->line;
	for (unsigned i = 0; i < PTX_OPERANDS; i++)
		op->r[i] = PTX_NO_OPERAND;
	return op;
}

int ptx_frame_ref_add(struct ptx_loader *loader, const struct ptx_frame_ref *ref)
{
	struct ptx_body *body = loader->body;
	struct ptx_frame_ref *added;

	added = ptx_list_add((void **)&body->refs, &body->ref_count, &body->ref_room, sizeof(*added));
	if (!added)
		return ptx_no_memory(loader);
	*added = *ref;
	return 0;
}

/* A value known only when the block runs, in its own register. */
static int source_sreg(struct ptx_loader *loader, const struct ptx_statement *st, enum ptx_sreg sreg,
		       uint32_t bytes, int64_t offset, uint32_t *place)
{
	struct ptx_statement always = *st;
	struct ptx_op *op;
	uint32_t reg;
	int rc = ptx_reg_new(loader,
			     bytes == 8	  ? PTX_TYPE_U64
			     : bytes == 2 ? PTX_TYPE_U16
					  : PTX_TYPE_U32,
			     &reg);

	if (rc)
		return rc;
	always.guard = PTX_NO_OPERAND;
	always.guard_xor = 0;
	op = ptx_emit(loader, &always, PTX_SREG, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->r[0] = reg;
	op->writes = op->count = 1;
	op->mode = sreg;
	op->width = (uint8_t)bytes;
	op->offset = offset;
	op->is_free = 1;
	*place = reg;
	return 0;
}

/* An address in a frame. In a function that may be stacked it comes from a mov of its own, which stack.c can
 * change to an addition. */
static int source_frame(struct ptx_loader *loader, const struct ptx_statement *st, const struct ptx_symbol *s,
			uint32_t bytes, uint32_t *place)
{
	struct ptx_frame_ref ref = { .op = ~0u,
				     .constant = *place & ~PTX_CONST_BIT,
				     .space = s->space,
				     .is_module = s->is_module,
				     .bytes = bytes };
	struct ptx_statement always = *st;
	struct ptx_op *op;
	uint32_t reg;
	int rc;

	if (s->space != PTX_SPACE_LOCAL || loader->body->function->kernel.is_entry)
		return ptx_frame_ref_add(loader, &ref);
	rc = ptx_reg_new(loader, bytes == 8 ? PTX_TYPE_U64 : PTX_TYPE_U32, &reg);
	if (rc)
		return rc;
	always.guard = PTX_NO_OPERAND;
	always.guard_xor = 0;
	op = ptx_emit(loader, &always, PTX_MOV, bytes == 8 ? PTX_TYPE_U64 : PTX_TYPE_U32);
	if (!op)
		return ptx_no_memory(loader);
	op->r[0] = reg;
	op->r[1] = *place;
	op->writes = 1;
	op->count = 2;
	op->is_free = 1;
	ref.op = loader->body->op_count - 1;
	*place = reg;
	return ptx_frame_ref_add(loader, &ref);
}

/* The address of a variable, as a value. */
static int source_symbol(struct ptx_loader *loader, const struct ptx_statement *st,
			 const struct ptx_operand *operand, uint32_t bytes, uint32_t *place)
{
	const struct ptx_symbol *s = operand->symbol;
	struct ptx_module *m = loader->module;
	struct ptx_patch *patch;

	if (s->is_dynamic)
		return source_sreg(loader, st, PTX_SREG_DYNAMIC_BASE, bytes, operand->offset, place);
	*place = ptx_constant_new(loader, s->offset + (uint64_t)operand->offset, bytes);
	if (*place == PTX_NO_OPERAND)
		return ptx_no_memory(loader);
	if (s->space == PTX_SPACE_GLOBAL || s->space == PTX_SPACE_CONST) {
		patch = ptx_list_add((void **)&m->patches, &m->patch_count, &loader->patch_room,
				     sizeof(*patch));
		if (!patch)
			return ptx_no_memory(loader);
		*patch = (struct ptx_patch){ *place & ~PTX_CONST_BIT, s->variable, operand->offset, bytes };
		return 0;
	}
	if (s->space == PTX_SPACE_PARAM)
		return 0;
	return source_frame(loader, st, s, bytes, place);
}

static uint64_t literal(const struct ptx_operand *operand, uint32_t bytes, enum ptx_type type)
{
	uint64_t bits = operand->bits;
	uint32_t narrow = (uint32_t)bits;
	double wide;
	float f;

	if (operand->kind == PTX_OPERAND_F64 && bytes == 4) {
		memcpy(&wide, &bits, sizeof(wide));
		f = (float)wide;
		memcpy(&narrow, &f, sizeof(narrow));
		return narrow;
	}
	if (operand->kind == PTX_OPERAND_F32 && type == PTX_TYPE_F64) {
		memcpy(&f, &narrow, sizeof(f));
		wide = f;
		memcpy(&bits, &wide, sizeof(bits));
	}
	return bits;
}

int ptx_source(struct ptx_loader *loader, const struct ptx_statement *st, const struct ptx_operand *operand,
	       uint32_t bytes, enum ptx_type type, uint32_t *place, uint32_t *width)
{
	uint32_t wanted = bytes == ~0u ? ptx_type_bytes(type) : bytes;

	if (width)
		*width = wanted;
	switch (operand->kind) {
	case PTX_OPERAND_REG:
		*place = operand->reg;
		if (width)
			*width = loader->body->regs[operand->reg].width;
		if (operand->is_inverted && bytes)
			return -EINVAL;
		return bytes != ~0u && loader->body->regs[operand->reg].width != bytes ? -EINVAL : 0;
	case PTX_OPERAND_INT:
	case PTX_OPERAND_F32:
	case PTX_OPERAND_F64:
		if (operand->kind != PTX_OPERAND_INT && wanted < 4)
			return -EINVAL;
		if (width && wanted == 1)
			*width = wanted = 2;
		*place = ptx_constant(loader, literal(operand, wanted, type), wanted);
		return *place == PTX_NO_OPERAND ? ptx_no_memory(loader) : 0;
	case PTX_OPERAND_SYMBOL:
		if (wanted < 4)
			return -EINVAL;
		return source_symbol(loader, st, operand, wanted, place);
	case PTX_OPERAND_NAME:
		if (wanted != 8 || !operand->symbol || operand->symbol->kind != PTX_SYMBOL_FUNCTION)
			return -EINVAL;
		*place = ptx_constant(loader, ptx_function_address(loader, operand->symbol->body), 8);
		return *place == PTX_NO_OPERAND ? ptx_no_memory(loader) : 0;
	case PTX_OPERAND_SREG:
		if (wanted < 2)
			return -EINVAL;
		return source_sreg(loader, st, operand->sreg, wanted, 0, place);
	default:
		return -EINVAL;
	}
}

int ptx_target(struct ptx_loader *loader, const struct ptx_statement *st, const struct ptx_operand *operand,
	       uint32_t bytes, uint32_t *place, uint32_t *width)
{
	(void)st;
	if (operand->kind == PTX_OPERAND_SINK) {
		/* an unused register */
		enum ptx_type type = bytes == 8 ? PTX_TYPE_B64 : bytes == 2 ? PTX_TYPE_B16 : PTX_TYPE_B32;

		if (width)
			*width = bytes == 8 || bytes == 2 ? bytes : 4;
		return ptx_reg_new(loader, bytes ? type : PTX_TYPE_PRED, place);
	}
	if (operand->kind != PTX_OPERAND_REG || operand->is_inverted)
		return -EINVAL;
	*place = operand->reg;
	if (width)
		*width = loader->body->regs[operand->reg].width;
	return bytes != ~0u && loader->body->regs[operand->reg].width != bytes ? -EINVAL : 0;
}

static int lower_one(struct ptx_loader *loader, struct ptx_statement *st, char shape,
		     const struct ptx_operand *arg, uint32_t *place)
{
	uint32_t bytes = ptx_type_bytes(st->types[0]);
	enum ptx_type type = st->types[0];

	if (arg->second)
		return -EINVAL;
	switch (shape) {
	case 'd':
		return ptx_target(loader, st, arg, bytes, place, NULL);
	case 's':
		return ptx_source(loader, st, arg, bytes, type, place, NULL);
	case 'x':
		return ptx_source(loader, st, arg, ptx_type_bytes(st->types[1]), st->types[1], place, NULL);
	case 'e':
		return ptx_target(loader, st, arg, 2 * bytes, place, NULL);
	case 'w':
		return ptx_source(loader, st, arg, 2 * bytes, type, place, NULL);
	case 'u':
		return ptx_source(loader, st, arg, 4, PTX_TYPE_U32, place, NULL);
	case 'U':
		return ptx_target(loader, st, arg, 4, place, NULL);
	case 'P':
		return ptx_target(loader, st, arg, 0, place, NULL);
	case 'p':
		return ptx_source(loader, st, arg, 0, PTX_TYPE_PRED, place, NULL);
	default:
		return -EINVAL;
	}
}

/* One letter per operand: d writes, s reads the type; x reads the second type; e writes, w reads twice its
 * width; U writes, u reads 32 bits; P writes, p reads a predicate; ? makes the next one optional. */
int ptx_lower_operands(struct ptx_loader *loader, struct ptx_statement *st, const char *shape, uint32_t r[],
		       uint8_t *negated)
{
	uint32_t used = 0;

	*negated = 0;
	for (; *shape; shape++) {
		bool is_optional = *shape == '?';
		int rc;

		shape += is_optional;
		if (used == st->arg_count && is_optional) {
			r[used] = PTX_NO_OPERAND;
			break;
		}
		if (used >= st->arg_count)
			return ptx_refuse(loader, st->line, "%s: operands are missing", st->full);
		rc = lower_one(loader, st, *shape, &st->args[used], &r[used]);
		if (rc == -ENOMEM)
			return rc;
		if (rc)
			return ptx_bad_operand(loader, st, used);
		if (st->args[used].is_inverted)
			*negated |= (uint8_t)(1u << used);
		used++;
	}
	if (used != st->arg_count)
		return ptx_refuse(loader, st->line, "%s: too many operands", st->full);
	return 0;
}

int ptx_lower_plain(struct ptx_loader *loader, struct ptx_statement *st)
{
	const char *shape = st->row->shape;
	uint32_t r[PTX_ARGS_MAX] = { 0 };
	uint8_t negated;
	struct ptx_op *op;
	int rc = ptx_lower_operands(loader, st, shape, r, &negated);

	if (rc)
		return rc;
	op = ptx_emit(loader, st, st->row->family, st->types[0]);
	if (!op)
		return ptx_no_memory(loader);
	op->type2 = (uint8_t)st->types[1];
	op->negated = negated;
	op->count = (uint8_t)st->arg_count;
	op->writes = strchr("deUP", *shape) && *shape ? 1 : 0;
	for (uint32_t i = 0; i < op->count; i++)
		op->r[i] = r[i];
	return 0;
}

static int refuse_unknown(struct ptx_loader *loader, const struct ptx_statement *st)
{
	return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
}

int ptx_lower_statement(struct ptx_loader *loader, struct ptx_statement *st)
{
	uint32_t first = loader->body->op_count;
	int rc = -ENOENT;

	for (uint32_t i = 0; i < ptx_row_count; i++) {
		if (strcmp(ptx_rows[i].name, st->name) || !row_takes(&ptx_rows[i], st))
			continue;
		st->row = &ptx_rows[i];
		if (!st->row->lower)
			return refuse_unknown(loader, st);
		rc = st->row->lower(loader, st);
		break;
	}
	if (rc == -ENOENT)
		return refuse_unknown(loader, st);
	for (; !rc && first < loader->body->op_count; first++)
		if (!ptx_handler_find(loader->body->ops[first].family, loader->body->ops[first].type))
			return refuse_unknown(loader, st);
	return rc;
}

bool ptx_row_at(uint32_t index, struct ptx_row_info *info)
{
	if (index >= ptx_row_count)
		return false;
	*info = (struct ptx_row_info){ .name = ptx_rows[index].name,
				       .types = ptx_rows[index].types,
				       .source_types = ptx_rows[index].types2,
				       .modifiers = ptx_rows[index].modifiers,
				       .is_refused = !ptx_rows[index].lower };
	return true;
}

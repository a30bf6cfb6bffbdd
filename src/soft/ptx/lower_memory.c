/* Lower loads, stores, atomics and address instructions. */
#include <errno.h>
#include <string.h>

#include "soft/ptx/lowerings.h"

enum ptx_space ptx_lower_space(const struct ptx_statement *st)
{
	static const struct {
		const char *name;
		enum ptx_space space;
	} names[] = {
		{ "global", PTX_SPACE_GLOBAL },	     { "shared", PTX_SPACE_SHARED },
		{ "shared::cta", PTX_SPACE_SHARED }, { "shared::cluster", PTX_SPACE_SHARED },
		{ "local", PTX_SPACE_LOCAL },	     { "param", PTX_SPACE_PARAM },
		{ "param::entry", PTX_SPACE_PARAM }, { "param::func", PTX_SPACE_PARAM },
		{ "const", PTX_SPACE_GLOBAL },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (ptx_has(st, names[i].name))
			return names[i].space;
	return PTX_SPACE_GENERIC;
}

static int address_symbol(struct ptx_loader *loader, const struct ptx_statement *st,
			  const struct ptx_operand *operand, struct ptx_address *a)
{
	const struct ptx_symbol *s = operand->elements->symbol;
	struct ptx_operand base = *operand->elements;
	bool is_device = s->space == PTX_SPACE_GLOBAL || s->space == PTX_SPACE_CONST;
	enum ptx_space space = is_device ? PTX_SPACE_GLOBAL : s->space;

	/* .param is a parameter of the kernel, or the frame in which calls pass theirs */
	if (a->space == PTX_SPACE_PARAM && space == PTX_SPACE_LOCAL)
		a->space = PTX_SPACE_LOCAL;
	if (a->space != space && !(a->space == PTX_SPACE_GENERIC && is_device))
		return -EINVAL;
	a->offset = operand->offset;
	a->width = 8;
	if (is_device || s->is_dynamic) {
		a->offset = 0;
		base.offset = operand->offset;
		return ptx_source(loader, st, &base, 8, PTX_TYPE_U64, &a->place, NULL);
	}
	a->place = ptx_constant(loader, 0, 8);
	if (a->place == PTX_NO_OPERAND)
		return -ENOMEM;
	a->offset += s->offset;
	a->is_known = s->space == PTX_SPACE_PARAM;
	if (a->is_known)
		return 0;
	a->has_ref = true;
	a->ref = (struct ptx_frame_ref){ .constant = ~0u, .space = s->space, .is_module = s->is_module };
	return 0;
}

int ptx_lower_address(struct ptx_loader *loader, const struct ptx_statement *st,
		      const struct ptx_operand *operand, struct ptx_address *a)
{
	if (operand->kind != PTX_OPERAND_MEMORY || operand->place)
		return -EINVAL;
	if (operand->elements->kind == PTX_OPERAND_SYMBOL)
		return address_symbol(loader, st, operand, a);
	a->offset = operand->offset;
	if (a->space == PTX_SPACE_PARAM && !loader->body->function->kernel.is_entry)
		a->space = PTX_SPACE_LOCAL;
	if (operand->elements->kind == PTX_OPERAND_INT) {
		a->width = 8;
		a->place = ptx_constant(loader, 0, 8);
		return a->place == PTX_NO_OPERAND ? -ENOMEM : 0;
	}
	a->place = operand->elements->reg;
	a->width = loader->body->regs[a->place].width;
	return a->width == 4 || a->width == 8 ? 0 : -EINVAL;
}

int ptx_set_address(struct ptx_loader *loader, struct ptx_op *op, unsigned slot, const struct ptx_address *a)
{
	struct ptx_frame_ref ref = a->ref;

	op->r[slot] = a->place;
	op->offset = a->offset;
	op->space = (uint8_t)a->space;
	op->address_width = (uint8_t)a->width;
	if (!a->has_ref)
		return 0;
	ref.op = loader->body->op_count - 1;
	return ptx_frame_ref_add(loader, &ref);
}

static uint32_t vector_of(const struct ptx_statement *st)
{
	return ptx_has(st, "v2") ? 2 : ptx_has(st, "v4") ? 4 : 1;
}

static uint8_t order_of(const struct ptx_statement *st)
{
	return (uint8_t)((ptx_has(st, "acquire") || ptx_has(st, "acq_rel") || ptx_has(st, "volatile") ||
					  ptx_has(st, "sc")
				  ? PTX_FLAG_ACQUIRE
				  : 0) |
			 (ptx_has(st, "release") || ptx_has(st, "acq_rel") || ptx_has(st, "volatile") ||
					  ptx_has(st, "sc")
				  ? PTX_FLAG_RELEASE
				  : 0));
}

int ptx_lower_elements(struct ptx_loader *loader, struct ptx_statement *st, const struct ptx_operand *arg,
		       bool is_load, uint32_t places[], uint32_t *width)
{
	uint32_t n = vector_of(st), bytes = ptx_type_bytes(st->types[0]), one = 0;
	int rc;

	if (n > 1 && (arg->kind != PTX_OPERAND_VECTOR || arg->element_count != n))
		return -EINVAL;
	*width = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct ptx_operand *e = n > 1 ? &arg->elements[i] : arg;
		bool is_register = e->kind == PTX_OPERAND_REG;

		if (e->second)
			return -EINVAL;
		/* an immediate or _ among registers has their width */
		if (!is_register && *width)
			one = *width;
		rc = is_load ? ptx_target(loader, st, e,
					  is_register ? ~0u
					  : bytes < 4 ? 2
						      : bytes,
					  &places[i], &one)
			     : ptx_source(loader, st, e, ~0u, st->types[0], &places[i], &one);
		if (rc)
			return rc;
		if (one < bytes || one < 2 || (*width && one != *width))
			return -EINVAL;
		*width = one;
	}
	return 0;
}

int ptx_lower_load(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_address a = { .space = ptx_lower_space(st) };
	uint32_t n = vector_of(st), places[PTX_ELEMENTS_MAX], width = 0;
	struct ptx_op *op;
	int rc;

	if (st->arg_count != 2)
		return ptx_refuse(loader, st->line, "%s: two operands expected", st->full);
	rc = ptx_lower_elements(loader, st, &st->args[0], true, places, &width);
	if (rc)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 0);
	rc = ptx_lower_address(loader, st, &st->args[1], &a);
	if (rc)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 1);
	if (a.is_known && (a.offset < 0 || a.offset + (int64_t)n * ptx_type_bytes(st->types[0]) >
						   loader->body->function->kernel.param_bytes))
		return ptx_refuse(loader, st->line, "%s: outside of the parameters", st->full);
	op = ptx_emit(loader, st, a.is_known ? PTX_LDPARAM : PTX_LD, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->type2 = (uint8_t)st->types[0];
	op->width = (uint8_t)width;
	op->vector = (uint8_t)n;
	op->flags = order_of(st);
	op->writes = (uint8_t)n;
	op->count = (uint8_t)(n + 1);
	memcpy(op->r, places, n * sizeof(*places));
	return ptx_set_address(loader, op, n, &a);
}

int ptx_lower_store(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_address a = { .space = ptx_lower_space(st) };
	uint32_t n = vector_of(st), places[PTX_ELEMENTS_MAX], width = 0;
	struct ptx_op *op;
	int rc;

	if (st->arg_count != 2)
		return ptx_refuse(loader, st->line, "%s: two operands expected", st->full);
	rc = ptx_lower_address(loader, st, &st->args[0], &a);
	if (rc || a.space == PTX_SPACE_PARAM)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 0);
	rc = ptx_lower_elements(loader, st, &st->args[1], false, places, &width);
	if (rc)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 1);
	op = ptx_emit(loader, st, PTX_ST, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->type2 = (uint8_t)st->types[0];
	op->width = (uint8_t)width;
	op->vector = (uint8_t)n;
	op->flags = order_of(st);
	op->count = (uint8_t)(n + 1);
	memcpy(op->r, places, n * sizeof(*places));
	return ptx_set_address(loader, op, n, &a);
}

static int atom_mode(const struct ptx_statement *st)
{
	static const char *const words[] = { "add", "min", "max", "and",  "or",
					     "xor", "inc", "dec", "exch", "cas" };

	for (int i = 0; i < 10; i++)
		if (ptx_has(st, words[i]))
			return i;
	return -1;
}

/* atom d, [a], b{, c}; red [a], b */
int ptx_lower_atom(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_address a = { .space = ptx_lower_space(st) };
	bool is_red = !strcmp(st->name, "red");
	unsigned first = is_red ? 0 : 1, bytes = ptx_type_bytes(st->types[0]);
	int mode = atom_mode(st), rc = 0;
	uint32_t d = PTX_NO_OPERAND, b, c = PTX_NO_OPERAND;
	struct ptx_op *op;

	if (mode < 0 || st->arg_count != first + (mode == PTX_ATOM_CAS ? 3 : 2))
		return ptx_refuse(loader, st->line, "%s: operands are missing", st->full);
	if (!is_red)
		rc = ptx_target(loader, st, &st->args[0], bytes, &d, NULL);
	if (!rc)
		rc = ptx_lower_address(loader, st, &st->args[first], &a);
	if (!rc)
		rc = ptx_source(loader, st, &st->args[first + 1], bytes, st->types[0], &b, NULL);
	if (!rc && mode == PTX_ATOM_CAS)
		rc = ptx_source(loader, st, &st->args[first + 2], bytes, st->types[0], &c, NULL);
	if (rc || a.space == PTX_SPACE_PARAM)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, first);
	op = ptx_emit(loader, st, PTX_ATOM, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->type2 = (uint8_t)st->types[0];
	op->mode = (uint8_t)mode;
	op->width = (uint8_t)bytes;
	op->vector = 1;
	op->writes = 1;
	op->count = 4;
	op->r[0] = d;
	op->r[2] = b;
	op->r[3] = c;
	return ptx_set_address(loader, op, 1, &a);
}

int ptx_lower_cvta(struct ptx_loader *loader, struct ptx_statement *st)
{
	enum ptx_space space = ptx_lower_space(st);
	int rc;

	if (st->arg_count == 2 && st->args[1].kind == PTX_OPERAND_SYMBOL &&
	    st->args[1].symbol->space == PTX_SPACE_REG)
		return ptx_bad_operand(loader, st, 1);
	rc = ptx_lower_plain(loader, st);
	if (!rc) {
		struct ptx_op *op = &loader->body->ops[loader->body->op_count - 1];

		op->space = (uint8_t)space;
		op->mode = ptx_has(st, "to");
	}
	return rc;
}

int ptx_lower_isspacep(struct ptx_loader *loader, struct ptx_statement *st)
{
	enum ptx_space space = ptx_lower_space(st);
	uint32_t d, a;
	struct ptx_op *op;

	if (st->arg_count != 2 || ptx_target(loader, st, &st->args[0], 0, &d, NULL) ||
	    ptx_source(loader, st, &st->args[1], 8, PTX_TYPE_U64, &a, NULL))
		return ptx_bad_operand(loader, st, 0);
	op = ptx_emit(loader, st, PTX_ISSPACEP, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->space = (uint8_t)space;
	op->writes = 1;
	op->count = 2;
	op->r[0] = d;
	op->r[1] = a;
	return 0;
}

/* cp.async [shared], [global], bytes{, bytes to read}: completes at once, so waits for it do nothing. */
int ptx_lower_cp_async(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_address to = { .space = PTX_SPACE_SHARED }, from = { .space = PTX_SPACE_GLOBAL };
	uint32_t zero = PTX_NO_OPERAND, to_place;
	struct ptx_op *op;
	int rc;

	if (st->arg_count < 3 || st->arg_count > 4 || st->args[2].kind != PTX_OPERAND_INT ||
	    (st->args[2].bits != 4 && st->args[2].bits != 8 && st->args[2].bits != 16))
		return ptx_refuse(loader, st->line, "%s: operands of this form", st->full);
	rc = ptx_lower_address(loader, st, &st->args[0], &to);
	if (!rc)
		rc = ptx_lower_address(loader, st, &st->args[1], &from);
	if (!rc && st->arg_count == 4)
		rc = ptx_source(loader, st, &st->args[3], 4, PTX_TYPE_U32, &zero, NULL);
	if (rc || to.has_ref || to.offset || from.width != 8)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 0);
	to_place = to.place;
	op = ptx_emit(loader, st, PTX_CPASYNC, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->count = 3;
	op->aux = (uint32_t)st->args[2].bits;
	op->r[1] = to_place;
	op->r[2] = zero;
	op->width = (uint8_t)to.width;
	return ptx_set_address(loader, op, 0, &from);
}

static int mbarrier_mode(const struct ptx_statement *st)
{
	if (ptx_has(st, "init"))
		return PTX_MBARRIER_INIT;
	if (ptx_has(st, "inval"))
		return PTX_MBARRIER_INVAL;
	if (ptx_has(st, "arrive_drop"))
		return ptx_has(st, "expect_tx") ? -1 : PTX_MBARRIER_DROP;
	if (ptx_has(st, "arrive"))
		return ptx_has(st, "expect_tx") ? PTX_MBARRIER_ARRIVE_EXPECT : PTX_MBARRIER_ARRIVE;
	if (ptx_has(st, "expect_tx"))
		return PTX_MBARRIER_EXPECT;
	if (ptx_has(st, "complete_tx"))
		return PTX_MBARRIER_COMPLETE;
	if (ptx_has(st, "pending_count"))
		return PTX_MBARRIER_PENDING;
	return ptx_has(st, "parity") ? PTX_MBARRIER_WAIT_PARITY : PTX_MBARRIER_WAIT;
}

/* The operands: a result, if any; the address; a count, a number of bytes, a state or a parity. */
static int mbarrier_operands(struct ptx_loader *loader, struct ptx_statement *st, int mode,
			     struct ptx_address *a, uint32_t *d, uint32_t *value)
{
	bool is_wait = mode == PTX_MBARRIER_WAIT || mode == PTX_MBARRIER_WAIT_PARITY;
	bool has_target = is_wait || mode == PTX_MBARRIER_ARRIVE || mode == PTX_MBARRIER_DROP ||
			  mode == PTX_MBARRIER_ARRIVE_EXPECT;
	bool is_optional = mode == PTX_MBARRIER_ARRIVE || mode == PTX_MBARRIER_DROP;
	unsigned at = has_target, bytes = mode == PTX_MBARRIER_WAIT ? 8 : 4;
	unsigned most = at + (mode == PTX_MBARRIER_INVAL ? 1 : is_wait ? 3 : 2);
	int rc = 0;

	/* a time limit of try_wait is ignored: try_wait never waits */
	if (st->arg_count > most || st->arg_count + (is_optional || is_wait) < most)
		return ptx_refuse(loader, st->line, "%s: operands are missing", st->full);
	if (has_target && (is_wait || st->args[0].kind != PTX_OPERAND_SINK))
		rc = ptx_target(loader, st, &st->args[0], is_wait ? 0 : 8, d, NULL);
	if (!rc)
		rc = ptx_lower_address(loader, st, &st->args[at], a);
	if (!rc && st->arg_count > at + 1)
		rc = ptx_source(loader, st, &st->args[at + 1], bytes,
				bytes == 8 ? PTX_TYPE_U64 : PTX_TYPE_U32, value, NULL);
	if (rc || (a->space != PTX_SPACE_SHARED && a->space != PTX_SPACE_GENERIC))
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, at);
	return 0;
}

static int emit_mbarrier(struct ptx_loader *loader, struct ptx_statement *st, int mode,
			 const struct ptx_address *a, uint32_t d, uint32_t value)
{
	struct ptx_op *op = ptx_emit(loader, st, PTX_MBARRIER, PTX_TYPE_NONE);

	if (!op)
		return ptx_no_memory(loader);
	op->mode = (uint8_t)mode;
	op->writes = 1;
	op->count = 3;
	op->r[0] = d;
	op->r[2] = value;
	return ptx_set_address(loader, op, 1, a);
}

int ptx_lower_mbarrier(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_address a = { .space = ptx_lower_space(st) };
	uint32_t d = PTX_NO_OPERAND, value = PTX_NO_OPERAND;
	int mode = mbarrier_mode(st), rc;

	if (mode < 0)
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	if (mode == PTX_MBARRIER_PENDING) {
		struct ptx_op *op;

		if (st->arg_count != 2 || ptx_target(loader, st, &st->args[0], 4, &d, NULL) ||
		    ptx_source(loader, st, &st->args[1], 8, PTX_TYPE_U64, &value, NULL))
			return ptx_bad_operand(loader, st, 0);
		op = ptx_emit(loader, st, PTX_MBARRIER, PTX_TYPE_NONE);
		if (!op)
			return ptx_no_memory(loader);
		op->mode = PTX_MBARRIER_PENDING;
		op->writes = 1;
		op->count = 3;
		op->r[0] = d;
		op->r[2] = value;
		return 0;
	}
	rc = mbarrier_operands(loader, st, mode, &a, &d, &value);
	return rc ? rc : emit_mbarrier(loader, st, mode, &a, d, value);
}

/* cp.async.mbarrier.arrive [a]: arrive when the copies of the thread are done, which they always are. Without
 * .noinc one more arrival is expected first, so that nothing changes. */
int ptx_lower_cp_arrive(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_address a = { .space = ptx_lower_space(st) };
	int rc = st->arg_count == 1 ? ptx_lower_address(loader, st, &st->args[0], &a) : -EINVAL;

	if (rc || (a.space != PTX_SPACE_SHARED && a.space != PTX_SPACE_GENERIC))
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 0);
	if (!ptx_has(st, "noinc"))
		return ptx_lower_ignored(loader, st);
	return emit_mbarrier(loader, st, PTX_MBARRIER_ARRIVE, &a, PTX_NO_OPERAND, PTX_NO_OPERAND);
}

/* cp.async.bulk [shared], [global], bytes, [mbarrier]; cp.async.bulk [global], [shared], bytes: completes at
 * once. */
int ptx_lower_cp_bulk(struct ptx_loader *loader, struct ptx_statement *st)
{
	bool is_load = ptx_has(st, "mbarrier::complete_tx::bytes");
	struct ptx_address shared = { .space = PTX_SPACE_SHARED }, device = { .space = PTX_SPACE_GLOBAL };
	struct ptx_address barrier = { .space = PTX_SPACE_SHARED, .width = 4 };
	uint32_t bytes;
	struct ptx_op *op;
	int rc;

	if (st->arg_count != (is_load ? 4 : 3))
		return ptx_refuse(loader, st->line, "%s: operands of this form", st->full);
	rc = ptx_lower_address(loader, st, &st->args[is_load ? 0 : 1], &shared);
	if (!rc)
		rc = ptx_lower_address(loader, st, &st->args[is_load ? 1 : 0], &device);
	if (!rc)
		rc = ptx_source(loader, st, &st->args[2], 4, PTX_TYPE_U32, &bytes, NULL);
	barrier.place = PTX_NO_OPERAND;
	if (!rc && is_load)
		rc = ptx_lower_address(loader, st, &st->args[3], &barrier);
	if (rc || shared.has_ref || shared.offset || barrier.has_ref || barrier.offset || device.width != 8)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 0);
	op = ptx_emit(loader, st, PTX_CPBULK, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->mode = !is_load;
	op->count = 4;
	op->r[1] = shared.place;
	op->r[2] = bytes;
	op->r[3] = barrier.place;
	op->width = (uint8_t)shared.width;
	op->aux = barrier.width;
	return ptx_set_address(loader, op, 0, &device);
}

int ptx_lower_ignored(struct ptx_loader *loader, struct ptx_statement *st)
{
	return ptx_emit(loader, st, PTX_NOP, PTX_TYPE_NONE) ? 0 : ptx_no_memory(loader);
}

int ptx_lower_fence(struct ptx_loader *loader, struct ptx_statement *st)
{
	return ptx_emit(loader, st, PTX_FENCE, PTX_TYPE_NONE) ? 0 : ptx_no_memory(loader);
}
